"""The search over chains of groups finds what looking at every one finds, and its bounds hold."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import evaluate
from ignite_scheduler.model import Infeasible, PipelineChoice
from ignite_scheduler.planner.exhaustive import exhaustive_groups
from ignite_scheduler.planner.groups import memory, search
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from planner_cases import clusters, job, profiles

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ALL = frozenset({"replicas", "recompute", "shard", "offload"})
WISHES = st.sampled_from([False, "auto"])


def with_host(node, host):
    return replace(node, devices=tuple(replace(device, host_bandwidth=host) for device in node.devices))


@st.composite
def group_problems(draw, *, layers=4, devices=3, skips=False, actions=False, **terms) -> Problem:
    cluster = draw(clusters(devices))
    if actions:
        host = draw(st.sampled_from([None, 1.0, 8.0]))
        nodes = tuple(
            replace(node, devices=tuple(replace(d, host_bandwidth=host) for d in node.devices))
            for node in cluster.nodes
        )
        cluster = replace(cluster, nodes=nodes)
    wishes = {name: draw(WISHES) if actions else False for name in ("recompute", "shard", "offload")}
    choice = PipelineChoice(schedule=draw(st.sampled_from(["auto", "1f1b", "gpipe"])), **wishes)
    total = draw(st.integers(1, 8))
    return Problem(
        job=job(total=total, micro=draw(st.none() | st.integers(1, total)), pipeline=choice),
        profile=draw(profiles(layers, skips=skips)),
        cluster=cluster,
        abilities=ALL,
        **terms,
    )


def asked(problem: Problem) -> Request:
    request = requested(problem)
    assume(not isinstance(request, Infeasible))
    assert isinstance(request, Request)
    return request


def same_answer(problem: Problem) -> None:
    request = asked(problem)
    found, reference = search(problem, request), exhaustive_groups(request)
    if reference is None:
        assert found.best is None
        assert found.complete
        return
    assert found.best is not None
    assert found.complete
    assert found.value == pytest.approx(reference[0], rel=1e-9, abs=2e-9)
    assert found.bound == pytest.approx(found.value, rel=1e-9, abs=2e-9)
    plan = evaluate(problem.job, problem.profile, problem.cluster, found.best, memory_margin=problem.memory_margin)
    assert all(share.memory <= share.memory_limit for stage in plan.stages for share in stage.devices)


@FEW
@given(problem=group_problems())
def test_groups_equal_every_choice(problem: Problem) -> None:
    same_answer(problem)


@FEW
@given(problem=group_problems(layers=4, skips=True))
def test_skips_ties_updates_and_overhead_equal_every_choice(problem: Problem) -> None:
    same_answer(problem)


@FEW
@given(problem=group_problems(layers=3, actions=True))
def test_memory_actions_equal_every_choice(problem: Problem) -> None:
    same_answer(problem)


@FEW
@given(problem=group_problems(layers=4, actions=True))
def test_what_leaves_runs_out_for_speed_leaves_out_no_best_chain(problem: Problem) -> None:
    search_module = import_module("ignite_scheduler.planner.groups.search")
    with (
        patch.object(memory, "MANY_RUNS", 0),
        patch.object(search_module, "MANY_RUNS", 0),
        patch.object(search_module, "COARSE_CUTS", 2),
    ):
        same_answer(problem)


@FEW
@given(problem=group_problems(layers=3), work=st.sampled_from([1, 20, 200, 2_000]))
def test_bounds_of_a_search_that_was_stopped_hold(problem: Problem, work: int) -> None:
    request = asked(replace(problem, work=work))
    found, reference = search(replace(problem, work=work), request), exhaustive_groups(request)
    if reference is None:
        assert found.best is None
        return
    assert found.bound <= reference[0] * (1 + 1e-9) + 2e-9
    assert found.value >= reference[0] * (1 - 1e-9) - 2e-9
