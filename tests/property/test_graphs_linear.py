"""Chains over blocks of layers: exact where they cut, and a bound on all chains, wherever those cut."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_cases import branching_problems
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem, exhaustive
from ignite_scheduler.planner.graphs import linear
from ignite_scheduler.planner.graphs.contract import borders, contracted, loosened
from ignite_scheduler.planner.request import requested
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.solve import NOTHING, improve
from ignite_scheduler.planner.weighed import value_of_choice
from planner_cases import problems

FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
PLENTY = 1_000_000


def best_chain(problem: Problem) -> float | None:
    """The objective of the best straight chain, one step; None where there is none."""
    reference = exhaustive(problem)
    if isinstance(reference, Infeasible):
        return None
    found, steps = reference.predicted, problem.job.steps
    assert steps is not None
    value = {"time": found.step, "cost": found.cost, "energy": found.energy}[problem.objective]
    assert value is not None
    return value if problem.objective == "time" else value / steps


@FEW
@given(data=st.data(), objective=st.sampled_from(["time", "time", "cost", "energy"]), skips=st.booleans())
def test_no_chain_goes_below_the_best_of_the_loosened_blocks(data: st.DataObject, objective: str, skips: bool) -> None:
    problem = data.draw(problems(most_layers=7, most_devices=3, objective=objective, skips=skips))
    setup, best = prepare(problem), best_chain(problem)
    if best is None or not isinstance(setup, Setup):
        return
    count = data.draw(st.integers(1, 4))
    bound = float("inf")
    for family in setup.families:
        numbers = setup.numbers(family, setup.arrays(family))
        target = 2 * best + 1
        found, _, complete = improve(loosened(numbers, borders(numbers, count)), NOTHING, target, PLENTY)
        assert complete
        bound = min(bound, found.value)
    assert bound <= best * (1 + 1e-9) + 1e-9


@FEW
@given(problem=problems(most_layers=7, most_devices=3, skips=True))
def test_blocks_of_one_layer_are_the_chain_itself(problem: Problem) -> None:
    setup, best = prepare(problem), best_chain(problem)
    if best is None or not isinstance(setup, Setup):
        return
    found = float("inf")
    for family in setup.families:
        numbers = setup.numbers(family, setup.arrays(family))
        short = contracted(numbers, borders(numbers, numbers.num_layers))
        found = min(found, improve(short, NOTHING, 2 * best + 1, PLENTY, remember=False)[0].value)
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9)


@FEW
@given(problem=problems(most_layers=7, most_devices=3) | branching_problems(most_layers=6, most_devices=3))
def test_the_search_is_never_worse_than_the_best_chain_of_a_small_model(problem: Problem) -> None:
    request, best = requested(problem), best_chain(problem)
    if isinstance(request, Infeasible):
        return
    found = linear.search(problem, request, None)
    if best is None:  # another order of the layers may fit
        return
    assert found.value <= best * (1 + 1e-9) + 1e-9
    assert found.bound <= found.value
    assert found.best is not None
    assert value_of_choice(problem, found.best) == pytest.approx(found.value, rel=1e-9, abs=1e-9)
    held = [layer for stage in found.best.stages for layer in stage.layers]
    assert sorted(held) == list(range(len(problem.profile.layers)))


@FEW
@given(problem=problems(most_layers=7, most_devices=3, skips=True), count=st.integers(1, 8))
def test_borders_rise_from_the_first_layer_to_behind_the_last(problem: Problem, count: int) -> None:
    setup = prepare(problem)
    if not isinstance(setup, Setup):
        return
    family = setup.families[0]
    keep = borders(setup.numbers(family, setup.arrays(family)), count)
    assert keep[0] == 0
    assert keep[-1] == len(problem.profile.layers)
    assert (keep[1:] > keep[:-1]).all()
    assert len(keep) == 2 or keep[1] == 1
