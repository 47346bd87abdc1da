"""A calibration that charges nothing changes nothing, and what one charges planner and cost model see alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import evaluate
from ignite_scheduler.cost.calibration import ANY_KIND, Calibration, KindCalibration, calibrated
from ignite_scheduler.daemon.placement import choice_of
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem, exhaustive, plan
from ignite_scheduler.planner.problem import charged
from planner_cases import problems

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

kinds = st.builds(
    KindCalibration,
    rate=st.sampled_from([0.5, 1.0, 1.25]),
    launch=st.sampled_from([-0.25, 0.0, 0.5, 1.0]),
)
calibrations = st.builds(
    Calibration,
    kinds=st.dictionaries(st.sampled_from([ANY_KIND, "own"]), kinds),
    message=st.sampled_from([0.0, 0.5]),
    update=st.sampled_from([1.0, 2.0]),
    step=st.sampled_from([0.0, 0.75]),
)


@FEW
@given(problem=problems(most_layers=6, most_devices=3, skips=True))
def test_the_calibration_that_charges_nothing_changes_nothing(problem: Problem) -> None:
    assert calibrated(problem.profile, problem.cluster, Calibration()) == (problem.profile, problem.cluster)


@FEW
@given(problem=problems(most_layers=6, most_devices=3, skips=True), calibration=calibrations)
def test_a_calibrated_plan_is_the_best_of_every_choice_and_what_the_cost_model_says(
    problem: Problem, calibration: Calibration
) -> None:
    told = charged(problem, calibration)
    found, reference = plan(told), exhaustive(told)
    if isinstance(reference, Infeasible):
        assert isinstance(found, Infeasible)
        return
    assert not isinstance(found, Infeasible), found
    assert found.bound.optimal
    assert found.predicted.step == pytest.approx(reference.predicted.step, rel=1e-9, abs=2e-9)
    assert found.device_ids == reference.device_ids
    again = evaluate(told.job, told.profile, told.cluster, choice_of(found, told.profile))
    assert found.predicted.step == again.predicted.step


@FEW
@given(problem=problems(most_layers=4, most_devices=3, skips=True), rate=st.sampled_from([0.5, 2.0]))
def test_what_takes_twice_as_long_everywhere_makes_steps_twice_as_long(problem: Problem, rate: float) -> None:
    """…with links and all; powers of two keep every sum exact."""
    links = tuple(
        replace(rule, latency=rule.latency * rate, bandwidth=rule.bandwidth / rate) for rule in problem.cluster.links
    )
    slower = replace(problem, cluster=replace(problem.cluster, links=links))
    calibration = Calibration(kinds={ANY_KIND: KindCalibration(rate=rate)}, update=rate)
    before, after = exhaustive(problem), exhaustive(charged(slower, calibration))
    if isinstance(before, Infeasible):
        assert isinstance(after, Infeasible)
        return
    assert not isinstance(after, Infeasible)
    assert after.predicted.step == before.predicted.step * rate
