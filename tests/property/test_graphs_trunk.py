"""The chain of stages along a trunk: no graph of stages goes below what is proven of all images."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_cases import best_graph, branching_problems
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.graphs import trunk
from ignite_scheduler.planner.graphs.bound import graph_bound
from ignite_scheduler.planner.graphs.dag import tensors_of
from ignite_scheduler.planner.setup import prepare
from ignite_scheduler.planner.solve import NOTHING, improve

FEW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FEW
@given(problem=branching_problems(most_layers=5, most_devices=3), count=st.integers(1, 5))
def test_the_best_image_takes_no_longer_than_the_best_graph(problem: Problem, count: int) -> None:
    setup = prepare(problem)
    assert not isinstance(setup, Infeasible)
    tensors = tensors_of(problem.profile)
    if (setup.goal.extra < 0).any() or problem.objective == "energy":
        return
    least = math.inf
    for family in setup.families:
        image = trunk.images_of(setup, setup.arrays(family), family, tensors, count)
        found, _, complete = improve(image, NOTHING, math.inf, 100_000)
        assert complete
        least = min(least, found.value)
    assert least <= best_graph(problem) * (1 + 1e-9) + 1e-9


@FEW
@given(problem=branching_problems(most_layers=5, most_devices=3))
def test_what_is_raised_stays_below_every_graph(problem: Problem) -> None:
    setup = prepare(problem)
    assert not isinstance(setup, Infeasible)
    tensors = tensors_of(problem.profile)
    sketches = []
    for family in setup.families:
        arrays = setup.arrays(family)
        sketches.append((setup.as_value(graph_bound(setup, arrays, family, tensors)), family, arrays))
    best = best_graph(problem)
    if best < math.inf:
        bound, _ = trunk.raised(setup, sketches, tensors, best, 100_000)
        assert min(low for low, _, _ in sketches) <= bound <= best * (1 + 1e-9) + 1e-9
