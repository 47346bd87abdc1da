"""The exact Pareto set is that of all permitted plans, looked at one by one, for every choice of objectives."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import microbatch_sizes, straight
from ignite_scheduler.errors import InputError
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.build import assignment_of
from ignite_scheduler.planner.pareto.exact import exact_front
from ignite_scheduler.planner.pareto.front import covers, nondominated
from ignite_scheduler.planner.pareto.objectives import CRITERIA, Criterion, Figures, figures, losses
from ignite_scheduler.planner.setup import Setup, prepare
from planner_cases import problems

BUDGET = 10_000_000


def every_plan(setup: Setup) -> list[Figures]:
    """The figures of all straight pipelines that have links and fit."""
    problem = setup.problem
    size = len(problem.profile.layers)
    ids = sorted(device.id for device in problem.cluster.devices)
    found = []
    for family in setup.families:
        microbatches = microbatch_sizes(problem.job.batch.total, family.samples)
        for stages in range(1, min(size, len(ids)) + 1):
            for devices in permutations(ids, stages):
                for cuts in combinations(range(1, size), stages - 1):
                    split = tuple(b - a for a, b in pairwise((0, *cuts, size)))
                    try:
                        found.append(figures(problem, straight(split, devices, microbatches, family.schedule)))
                    except InputError:  # no link
                        continue
    return [one for one in found if one.headroom >= 0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    problem=problems(most_layers=5, most_devices=3, skips=True), asked=st.sets(st.sampled_from(CRITERIA), min_size=1)
)
def test_no_point_is_missing_and_none_is_beaten(problem: Problem, asked: set[Criterion]) -> None:
    criteria = tuple(name for name in CRITERIA if name in asked)
    setup = prepare(replace(problem, objective="time"))
    assert isinstance(setup, Setup)
    every = [losses(one, criteria) for one in every_plan(setup)]

    front = exact_front(setup, criteria, BUDGET)

    assert front.complete
    found = [losses(figures(problem, assignment_of(setup, *chosen)), criteria) for chosen in front.chosen]
    assert len(nondominated(found)) == len(found)
    wanted = sorted(every[place] for place in nondominated(every))
    assert len(wanted) == len(found)
    assert all(covers(a, b) and covers(b, a) for a, b in zip(wanted, sorted(found), strict=True))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_layers=6, most_devices=4, skips=True))
def test_both_ways_to_the_set_of_time_money_and_devices_agree(problem: Problem) -> None:
    setup = prepare(replace(problem, objective="time"))
    assert isinstance(setup, Setup)

    by_multiset = exact_front(setup, ("time", "money", "devices"), BUDGET)
    by_vectors = exact_front(setup, ("time", "money", "devices"), BUDGET, vectors=True)

    assert by_multiset.complete
    assert by_vectors.complete
    steps = [sorted(chosen.choice.value for chosen in front.chosen) for front in (by_multiset, by_vectors)]
    assert len(steps[0]) == len(steps[1])
    assert all(abs(a - b) <= 1e-9 * max(1.0, b) for a, b in zip(*steps, strict=True))
