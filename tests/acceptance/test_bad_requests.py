"""Requests that contradict themselves or the cluster: a clear result each, with the right exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from field_bench import GB, Bench, node, own
from test_bad_input import good, is_one_error

WITHIN = {"pairs": [{"within": "n", "bandwidth": "1GB/s"}, {"within": "m", "bandwidth": "1GB/s"}]}


def contradicting(bench: Bench, pipeline: Mapping[str, Any], resources: Mapping[str, Any], *, layers: int = 6) -> None:
    bench.profile([1.0] * layers, memory=[GB] * layers)
    bench.cluster(node("n", own("gpu", count=4, memory="8GB")))
    bench.job(pipeline=pipeline, resources=dict(resources), batch={"global": 8})


@pytest.mark.parametrize(
    ("pipeline", "resources", "words"),
    [
        ({"stages": 3}, {"max_devices": 2}, ["pipeline.stages is 3", "resources.max_devices is 2"]),
        ({"split": [2, 2, 2]}, {"max_devices": 2}, ["pipeline.split has 3 stages", "resources.max_devices is 2"]),
        ({"replicas": 3}, {"max_devices": 2}, ["pipeline.replicas is 3", "resources.max_devices is 2"]),
        ({"stages": 2, "replicas": 2}, {"max_devices": 3}, ["pipeline.stages is 2", "replicas is 2", "devices is 3"]),
        ({"split": [3, 3]}, {"any_of": [{"gpu": 3}]}, ["pipeline.split has 2 stages", "asks for 3 gpu"]),
        ({"split": [2, 2, 2], "replicas": "auto"}, {"any_of": [{"gpu": 2}]}, ["has 3 stages", "asks for 2 gpu"]),
        ({}, {"any_of": [{"gpu": 3}], "max_devices": 2}, ["asks for 3 gpu", "resources.max_devices is 2"]),
    ],
    ids=str,
)
def test_two_keys_that_contradict_each_other_are_both_named(
    bench: Bench, pipeline: dict[str, Any], resources: dict[str, Any], words: list[str]
) -> None:
    contradicting(bench, pipeline, resources)

    answer = bench.plan()

    assert answer.code == 3, answer.stdout + answer.stderr
    assert answer.refusal["reason"]["code"] == "devices"
    for word in words:
        assert word in answer.refusal["reason"]["text"]
        assert word in answer.stderr


def test_a_device_of_a_group_without_a_sample_is_refused(bench: Bench) -> None:
    contradicting(bench, {"replicas": 4}, {})
    bench.job(pipeline={"replicas": 4}, batch={"global": 8, "micro": 2})

    refusal = bench.plan().refusal

    assert refusal["reason"]["code"] == "batch"
    assert "pipeline.replicas is 4" in refusal["reason"]["text"]
    assert "batch.micro is 2" in refusal["reason"]["text"]


def test_more_devices_a_stage_than_there_are_is_refused(bench: Bench) -> None:
    good(bench)
    bench.cluster(node("n", own("gpu", memory="8GB")))
    bench.job(pipeline={"replicas": 2}, batch={"global": 8})

    refusal = bench.plan().refusal

    assert refusal["reason"]["code"] in ("devices", "replicas")  # the latter where one device a stage is all there is
    assert refusal["cures"]


def test_a_split_and_a_number_of_stages_that_differ_are_an_error_that_names_both(bench: Bench) -> None:
    good(bench)
    bench.job(pipeline={"stages": 1, "split": [1, 1]})

    answer = bench.plan()

    assert answer.code == 2
    assert is_one_error(answer)
    assert "pipeline.stages is 1 but pipeline.split has 2 stages" in answer.stderr


def test_nodes_without_a_link_between_them_are_not_pipelined_together(bench: Bench) -> None:
    bench.profile([1.0] * 4)
    bench.cluster(node("n", own("gpu", count=2)), node("m", own("gpu", count=3)), links=WITHIN)
    bench.job()

    plan = bench.plan().plan

    assert [stage["devices"][0]["id"].split("/")[0] for stage in plan["stages"]] == ["m"] * 3
    assert {entry["device"]: bool(entry["reason"]) for entry in plan["unused"]} == {"n/gpu-0": True, "n/gpu-1": True}


def test_a_chain_over_nodes_without_a_link_is_refused(bench: Bench) -> None:
    bench.profile([1.0] * 4)
    bench.cluster(node("n", own("gpu")), node("m", own("gpu")), links=WITHIN)
    bench.job(pipeline={"stages": 2})

    refusal = bench.plan().refusal

    assert refusal["reason"]["code"] == "links"
    assert refusal["shortfall_bytes"] is None
    assert any("links" in cure for cure in refusal["cures"])


def test_a_device_that_can_hold_no_layer_is_left_out_with_the_reason(bench: Bench) -> None:
    bench.profile([1.0] * 4, memory=[GB] * 4)
    bench.cluster(node("n", own("gpu", count=2, memory="8GB"), own("tiny", memory="500MB", speed=9)))
    bench.job()

    plan = bench.plan().plan

    (unused,) = plan["unused"]
    assert unused["device"] == "n/tiny-0"
    assert "memory" in unused["reason"] or "lacks" in unused["reason"]


@pytest.mark.parametrize("keys", [{}, {"replicas": "auto"}], ids=str)
def test_where_no_device_holds_a_layer_the_shortfall_is_exact(bench: Bench, keys: dict[str, Any]) -> None:
    bench.profile([1.0, 1.0], memory=[GB, GB])
    bench.cluster(node("n", own("tiny", count=2, memory="750MB")))
    bench.job(pipeline=keys)

    refusal = bench.plan().refusal

    assert refusal["reason"]["code"] == "memory"
    assert refusal["shortfall_bytes"] == pytest.approx(2 * 0.25 * GB)


def zero_bandwidth(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=2)), links={"default": {"bandwidth": "0GB/s"}})


def negative_bandwidth(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=2)), links={"default": {"bandwidth": "-1GB/s"}})


def bandwidth_as_good_as_zero(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=2)), links={"default": {"bandwidth": "1e-40B/s"}})


def endless_bandwidth(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=2)), links={"default": {"bandwidth": "1e300GB/s"}})


def absurd_memory(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", memory="1e99GB")))


def more_used_than_there_is(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", memory="8GB", used_by_others="9GB")))


def negative_stages(bench: Bench) -> None:
    bench.job(pipeline={"stages": -1})


def no_replicas(bench: Bench) -> None:
    bench.job(pipeline={"replicas": 0})


def empty_split(bench: Bench) -> None:
    bench.job(pipeline={"split": []})


def split_with_an_empty_stage(bench: Bench) -> None:
    bench.job(pipeline={"split": [2, 0]})


def split_of_another_model(bench: Bench) -> None:
    bench.job(pipeline={"split": [2, 5]})


def misspelt_action(bench: Bench) -> None:
    bench.job(pipeline={"recompute": "sometimes"})


BAD_DOCUMENTS = [
    (zero_bandwidth, ["cluster.yaml", "bandwidth", "above 0"]),
    (negative_bandwidth, ["cluster.yaml", "bandwidth", "above 0"]),
    (bandwidth_as_good_as_zero, ["cluster.yaml", "bandwidth", "at least"]),
    (endless_bandwidth, ["cluster.yaml", "bandwidth", "finite"]),
    (absurd_memory, ["cluster.yaml", "memory", "at most"]),
    (more_used_than_there_is, ["cluster.yaml", "used_by_others", "9GB"]),
    (negative_stages, ["job.yaml", "stages", "at least 1"]),
    (no_replicas, ["job.yaml", "replicas", "at least 1"]),
    (empty_split, ["job.yaml", "split"]),
    (split_with_an_empty_stage, ["job.yaml", "split"]),
    (split_of_another_model, ["pipeline.split", "2 layers", "[2, 5]"]),
    (misspelt_action, ["job.yaml", "recompute", "true, false or 'auto'"]),
]


@pytest.mark.parametrize(("spoil", "named"), BAD_DOCUMENTS, ids=[spoil.__name__ for spoil, _ in BAD_DOCUMENTS])
def test_a_figure_that_makes_no_sense_is_one_clear_error(
    bench: Bench, spoil: Callable[[Bench], None], named: list[str]
) -> None:
    good(bench)
    spoil(bench)

    answer = bench.plan()

    assert answer.code == 2, answer.stdout + answer.stderr
    assert is_one_error(answer), answer.stderr
    assert answer.stdout == ""
    for word in named:
        assert word in answer.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--objective", "speed"], ["speed", "time", "energy"]),
        (["--planner", "best"], ["best", "pipedream"]),
        (["--pareto", "time,beauty"], ["beauty"]),
        (["--what-if", "+1xA100-41GB"], ["A100-41GB", "A100-40GB"]),
        (["--what-if", "+1xgpu@nowhere"], ["nowhere", "there are: n"]),
        (["--what-if", "-node:nowhere"], ["nowhere", "there are: n"]),
        (["--what-if", "-device:n/gpu-9"], ["n/gpu-9", "n/gpu-0"]),
        (["--what-if", "links:n-nowhere=1GB/s"], ["nowhere", "there are: n"]),
        (["--what-if", "links:within:nowhere=1GB/s"], ["nowhere", "there are: n"]),
        (["--what-if", "links:default=0GB/s"], ["bandwidth", "above 0"]),
        (["--what-if", "memory:T4=8GB"], ["T4", "gpu"]),
        (["--what-if", "faster"], ["faster", "+1xA100-40GB", "links:"]),
    ],
    ids=str,
)
def test_an_unknown_word_is_one_clear_error_before_any_search(
    bench: Bench, options: list[str], named: list[str]
) -> None:
    good(bench)

    answer = bench.plan(*options)

    assert answer.code == 2, answer.stdout + answer.stderr
    assert is_one_error(answer), answer.stderr
    assert answer.stdout == ""
    for word in named:
        assert word in answer.stderr


def test_a_scenario_without_a_plan_is_a_row_and_the_command_is_done(bench: Bench) -> None:
    good(bench)
    scenarios = ("-node:n", "memory:gpu=500MB", "+1xgpu,memory:gpu=2GB")

    plan = bench.plan(*(word for scenario in scenarios for word in ("--what-if", scenario))).plan

    assert [plan["what_if"][scenario]["feasible"] for scenario in scenarios] == [False, False, True]
    assert [plan["differences"][scenario]["feasible"] for scenario in scenarios] == [False, False, True]
    assert plan["what_if"]["memory:gpu=500MB"]["reason"]["code"] == "memory"
    assert plan["differences"][scenarios[2]]["step_ratio"] == pytest.approx(1.0)


@pytest.mark.slow
def test_ten_thousand_layers_are_answered(bench: Bench) -> None:
    bench.profile([1.0] * 10_000, boundaries=[1000.0] * 9_999)
    bench.cluster(node("n", own("gpu", count=2), own("old", count=2, speed=0.5)))
    bench.job(microbatches=8)

    plan = bench.plan().plan

    assert sum(len(stage["layers"]) for stage in plan["stages"]) == 10_000
    assert plan["bound"]["step_s"] <= plan["predicted"]["step_s"] <= 1.05 * 10_000 * 11 / 3
