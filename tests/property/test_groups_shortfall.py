"""What no chain of groups fits lacks: exactly so much, against every chain looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import Infeasible, PipelineChoice
from ignite_scheduler.planner import plan
from ignite_scheduler.planner.exhaustive import exhaustive_groups
from ignite_scheduler.planner.groups import search
from ignite_scheduler.planner.groups.shortfall import shortfall
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from planner_cases import chain, devices_in_one_node, job, profiles

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ALL = frozenset({"replicas", "recompute", "shard", "offload"})


@st.composite
def tight(draw, most: int = 12) -> Problem:
    """Few layers on few devices of little memory each."""
    memory = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    cluster = devices_in_one_node(
        [1.0] * len(memory), memory=[float(size) for size in memory], host_bandwidth=draw(st.sampled_from([None, 1.0]))
    )
    wishes = {name: draw(st.sampled_from([False, "auto", True])) for name in ("recompute", "shard", "offload")}
    total = draw(st.integers(1, 4))
    choice = PipelineChoice(schedule=draw(st.sampled_from(["auto", "gpipe"])), **wishes)
    work = job(total=total, micro=draw(st.none() | st.integers(1, total)), pipeline=choice)
    return Problem(job=work, profile=draw(profiles(3)), cluster=cluster, abilities=ALL)


def asked(problem: Problem) -> Request:
    request = requested(problem)
    assume(not isinstance(request, Infeasible))
    assert isinstance(request, Request)
    return request


def given_more(problem: Problem, extra: tuple[int, ...]) -> Problem:
    node = problem.cluster.nodes[0]
    devices = tuple(replace(d, memory=d.memory + more) for d, more in zip(node.devices, extra, strict=True))
    return replace(problem, cluster=replace(problem.cluster, nodes=(replace(node, devices=devices),)))


def dealt(total: int, devices: int):
    """All ways to deal that many bytes to so many devices."""
    if devices == 1:
        yield (total,)
        return
    for own in range(total + 1):
        for others in dealt(total - own, devices - 1):
            yield (own, *others)


@FEW
@given(problem=tight())
def test_nothing_is_missing_exactly_where_a_chain_fits(problem: Problem) -> None:
    request = asked(problem)
    assert (shortfall(request).bytes == 0) == (exhaustive_groups(request) is not None)


@FEW
@given(problem=tight(6))
def test_so_many_bytes_more_are_enough_and_fewer_are_not(problem: Problem) -> None:
    """All figures are whole numbers without sharded state, so that whole bytes are enough."""
    request = asked(problem)
    least = shortfall(request).bytes
    assume(0 < least <= 6)
    assert least == int(least)
    count = len(request.devices)
    enough = [given_more(problem, extra) for extra in dealt(int(least), count)]
    assert any(exhaustive_groups(asked(more)) is not None for more in enough)
    short = [given_more(problem, extra) for extra in dealt(int(least) - 1, count)]
    assert all(exhaustive_groups(asked(more)) is None for more in short)


def test_a_group_shares_out_what_is_missing() -> None:
    """Five samples of 2 bytes on devices of 3 and 6: 10 bytes on (2, 3) lack 1, and 4 samples would fit."""
    work = job(total=5, micro=5, pipeline=PipelineChoice(stages=1))
    cluster = devices_in_one_node([1.0, 1.0], memory=[3.0, 6.0])
    problem = Problem(job=work, profile=chain([3.0], activations=2.0), cluster=cluster, abilities=ALL)
    answer = plan(problem)
    assert isinstance(answer, Infeasible)
    assert (answer.code, answer.shortfall) == ("memory", 1.0)


def test_an_action_that_would_cure_is_named() -> None:
    work = job(total=1, pipeline=PipelineChoice(replicas=1))
    profile = chain([3.0, 3.0], activations=4.0, outputs=[1.0, 1.0])
    cluster = devices_in_one_node([1.0], memory=[5.0])
    answer = plan(Problem(job=work, profile=profile, cluster=cluster, abilities=ALL))
    assert isinstance(answer, Infeasible)
    assert answer.shortfall == 3.0
    assert "pipeline.recompute: auto, with which it fits" in answer.cures


def test_counts_that_there_are_not_are_no_want_of_memory() -> None:
    work = job(total=2, micro=2, pipeline=PipelineChoice(recompute=True))
    work = replace(work, resources=replace(work.resources, any_of=({"own": 2},)))
    cluster = devices_in_one_node([1.0], memory=[1.0])
    answer = plan(Problem(job=work, profile=chain([3.0]), cluster=cluster, abilities=ALL))
    assert isinstance(answer, Infeasible)
    assert (answer.code, answer.shortfall) == ("devices", None)


def test_a_slow_device_has_a_sample_where_two_are_demanded() -> None:
    work = job(total=2, micro=2, pipeline=PipelineChoice(replicas=2))
    cluster = devices_in_one_node([8.0, 0.5])
    problem = Problem(job=work, profile=chain([3.0]), cluster=cluster, abilities=ALL)
    request = requested(problem)
    assert isinstance(request, Request)
    found = search(problem, request)
    assert found.best is not None
    assert [stage.samples for stage in found.best.stages] == [(1, 1)]
    assert found.value == pytest.approx(6.0)
