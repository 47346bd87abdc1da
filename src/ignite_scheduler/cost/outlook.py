"""How sure a prediction is: from a plan's one figure to the range that earlier runs teach."""

from __future__ import annotations

import math
from dataclasses import replace

from ignite_scheduler.cost.calibration import Calibration, Quantiles
from ignite_scheduler.cost.memory import memory_factors, stage_parameters
from ignite_scheduler.model import Job, Plan, Profile

NOTHING = Quantiles(low=0.0, middle=0.0, high=0.0)
"""Seconds of what takes none."""


def foretold(plan: Plan, job: Job, profile: Profile, calibration: Calibration) -> Plan:
    """The plan with the ranges of its step and of its whole job.

    The plan's step must be that of calibrated documents. Step: times the quantiles of measured ÷ predicted. Whole job:
    start-up, steps and the pauses for checkpoints; its price follows its expected length.
    """
    predicted, residual = plan.predicted, calibration.residual
    step = Quantiles(low=predicted.step * residual.low, middle=predicted.step, high=predicted.step * residual.high)
    whole = job_seconds(job, profile, step, calibration)
    cost = predicted.cost
    if cost is not None and whole is not None and predicted.duration:
        cost *= whole.middle / predicted.duration
    ranged = replace(
        predicted,
        step_low=step.low,
        step_high=step.high,
        cost=cost,
        duration=None if whole is None else whole.middle,
        duration_low=None if whole is None else whole.low,
        duration_high=None if whole is None else whole.high,
    )
    return replace(plan, predicted=ranged)


def job_seconds(job: Job, profile: Profile, step: Quantiles, calibration: Calibration) -> Quantiles | None:
    """Seconds of the whole job, alone and undisturbed; None where its number of steps is not given.

    Parameters
    ----------
    step
        Seconds of a step.

    Notes
    -----
    As the scheduler reckons: start-up, work and :func:`num_pauses`.
    """
    if job.steps is None:
        return None
    saving = num_pauses(job.steps, job.checkpoint.every) * checkpoint_seconds(job, profile, calibration)
    startup = calibration.startup or NOTHING
    return Quantiles(
        low=startup.low + job.steps * step.low + saving,
        middle=startup.middle + job.steps * step.middle + saving,
        high=startup.high + job.steps * step.high + saving,
    )


def num_pauses(work: float, every: float | None) -> int:
    """Pauses in ``work`` units: one for each whole checkpoint before the end, the last save being part of the work.

    >>> num_pauses(100, 40), num_pauses(80, 40), num_pauses(80, None)
    (2, 1, 0)
    """
    return max(0, math.ceil(work / every) - 1) if every else 0


def checkpoint_seconds(job: Job, profile: Profile, calibration: Calibration) -> float:
    """Seconds of one checkpoint of the job; 0 where nothing was measured."""
    if calibration.checkpoint is None:
        return 0.0
    return calibration.checkpoint.seconds(checkpoint_bytes(job, profile))


def checkpoint_bytes(job: Job, profile: Profile) -> float:
    """Bytes of one checkpoint: the model's weights, those that are tied once, and what its optimizer keeps."""
    factors = memory_factors(job, profile)
    return stage_parameters(profile, 0, len(profile.layers)) * (factors.weights + factors.optimizer)
