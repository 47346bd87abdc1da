"""The islands: good sets, the same for the same seed, and chromosomes that repair makes permitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster, Infeasible, Profile
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.build import assignment_of
from ignite_scheduler.planner.pareto import pareto
from ignite_scheduler.planner.pareto.exact import Front, exact_front
from ignite_scheduler.planner.pareto.front import Values, hypervolume
from ignite_scheduler.planner.pareto.genes import Genes, make_ground, repaired
from ignite_scheduler.planner.pareto.islands import islands_front
from ignite_scheduler.planner.pareto.objectives import Criterion, figures, losses
from ignite_scheduler.planner.pareto.weights import weighed
from ignite_scheduler.planner.setup import Setup, prepare
from planner_cases import chain, devices_in_one_node, job, problems

TIMES = [2.0, 1.0, 3.0, 2.0, 1.0, 4.0, 2.0, 1.0]


def small(memory: float | None = None) -> Setup:
    cluster = devices_in_one_node(
        [1.0, 0.5, 0.5, 0.25], prices=[3.0, 1.2, 1.2, 0.5], **({} if memory is None else {"memory": [memory] * 4})
    )
    nodes = cluster.nodes[0]
    devices = tuple(
        replace(device, busy_power=100 * (device.speed or 1) + 20, idle_power=10.0) for device in nodes.devices
    )
    cluster = replace(cluster, nodes=(replace(nodes, devices=devices),))
    profile: Profile = chain(TIMES, parameters=[1.0] * 8, outputs=[1.0] * 8)
    found = prepare(Problem(job=job(total=6), profile=profile, cluster=cluster))
    assert isinstance(found, Setup)
    return found


def values_of(setup: Setup, front: Front, criteria: tuple[Criterion, ...]) -> list[Values]:
    return [losses(figures(setup.problem, assignment_of(setup, *one)), criteria) for one in front.chosen]


@pytest.mark.parametrize("criteria", [("time", "money", "devices"), ("time", "energy"), ("time", "energy", "headroom")])
@pytest.mark.parametrize("memory", [None, 4.0])
def test_nearly_all_of_the_exact_hypervolume_is_found(criteria: tuple[Criterion, ...], memory: float | None) -> None:
    setup = small(memory)
    exact = exact_front(setup, criteria, 1_000_000)
    assert exact.complete
    wanted = values_of(setup, exact, criteria)

    found = values_of(setup, islands_front(setup, criteria, 20_000, np.random.default_rng(0)), criteria)

    corner = tuple(max(column) + 0.1 * abs(max(column)) + 0.01 for column in zip(*wanted, strict=True))
    assert hypervolume(found, corner) >= 0.99 * hypervolume(wanted, corner)


def test_the_same_seed_gives_the_same_set() -> None:
    setup = small()
    fronts = [islands_front(setup, ("time", "money"), 5_000, np.random.default_rng(4)) for _ in range(2)]
    assert fronts[0] == fronts[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_layers=6, most_devices=4), data=st.data())
def test_what_is_repaired_keeps_to_devices_stages_and_memory(problem: Problem, data: st.DataObject) -> None:
    setup = prepare(replace(problem, objective="time"))
    assert isinstance(setup, Setup)
    family = data.draw(st.sampled_from(setup.families))
    ground = make_ground(*weighed(setup, family, setup.arrays(family)), family)
    numbers, size = ground.numbers, ground.num_layers
    stages = data.draw(st.integers(1, 6))
    genes = Genes(
        tuple(data.draw(st.integers(0, len(numbers.counts) - 1)) for _ in range(stages)),
        tuple(data.draw(st.integers(-1, size + 1)) for _ in range(stages)),
        0,
    )

    found = repaired(ground, genes, np.ones(len(numbers.counts)))

    if found is None:
        return
    assert found.first[-1] == 0
    assert len(found.classes) == len(found.first) <= numbers.max_stages
    end = size
    for q, (c, begin) in enumerate(zip(found.classes, found.first, strict=True)):
        assert numbers.first_fit[c, q + 1, end] <= begin < end
        assert found.classes.count(c) <= numbers.counts[c]
        end = begin


def test_the_set_holds_the_fastest_and_the_cheapest_plan() -> None:
    problem = small().problem
    found = pareto(problem)
    assert not isinstance(found, Infeasible)
    assert found.complete
    fastest, cheapest = plan(problem), plan(replace(problem, objective="cost"))
    assert not isinstance(fastest, Infeasible)
    assert not isinstance(cheapest, Infeasible)
    points = [point.plan.predicted for point in found.points]
    assert points[0].step == pytest.approx(fastest.predicted.step, rel=1e-9)
    assert min(one.cost or 0.0 for one in points) == pytest.approx(cheapest.predicted.cost, rel=1e-9)
    assert [point.figures.time for point in found.points] == sorted(point.figures.time for point in found.points)


def test_the_order_of_the_listing_does_not_matter() -> None:
    problem = small().problem
    node = problem.cluster.nodes[0]
    turned: Cluster = replace(problem.cluster, nodes=(replace(node, devices=node.devices[::-1]),))
    assert pareto(problem) == pareto(replace(problem, cluster=turned))


def test_objectives_that_cannot_be_compared_are_refused() -> None:
    problem = small().problem
    for asked in (("speed",), ("time", "time"), ()):
        with pytest.raises(InputError, match="one or more of time, money"):
            pareto(problem, asked)
    node = problem.cluster.nodes[0]
    bare = tuple(replace(device, price=None, busy_power=None) for device in node.devices)
    unpriced = replace(problem, cluster=replace(problem.cluster, nodes=(replace(node, devices=bare),)))
    with pytest.raises(InputError, match="needs a price of every allowed device; missing for n/d0"):
        pareto(unpriced, ("money",))
    with pytest.raises(InputError, match="busy and idle power"):
        pareto(unpriced, ("time", "energy"))
    found = pareto(unpriced)
    assert not isinstance(found, Infeasible)
    assert found.criteria == ("time", "devices")


def test_what_no_device_holds_is_refused_as_by_plan() -> None:
    problem = small(1.0).problem
    refused = pareto(problem)
    assert isinstance(refused, Infeasible)
    assert refused == plan(problem)
