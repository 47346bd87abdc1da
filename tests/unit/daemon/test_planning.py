"""Planning beside the live loop: candidates over exactly the devices asked for, or a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ignite_scheduler.control.commands import PlanJob
from ignite_scheduler.daemon.planning import CataloguePlanning
from ignite_scheduler.model import Infeasible, Job, Node, PipelineChoice
from ignite_scheduler.planner import Problem
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.pools import pools_of
from live_jobs import small_cluster, small_job, small_profile

CLUSTER = small_cluster(1.0, 0.5, 0.25)
JOBS = {
    "free": small_job("free", max_devices=3),
    "too long": replace(small_job("too long", max_devices=4), pipeline=PipelineChoice(stages=4)),
    "odd": replace(small_job("odd"), pipeline=PipelineChoice(schedule="no-such-schedule")),
}


@pytest.fixture
def planning() -> Iterator[CataloguePlanning]:
    def problem(job: Job) -> Problem:
        return Problem(job=job, profile=small_profile(), cluster=CLUSTER)

    made = CataloguePlanning({name: problem(job) for name, job in JOBS.items()}, lambda: CLUSTER)
    yield made
    made.close()


def ask(planning: CataloguePlanning, job_id: str, *device_ids: str) -> tuple[Candidate, ...] | Infeasible:
    return asyncio.run(planning.candidates(PlanJob(job_id=job_id, planning=1, device_ids=device_ids)))


def test_candidates_use_the_devices_asked_for_and_no_others(planning: CataloguePlanning) -> None:
    ids = ("lab/core-1", "lab/core-2")
    found = ask(planning, "free", *ids)
    assert not isinstance(found, Infeasible)
    assert found
    for candidate in found:
        assert candidate.plan is not None
        assert set(candidate.plan.device_ids) <= set(ids)
        assert candidate.num_devices == len(candidate.plan.device_ids)
        assert candidate.rate == 1 / candidate.plan.predicted.step


def test_devices_that_joined_later_are_planned_with() -> None:
    known = [CLUSTER]
    problem = Problem(job=JOBS["free"], profile=small_profile(), cluster=CLUSTER)
    planning = CataloguePlanning({"free": problem}, lambda: known[0])
    try:
        (node,) = CLUSTER.nodes
        fresh = replace(node.devices[0], id="annex/core-0", node="annex")
        known[0] = replace(CLUSTER, nodes=(node, Node(name="annex", devices=(fresh,))))
        found = ask(planning, "free", "annex/core-0")
    finally:
        planning.close()
    assert not isinstance(found, Infeasible)
    assert {pool for each in found for pool, _ in each.demand} <= set(pools_of(known[0]).members)
    assert {each.plan.device_ids for each in found if each.plan is not None} == {("annex/core-0",)}


def test_what_cannot_be_planned_comes_with_its_reason(planning: CataloguePlanning) -> None:
    found = ask(planning, "too long", *(device.id for device in CLUSTER.devices))
    assert isinstance(found, Infeasible)
    assert found.code == "layers"


def test_a_wrong_job_is_told_from_one_without_times_on_the_devices_left() -> None:
    (node,) = CLUSTER.nodes
    strange = replace(node.devices[0], id="annex/x-0", node="annex", kind="x", speed=None)
    wider = replace(CLUSTER, nodes=(node, Node(name="annex", devices=(strange,))))
    contradictory = replace(JOBS["free"], pipeline=PipelineChoice(stages=3, split=(2, 1)))
    problems = {
        name: Problem(job=job, profile=small_profile(), cluster=wider)
        for name, job in (("free", JOBS["free"]), ("contradictory", contradictory))
    }
    planning = CataloguePlanning(problems, lambda: wider)
    try:
        found = {name: ask(planning, name, "annex/x-0") for name in problems}
    finally:
        planning.close()
    assert {name: getattr(each, "code", None) for name, each in found.items()} == {
        "free": "devices",
        "contradictory": "input",
    }


def test_a_job_that_is_wrong_is_refused_and_ends_nobody_else(planning: CataloguePlanning) -> None:
    found = ask(planning, "odd", "lab/core-0")
    assert isinstance(found, Infeasible)
    assert "no-such-schedule" in found.text
    assert not isinstance(ask(planning, "free", "lab/core-0"), Infeasible)
