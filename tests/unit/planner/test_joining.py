"""Why a plan of groups leaves a device out: what it would do as one more device or as a stage of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ignite_scheduler.cost import Assignment, StageChoice, evaluate, straight
from ignite_scheduler.model import Cluster, LinkRule, PipelineChoice, Resources
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.joining import Joined, joined
from ignite_scheduler.planner.request import Request, requested
from planner_cases import chain, devices_in_one_node, job

GROUPS = frozenset({"replicas"})


def ask(choice: Assignment, cluster: Cluster, *, work: int = 60_000, **terms: object) -> tuple[Joined, Problem]:
    profile = terms.pop("profile", chain([1.0, 1.0]))
    problem = Problem(
        job=job(total=8, micro=2, **terms),
        profile=profile,  # type: ignore[arg-type]
        cluster=cluster,
        abilities=GROUPS,
    )
    request = requested(problem)
    assert isinstance(request, Request), request
    plan = evaluate(problem.job, problem.profile, cluster, choice)
    return joined(request, choice, plan, work), problem


ALONE = straight((2,), ("n/d0",), (2,) * 4, "1f1b")


def test_an_equal_device_halves_the_step_as_one_more_of_the_stage_and_that_choice_is_handed_back() -> None:
    found, problem = ask(ALONE, devices_in_one_node([1.0, 1.0]))

    (reason,) = found.reasons
    assert reason.device == "n/d1"
    assert reason.reason == (
        "as one more device of stage 0, with 1 of 2 samples, a step takes 8.00 s instead of 16.0 s"
    )
    assert found.better is not None
    assert evaluate(problem.job, problem.profile, problem.cluster, found.better).predicted.step == pytest.approx(8.0)


def test_where_groups_are_not_permitted_it_is_tried_as_a_stage_of_its_own() -> None:
    found, _ = ask(ALONE, devices_in_one_node([1.0, 1.0]), pipeline=PipelineChoice(replicas=1))

    (reason,) = found.reasons
    assert "with one layer as a stage of its own" in reason.reason
    assert "10.0 s instead of 16.0 s" in reason.reason  # (M + S − 1)(f + b) = 5 · 2
    assert found.better is not None
    assert [stage.devices for stage in found.better.stages] in ([("n/d0",), ("n/d1",)], [("n/d1",), ("n/d0",)])


def test_a_slow_device_costs_time_and_is_no_better_choice() -> None:
    found, _ = ask(ALONE, devices_in_one_node([1.0, 0.01, 0.01]))

    assert [entry.device for entry in found.reasons] == ["n/d1", "n/d2"]
    assert len({entry.reason for entry in found.reasons}) == 1
    assert "instead of 16.0 s" in found.reasons[0].reason
    assert found.better is None


def test_a_device_that_holds_nothing_says_what_is_missing() -> None:
    found, _ = ask(
        ALONE, devices_in_one_node([1.0, 1.0], memory=[9.0, 0.25]), profile=chain([1.0, 1.0], parameters=[1.0, 1.0])
    )

    assert found.reasons[0].reason == "it fits nowhere in the plan: n/d1 lacks at least 0.75B"


def test_a_device_without_links_has_no_place() -> None:
    cluster = devices_in_one_node([1.0, 1.0])
    rule = LinkRule(bandwidth=1.0, latency=0.0, sources=frozenset({"n/d0"}), targets=frozenset({"n/d0"}))

    found, _ = ask(ALONE, replace(cluster, links=(rule,)))

    assert "no links" in found.reasons[0].reason


def test_the_jobs_own_limits_are_the_reason() -> None:
    cluster = devices_in_one_node([1.0, 1.0])

    limited, _ = ask(ALONE, cluster, resources=Resources(max_devices=1))
    excluded, _ = ask(ALONE, cluster, resources=Resources(exclude=("n/d1",)))
    exact, _ = ask(ALONE, cluster, resources=Resources(any_of=({"own": 1},)))
    fixed, _ = ask(ALONE, cluster, pipeline=PipelineChoice(replicas=1, split=(2,)))

    assert limited.reasons[0].reason == "resources.max_devices is 1"
    assert exact.reasons[0].reason == "not among the devices that resources.any_of asks for"
    assert excluded.reasons[0].reason == "excluded by resources.exclude"
    assert fixed.reasons[0].reason == "the job leaves no place for it beside the plan"


def test_whole_stages_stay_recomputed_when_layers_leave_them() -> None:
    stage = StageChoice(layers=(0, 1), devices=("n/d0",), samples=(2,), recompute=((0, 2),))
    choice = Assignment(stages=(stage,), microbatches=(2,) * 4, schedule="1f1b")

    found, _ = ask(choice, devices_in_one_node([1.0, 1.0]), pipeline=PipelineChoice(replicas=1))

    assert found.better is not None
    assert sorted(one.recompute for one in found.better.stages) == [((0, 1),), ((1, 2),)]


def test_work_is_counted_and_listing_order_changes_nothing() -> None:
    cluster = devices_in_one_node([1.0, 0.5, 0.25])
    (node,) = cluster.nodes
    turned = replace(cluster, nodes=(replace(node, devices=node.devices[::-1]),))

    assert ask(ALONE, cluster)[0] == ask(ALONE, turned)[0]
    assert {entry.reason for entry in ask(ALONE, cluster, work=1)[0].reasons} == {"no faster plan with it was found"}
