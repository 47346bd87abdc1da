"""The independent judge of plan documents: agrees with the package on any choice, and finds what is made wrong."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import plan_check
from choice_cases import Case, cases, toy_cluster, toy_layer, toy_profile
from choice_cases import job as toy_job
from ignite_scheduler.cost import Assignment, StageChoice, evaluate
from ignite_scheduler.formats.cluster import cluster_document
from ignite_scheduler.formats.job import job_document
from ignite_scheduler.formats.plan import plan_document
from ignite_scheduler.formats.profile import profile_document
from ignite_scheduler.model import Bound
from plan_check import check
from plan_clock import depths
from plan_figures import Links, devices_of
from plan_stages import dealt

ALL = {"replicas": "auto", "recompute": "auto", "shard": "auto", "offload": "auto"}

Documents = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


def documents(case: Case) -> Documents:
    """Plan, job, profile and cluster as plain data that went through JSON."""
    plan = evaluate(*case.parts, bound=Bound(step=0.0, gap=float("inf"), method="none", optimal=False))
    found = plan_document(plan), job_document(case.job), profile_document(case.profile), cluster_document(case.cluster)
    plan_data, job_data, *rest = (json.loads(json.dumps(each)) for each in found)
    return plan_data, {**job_data, "pipeline": ALL}, rest[0], rest[1]


@settings(max_examples=150, deadline=None)
@given(cases())
def test_judge_agrees_with_package_on_any_choice(case: Case) -> None:
    assert check(*documents(case)) == []


def hand_worked() -> Documents:
    """Two stages, the second on two devices of speeds 1 and 3, with shares 1 and 3 of four samples."""
    profile = toy_profile(
        toy_layer("a", [], parameter_bytes=8, output_bytes=2, activation_bytes=3),
        toy_layer("b", ["a"], parameter_bytes=4, output_bytes=1, activation_bytes=5, workspace_bytes=7),
    )
    assignment = Assignment(
        stages=(
            StageChoice(layers=(0,), devices=("n0/d0",), samples=(4,)),
            StageChoice(layers=(1,), devices=("n1/d1", "n2/d2"), samples=(1, 3)),
        ),
        microbatches=(4, 4),
        schedule="1f1b",
    )
    cluster = toy_cluster([1, 1, 3], bandwidth=1.0, price=0.5)
    return documents(Case(job=toy_job(8), profile=profile, cluster=cluster, assignment=assignment))


def test_hand_worked_step() -> None:
    """Stage 0: 4 and 8 s a microbatch; stage 1: 1 and 2; a message of three samples 6 s; the ring 4 s.

    F0 0-4, F1 4-8 on stage 0; messages 4-10 and 10-16; stage 1 F0 10-11, B0 11-13, F1 16-17, B1 17-19; gradients
    13-19 and 19-25; B0 19-27, B1 27-35.
    """
    plan, *others = hand_worked()

    assert check(plan, *others) == []
    assert plan["predicted"]["step_s"] == 35.0
    assert plan["predicted"]["cost"] == 35.0 * 1.5 * 4
    assert [share["memory_bytes"] for share in plan["stages"][1]["devices"]] == [4 * 15 + 5 + 7, 4 * 15 + 15 + 7]


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(plan: dict[str, Any]) -> None:
        *way, last = path
        for key in way:
            plan = plan[key]
        plan[last] = to

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set("predicted", "step_s", to=34.0), "step is 34.0, should be 35.0"),
        (_set("predicted", "cost", to=1.0), "cost is 1.0"),
        (_set("bound", "step_s", to=36.0), "the bound 36.0 is above the step 35.0"),
        (_set("bound", to={"step_s": 34.0, "gap": 0.5, "optimal": False}), "gap is 0.5"),
        (_set("bound", to={"step_s": 28.0, "gap": 0.25, "optimal": True}), "called optimal with a gap of 0.25"),
        (_set("microbatches", to=[4, 3]), "the microbatches sum to 7 of 8 samples"),
        (_set("stages", 0, "layers", to=["b"]), "layer a sees 0 of the 4 samples of a microbatch"),
        (_set("stages", 1, "layers", to=["b", "a"]), "stages [0, 1] hold a layer twice"),
        (_set("stages", 1, "devices", 0, "samples", to=2), "stages [0, 1] feed each other but see [4, 5] samples"),
        (_set("stages", 1, "devices", 0, "id", to="n0/d0"), "device n0/d0 is used twice"),
        (_set("stages", 1, "devices", 0, "id", to="n9/d9"), "stage 1: there is no device n9/d9"),
        (_set("stages", 1, "devices", 0, "memory_bytes", to=1.0), "memory of n1/d1 is 1.0, should be 72.0"),
        (_set("stages", 0, "in_flight", to=1), "stage 0: 1 in flight, should be 2"),
        (_set("stages", 1, "allreduce_s", to=1.0), "all-reduce of stage 1 is 1.0, should be 4.0"),
        (_set("stages", 1, "optimizer_shards", to=3), "stage 1 spreads its optimizer over 3 of 2 devices"),
    ],
)
def test_each_fault_is_found(change: Callable[[dict[str, Any]], None], complaint: str) -> None:
    plan, *others = hand_worked()
    change(plan)

    assert any(each.startswith(complaint) for each in check(plan, *others)), check(plan, *others)


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"pipeline": {"stages": 3}}, "2 stages, asked for are 3"),
        ({"pipeline": {"split": [2]}}, "stages [0, 1] do not hold [2] layers"),
        ({"pipeline": {"replicas": 1}}, "stage 1 has 2 devices, asked for are 1"),
        ({"pipeline": {"recompute": True}}, "stage 0: recompute is False, asked for is True"),
        ({"pipeline": {"schedule": "gpipe"}}, "the schedule is 1f1b, asked for is gpipe"),
        ({"batch": {"global": 8, "micro": 2}}, "a microbatch has 4 samples, asked for are 2"),
        ({"resources": {"max_devices": 2}}, "3 devices, allowed are 2"),
        ({"resources": {"exclude": ["n1"]}}, "n1 is excluded"),
        ({"resources": {"any_of": [{"own": 2}]}}, "devices of kinds ['own', 'own', 'own']"),
        ({"precision": "bf16"}, "n0/d0 does not compute bf16"),
        ({"queue": {"deadline": "10s"}}, "the job takes 140.0 s, its deadline is 10.0 s"),
        ({"queue": {"budget": 1}}, "the job costs 210.0, its budget is 1"),
    ],
)
def test_each_wish_is_held(wish: dict[str, Any], complaint: str) -> None:
    plan, job, *others = hand_worked()

    assert any(each.startswith(complaint) for each in check(plan, {**job, **wish}, *others))


def test_memory_above_limit_is_found() -> None:
    plan, job, profile, cluster = copy.deepcopy(hand_worked())
    cluster["nodes"][2]["devices"][0]["memory"] = "81B"

    assert "n2/d2 needs 82 of 81 bytes" in check(plan, job, profile, cluster)


def test_offload_needs_a_known_link_to_the_host() -> None:
    plan, *others = hand_worked()
    plan["stages"][0]["offload"] = True
    two_in_flight = check(plan, *others)
    plan |= {"microbatches": [2, 2, 2, 2], "schedule": "gpipe"}
    for share, samples in zip(plan["stages"][1]["devices"], (1, 1), strict=True):
        share["samples"] = samples
    plan["stages"][0]["devices"][0]["samples"] = 2

    assert two_in_flight == []
    assert "n0/d0 offloads, but its link to the host is unknown" in check(plan, *others)


def test_missing_link_is_found() -> None:
    plan, job, profile, cluster = hand_worked()
    cluster["links"] = {"pairs": [{"between": ["n0", "n1"], "bandwidth": "1B/s"}]}

    assert "no link from n0/d0 to n2/d2" in check(plan, job, profile, cluster)


def test_smaller_microbatch_is_dealt_by_largest_remainder() -> None:
    assert dealt([4, 3, 1], 5) == [2, 2, 1]
    assert dealt([1, 1], 1) == [1, 0]


def test_circle_of_stages_is_refused() -> None:
    assert depths([[], [0], [0], [1, 2]]) == [3, 2, 2, 1]
    with pytest.raises(ValueError, match="circle"):
        depths([[1], [0]])


def test_last_link_rule_wins_and_kinds_are_looked_up() -> None:
    cluster = {
        "nodes": [
            {"name": "a", "devices": [{"kind": "A100-40GB", "count": 2}]},
            {"name": "b", "devices": [{"kind": "T4"}]},
        ],
        "links": {
            "default": {"bandwidth": "10Gbit/s", "latency": "0.5ms"},
            "pairs": [
                {"within": "a", "bandwidth": "25GB/s"},
                {"from": "b", "to": "a", "bandwidth": "5Gbit/s", "shared": True},
            ],
        },
    }
    devices = devices_of(cluster)
    a, b = devices["a/A100-40GB-1"], devices["b/T4-0"]
    links = Links(cluster)

    assert links.between(devices["a/A100-40GB-0"], a) == (25e9, 0.0, ("a/A100-40GB-0", "a/A100-40GB-1"))
    assert links.between(a, b) == (1.25e9, 0.0005, ("a/A100-40GB-1", "b/T4-0"))
    assert links.between(b, a) == (0.625e9, 0.0, ("shared", 2, True))
    assert a.limit == 38e9
    assert a.peaks["bf16"] == 312e12


def test_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("plan", "job", "profile", "cluster")
    paths = [tmp_path / f"{name}.json" for name in names]
    for path, document in zip(paths, hand_worked(), strict=True):
        path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["plan_check.py", *map(str, paths)])

    assert plan_check.main() == 0
    assert capsys.readouterr().out == "nothing to complain about\n"
