"""The search finds what looking at every choice finds, and its plans take what an independent simulation says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem, exhaustive, plan
from planner_cases import problems, simulated_step

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def same_answer(problem: Problem) -> None:
    found, reference = plan(problem), exhaustive(problem)
    if isinstance(reference, Infeasible):
        assert isinstance(found, Infeasible)
        assert found.code == reference.code
        assert found.shortfall == pytest.approx(reference.shortfall, rel=1e-12)
        return
    assert not isinstance(found, Infeasible), found
    assert found.bound.optimal
    values = {
        "time": (found.predicted.step, reference.predicted.step),
        "cost": (found.predicted.cost, reference.predicted.cost),
        "energy": (found.predicted.energy, reference.predicted.energy),
    }
    ours, best = values[problem.objective]
    assert ours == pytest.approx(best, rel=1e-9, abs=2e-9)
    assert all(stage.fullest.memory <= stage.fullest.memory_limit for stage in found.stages)
    assert found.device_ids == reference.device_ids
    assert found.bound.step <= found.predicted.step


@FEW
@given(problem=problems(most_layers=7, most_devices=4))
def test_chain_equals_every_choice_and_an_independent_simulation(problem: Problem) -> None:
    same_answer(problem)
    found = plan(problem)
    if not isinstance(found, Infeasible):
        assert found.predicted.step == pytest.approx(simulated_step(problem, found), rel=1e-9, abs=1e-9)


@FEW
@given(problem=problems(most_layers=6, most_devices=3, skips=True))
def test_skips_ties_updates_and_overhead_equal_every_choice(problem: Problem) -> None:
    same_answer(problem)


@FEW
@given(data=st.data(), objective=st.sampled_from(["cost", "energy"]))
def test_money_and_energy_equal_every_choice(data: st.DataObject, objective: str) -> None:
    same_answer(data.draw(problems(most_layers=5, most_devices=3, objective=objective)))


@FEW
@given(problem=problems(most_layers=6, most_devices=4), work=st.sampled_from([1, 20, 200, 2_000]))
def test_bounds_of_a_search_that_was_stopped_hold(problem: Problem, work: int) -> None:
    found, reference = plan(replace(problem, work=work)), exhaustive(problem)
    if isinstance(reference, Infeasible):
        assert isinstance(found, Infeasible)
        return
    assert not isinstance(found, Infeasible), found
    best = reference.predicted.step
    assert found.bound.step <= best * (1 + 1e-9) + 2e-9
    assert found.predicted.step >= best * (1 - 1e-9) - 2e-9
    if found.bound.optimal:
        assert found.predicted.step == pytest.approx(best, rel=1e-9, abs=2e-9)
