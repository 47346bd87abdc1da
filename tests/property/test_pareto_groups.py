"""With stages of several devices the Pareto set is that of the best chain of groups on every set of devices."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import HealthCheck, given, settings

from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.exhaustive import exhaustive_groups
from ignite_scheduler.planner.pareto import pareto
from ignite_scheduler.planner.pareto.front import covers, nondominated
from ignite_scheduler.planner.pareto.objectives import figures, losses
from ignite_scheduler.planner.request import requested
from planner_cases import problems

CRITERIA = ("time", "money", "devices")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_layers=4, most_devices=3))
def test_no_chain_of_groups_is_missing_and_none_is_beaten(problem: Problem) -> None:
    problem = replace(problem, abilities=frozenset({"replicas"}))
    ids = sorted(device.id for device in problem.cluster.devices)
    every = []
    for count in range(1, len(ids) + 1):
        for chosen in combinations(ids, count):
            request = requested(replace(problem, devices=chosen))
            assert not isinstance(request, Infeasible)
            best = exhaustive_groups(replace(request, min_devices=count))
            if best is not None:
                every.append(losses(figures(problem, best[1]), CRITERIA))

    found = pareto(problem)

    if isinstance(found, Infeasible):
        assert not every
        return
    assert found.complete
    values = sorted(losses(point.figures, CRITERIA) for point in found.points)
    wanted = sorted(every[place] for place in nondominated(every))
    assert len(values) == len(wanted)
    assert all(covers(a, b) and covers(b, a) for a, b in zip(values, wanted, strict=True))
