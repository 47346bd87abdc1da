"""Chains of groups on examples that are solved by hand."""

from __future__ import annotations

import pytest

from ignite_scheduler.planner.groups import search
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from planner_cases import chain, devices_in_one_node, job


def found(profile, cluster, *, total, micro):
    problem = Problem(
        job=job(total=total, micro=micro), profile=profile, cluster=cluster, abilities=frozenset({"replicas"})
    )
    request = requested(problem)
    assert isinstance(request, Request)
    return search(problem, request)


def test_one_layer_is_shared_by_speed() -> None:
    """3 s a sample, and 6 on the slower device: 3 + 1 samples take 9 s, 2 + 2 would take 12."""
    answer = found(chain([3.0]), devices_in_one_node([1.0, 0.5]), total=4, micro=4)
    assert answer.best is not None
    assert [stage.samples for stage in answer.best.stages] == [(3, 1)]
    assert answer.value == pytest.approx(9.0)
    assert answer.complete
    assert answer.bound == pytest.approx(9.0)


def test_an_all_reduce_that_takes_longer_than_it_saves_leaves_a_pipeline() -> None:
    """Two layers of 3 s, 4 microbatches of 2: a pipeline takes 5 × 6 s; data parallelism 24 s and an all-reduce of
    2 · ½ · 200 bytes at 10 bytes/s = 20 s."""
    profile = chain([3.0, 3.0], parameters=[100.0, 100.0], outputs=[0.0, 0.0])
    answer = found(profile, devices_in_one_node([1.0, 1.0], bandwidth=10.0), total=8, micro=2)
    assert answer.best is not None
    assert [len(stage.devices) for stage in answer.best.stages] == [1, 1]
    assert answer.value == pytest.approx(30.0)
    free = found(profile, devices_in_one_node([1.0, 1.0]), total=8, micro=2)
    assert free.best is not None
    assert [stage.samples for stage in free.best.stages] == [(1, 1)]
    assert free.value == pytest.approx(24.0)
