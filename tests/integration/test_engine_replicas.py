"""Gangs whose stages have several devices: trained by their plan, saved once, resumed by any other plan."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from engine_cases import make_job, make_plan, make_spec

from ignite_scheduler.cost.communication import ring_seconds
from ignite_scheduler.engine import reference
from ignite_scheduler.engine.gang import Gang
from ignite_scheduler.engine.reports import Failed, Finished, Progressed, Report
from ignite_scheduler.engine.saved import latest
from ignite_scheduler.engine.specification import GangSpec
from ignite_scheduler.model import Checkpointing, Evaluation, LearningRateSchedule, Link, Optimizer, Reference

pytestmark = pytest.mark.torch

HELD = Evaluation(every=2, data=Reference(module="field_models:rows", args={"rows": 13, "seed": 1}))
ALL = ("recompute", "shard", "offload")


def run(spec: GangSpec) -> list[Report]:
    gang = Gang.start(spec)
    try:
        return list(gang.wait(90))
    finally:
        gang.kill()
        list(gang.wait(30))


def metrics(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("actions", [(), ALL])
def test_a_job_trains_by_a_plan_with_replicas(actions: tuple[str, ...], tmp_path: Path) -> None:
    """Unequal shares, a smaller last microbatch in which a replica has nothing, clipping, dropout, evaluation."""
    job = make_job(
        args={"dropout": 0.2},
        batch=9,
        steps=4,
        optimizer=Optimizer(name="adamw", lr=1e-2),
        lr_schedule=LearningRateSchedule(name="cosine", warmup=2),
        gradient_clip=0.5,
        evaluate=HELD,
    )
    plan = make_plan(job, [3, 2], [4, 4, 1], shares=((3, 1), (1, 3)), actions=actions)
    assert run(make_spec(job, plan, tmp_path))[-1] == Finished(done=4)
    lines, expected = metrics(tmp_path), reference.train(job, 4)
    assert [line["loss"] for line in lines] == pytest.approx(expected.losses, rel=1e-5)
    assert [line["grad_norm"] for line in lines] == pytest.approx(expected.grad_norms, rel=1e-5)

    other = make_spec(job, make_plan(job, [5], [9]), tmp_path / "one")
    run(other)
    assert [line.get("held_loss") for line in lines] == [
        held if held is None else pytest.approx(held, rel=1e-5)
        for held in (line.get("held_loss") for line in metrics(tmp_path / "one"))
    ]


def test_each_replica_shows_its_own_actions_and_memory(tmp_path: Path) -> None:
    job = make_job(batch=9, steps=3)
    run(make_spec(job, make_plan(job, [3, 2], [4, 4, 1], "gpipe", shares=((3, 1), (4,))), tmp_path))
    document = json.loads((tmp_path / "timeline.json").read_text())
    assert [device["id"] for device in document["devices"]] == ["rank-0", "rank-1", "rank-2"]
    step = document["steps"][-1]
    rows = [[i["action"] for i in step["intervals"] if i["row"] == row] for row in range(3)]
    assert rows == [
        ["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"],
        ["0F0", "0F1", "0B0", "0B1"],
        ["1F0", "1F1", "1F2", "1B0", "1B1", "1B2"],
    ], "of a single sample the second replica has none"
    assert sorted(finish["row"] for finish in step["finishes"]) == [0, 1, 2]
    sent = sorted((t["source"], t["target"], t["microbatch"]) for t in step["transfers"])
    assert sent == sorted(
        [(0, 1, 0)] * 2 + [(0, 1, 1)] * 2 + [(0, 1, 2)] + [(1, 0, 0)] * 2 + [(1, 0, 1)] * 2 + [(1, 0, 2)]
    )
    memory = json.loads((tmp_path / "memory.json").read_text())
    assert [(entry["stage"], entry["device"], entry["rank"]) for entry in memory] == [
        (0, "rank-0", 0),
        (0, "rank-1", 1),
        (1, "rank-2", 2),
    ]


@pytest.mark.parametrize(
    ("rule", "precision"), [("adamw", "fp32"), ("momentum", "fp32"), ("sgd", "fp32"), ("adamw", "bf16")]
)
def test_any_plan_goes_on_from_what_replicas_saved(rule: str, precision: str, tmp_path: Path) -> None:
    """Sharded replicas, then a straight chain, then replicas again: the losses of one run."""
    job = make_job(
        batch=6,
        steps=6,
        precision=precision,
        optimizer=Optimizer(name=rule, lr=1e-2),
        checkpoint=Checkpointing(every=2, keep=9),
    )
    sharded = make_plan(job, [3, 2], [3, 3], shares=((2, 1), (3,)), actions=("shard",))
    run(make_spec(job, sharded, tmp_path))
    expected = [line["loss"] for line in metrics(tmp_path)]
    folder, rel = tmp_path / "checkpoints", 1e-5 if precision == "fp32" else 2e-2
    if precision == "fp32":
        assert expected == pytest.approx(reference.train(job, 6).losses, rel=rel)
    run(make_spec(job, make_plan(job, [1, 4], [3, 3]), tmp_path, resume=folder / "step-000002", epoch=2))
    assert [line["loss"] for line in metrics(tmp_path)] == pytest.approx(expected, rel=rel)
    again = make_plan(job, [4, 1], [3, 3], shares=((3,), (1, 2)), actions=("shard",))
    run(make_spec(job, again, tmp_path, resume=folder / "step-000004", epoch=3))
    assert [line["loss"] for line in metrics(tmp_path)] == pytest.approx(expected, rel=rel)
    assert latest(tmp_path) == folder / "step-000006"


def test_the_same_plan_resumes_bit_equal(tmp_path: Path) -> None:
    job = make_job(
        batch=6, steps=6, optimizer=Optimizer(name="adam", lr=1e-2), checkpoint=Checkpointing(every=3, keep=9)
    )
    plan = make_plan(job, [3, 2], [3, 3], shares=((2, 1), (1, 2)), actions=("shard",))
    run(make_spec(job, plan, tmp_path))
    before = [line["loss"] for line in metrics(tmp_path)]
    run(make_spec(job, plan, tmp_path, resume=tmp_path / "checkpoints" / "step-000003", epoch=2))
    assert [line["loss"] for line in metrics(tmp_path)] == before


def test_a_played_all_reduce_takes_what_the_cost_model_says(tmp_path: Path) -> None:
    """Two replicas of 1,348 weights in 4 bytes over a slow link: a ring of two."""
    job = make_job(batch=4, steps=3)
    parameters = 4 * (16 * 16 + 16) + 16 * 4 + 4
    links = {pair: Link(bandwidth=1e5, latency=0.02, wire=pair) for pair in ((0, 1), (1, 0))}
    run(make_spec(job, make_plan(job, [5], [4], shares=((3, 1),)), tmp_path, links=links))
    seconds = ring_seconds(4 * parameters, 1e5, 0.02, 2)
    for step in json.loads((tmp_path / "timeline.json").read_text())["steps"]:
        actions = [i["end_s"] for i in step["intervals"]]
        for finish in step["finishes"]:
            assert finish["end_s"] >= max(actions) + seconds, "it begins when the last replica has done its last action"


def test_replicas_of_batch_normalisation_are_refused_with_the_reason(tmp_path: Path) -> None:
    job = make_job("field_models:normalised")
    plan = make_plan(job, [2, 2], [4, 4], shares=((3, 1), (4,)))
    ending = run(make_spec(job, plan, tmp_path))[-1]
    assert isinstance(ending, Failed)
    assert ending.fault == "job"
    assert "stage 0 has batch normalisation, and several devices" in ending.reason


def test_batch_normalisation_beside_replicas_trains(tmp_path: Path) -> None:
    job = make_job("field_models:normalised", steps=3)
    plan = make_plan(job, [2, 2], [4, 4], shares=((4,), (3, 1)))
    assert run(make_spec(job, plan, tmp_path))[-1] == Finished(done=3)
    expected = reference.train(job, 3, (4, 4))
    assert [line["loss"] for line in metrics(tmp_path)] == pytest.approx(expected.losses, rel=1e-5)


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, "died: signal 9 (SIGKILL)"), (signal.SIGSTOP, "fell silent, says rank 0")]
)
def test_a_lost_replica_is_named(number: signal.Signals, words: str, tmp_path: Path) -> None:
    job = make_job(steps=100_000)
    spec = make_spec(job, make_plan(job, [5], [4, 4], shares=((2, 2),)), tmp_path)
    gang = Gang.start(replace(spec, timeout=3.0))
    try:
        for report in gang.wait(60):
            if isinstance(report, Progressed):
                break
        os.kill(gang.process_ids[1], number)
        *_, ending = gang.wait(60)
    finally:
        gang.kill()
        list(gang.wait(30))
    assert isinstance(ending, Failed)
    assert (ending.rank, ending.device, ending.fault) == (1, "rank-1", "device")
    assert words in ending.reason
