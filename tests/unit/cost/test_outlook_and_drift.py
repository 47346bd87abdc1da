"""Ranges of predictions, and devices that are slower than them, by numbers that can be checked by eye."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.cost.calibration import Calibration, CheckpointTime, KindCalibration, Quantiles
from ignite_scheduler.cost.drift import LEAST_ACTIONS, LEAST_RANGE, UNCALIBRATED_RANGE, drifts, limit, live_drifts
from ignite_scheduler.cost.observation import Observation, Sample, StageObservation
from ignite_scheduler.cost.outlook import checkpoint_bytes, foretold, job_seconds
from live_jobs import small_cluster, small_job, small_plan, small_profile

JOB = small_job(steps=100, every=30)
PROFILE = small_profile()
PLAN = small_plan(JOB, small_cluster())
LEARNT = Calibration(
    kinds={"core": KindCalibration(num_stages=4, spread=0.08)},
    startup=Quantiles(low=1.0, middle=2.0, high=4.0),
    checkpoint=CheckpointTime(base=0.5, bandwidth=1e6),
    residual=Quantiles(low=0.9, middle=1.0, high=1.2),
    num_runs=3,
)


def stage(device: str = "lab/core-0", *, ratio: float = 1.0, count: int = 20, speed: float = 0.5) -> StageObservation:
    return StageObservation(
        device=device,
        kind="core",
        speed=speed,
        num_sharing=1,
        forward=(0.1,),
        backward=(0.2,),
        update=0.0,
        measured_forward=Sample(median=0.1 * ratio, count=count),
        measured_backward=Sample(median=0.2 * ratio, count=count),
        measured_update=None,
    )


def observed(*stages: StageObservation) -> Observation:
    return Observation(
        job="a",
        model="m",
        schedule="1f1b",
        microbatches=(4,),
        stages=stages,
        edges=(),
        planned_step=1.0,
        step=Sample(median=1.0),
    )


def test_a_step_has_the_range_of_the_residuals_and_the_job_that_of_all_its_parts() -> None:
    step = PLAN.predicted.step
    found = foretold(PLAN, JOB, PROFILE, LEARNT).predicted
    assert (found.step, found.step_low, found.step_high) == (step, 0.9 * step, 1.2 * step)
    # Saves after 30, 60 and 90 of 100 steps; 3 layers of 20 kB, twice more for what Adam keeps.
    saves = 3 * (0.5 + 3 * 20_000 * 3 / 1e6)
    assert found.duration == pytest.approx(2.0 + 100 * step + saves)
    assert found.duration_low == pytest.approx(1.0 + 90 * step + saves)
    assert found.duration_high == found.latest == pytest.approx(4.0 + 120 * step + saves)


def test_money_follows_the_length_that_is_expected() -> None:
    priced = replace(PLAN, predicted=replace(PLAN.predicted, cost=10.0))
    found = foretold(priced, JOB, PROFILE, LEARNT).predicted
    assert found.cost == pytest.approx(10.0 * (found.duration or 0) / (100 * PLAN.predicted.step))


def test_a_job_of_epochs_has_a_range_for_its_step_alone() -> None:
    job = replace(JOB, steps=None, epochs=2)
    assert job_seconds(job, PROFILE, Quantiles(low=1.0, middle=1.0, high=1.0), LEARNT) is None
    assert foretold(PLAN, job, PROFILE, LEARNT).predicted.step_high == 1.2 * PLAN.predicted.step


def test_nothing_learnt_changes_nothing_but_says_so() -> None:
    found = foretold(PLAN, JOB, PROFILE, Calibration()).predicted
    assert found.step_low == found.step == found.step_high
    assert found.duration_low == found.duration == found.duration_high


def test_a_checkpoint_has_weights_and_what_the_optimizer_keeps() -> None:
    assert checkpoint_bytes(JOB, PROFILE) == 3 * 20_000 * (1 + 2)
    sgd = replace(JOB, optimizer=replace(JOB.optimizer, name="sgd"))
    assert checkpoint_bytes(sgd, PROFILE) == 3 * 20_000


def test_the_range_of_a_device_is_that_of_its_kinds_runs() -> None:
    assert limit("core", LEARNT) == 1.0 + 2 * 0.08
    assert limit("core", Calibration(kinds={"core": KindCalibration(num_stages=4)})) == 1.0 + LEAST_RANGE
    assert limit("core", None) == limit("other", LEARNT) == 1.0 + UNCALIBRATED_RANGE


@pytest.mark.parametrize(("ratio", "slow"), [(1.15, False), (1.17, True), (0.5, False)])
def test_a_device_beyond_its_range_is_slow(ratio: float, slow: bool) -> None:
    [drift] = drifts([observed(stage(ratio=ratio))], LEARNT)
    assert (drift.device, drift.is_slow, drift.num_actions) == ("lab/core-0", slow, 40)
    assert drift.ratio == pytest.approx(ratio)


def test_few_actions_say_nothing() -> None:
    few = (LEAST_ACTIONS - 1) // 2
    [drift] = drifts([observed(stage(ratio=9.0, count=few))], None)
    assert not drift.is_slow


def test_devices_are_named_apart_and_a_single_bad_run_does_not_condemn_one() -> None:
    runs = [observed(stage("b", ratio=ratio), stage("a", ratio=2.0)) for ratio in (1.0, 1.02, 5.0)]
    slow = {drift.device: drift for drift in drifts(runs, None)}
    assert list(slow) == ["a", "b"]
    assert slow["a"].is_slow
    assert slow["b"].ratio == pytest.approx(1.02)
    assert "a computes 100 % longer than profiled" in str(slow["a"])


def test_the_calibration_is_charged_before_a_device_is_judged() -> None:
    learnt = Calibration(kinds={"core": KindCalibration(rate=1.5, launch=0.01, num_stages=2)})
    [drift] = drifts([observed(stage(ratio=1.5, speed=0.5))], learnt)
    assert drift.ratio == pytest.approx(0.45 / (0.45 + 2 * 0.01 / 0.5))


def test_stages_without_measurements_say_nothing() -> None:
    assert drifts([observed(replace(stage(), measured_forward=None))], None) == ()


@given(st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_live_and_afterwards_a_device_is_judged_alike(planned: float, ratio: float) -> None:
    [live] = live_drifts([("d", "core")], [planned], [planned * ratio], num_actions=[40], calibration=LEARNT)
    assert live.ratio == pytest.approx(ratio)
    assert live.limit == limit("core", LEARNT)
    assert live.is_slow == (live.ratio > live.limit)
