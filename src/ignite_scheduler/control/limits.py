"""How long a job may hold devices: the ``max_time`` of its terms, counted over all its attempts."""

from __future__ import annotations

import math
from typing import Final

from ignite_scheduler.control.commands import SetTimer
from ignite_scheduler.control.records import JobRecord
from ignite_scheduler.policy.view import Reason
from ignite_scheduler.units import format_duration

TIMER: Final = "max_time"

_ROUNDING: Final = 1e-9
"""Relative: a time that is used up but for rounding is used up."""


def timer(record: JobRecord, started: float) -> SetTimer | None:
    """The timer that ends the job's present gang, which got its devices at ``started``; None without a limit."""
    at = ends_by(record, started)
    if at == math.inf:
        return None
    return SetTimer(timer_id=f"{TIMER}/{record.epoch}/{record.job_id}", at=at)


def ends_by(record: JobRecord, started: float) -> float:
    """When the job's present gang, which got its devices at ``started``, must end at the latest; infinity if never."""
    limit = record.spec.terms.max_time
    return math.inf if limit is None else started + max(0.0, limit - record.held_for)


def gang_of(timer_id: str) -> tuple[str, int] | None:
    """(job id, epoch) of the gang that the timer ends; None if it is another kind of timer.

    >>> gang_of("max_time/2/a/b")
    ('a/b', 2)
    """
    kind, _, rest = timer_id.partition("/")
    epoch, _, job_id = rest.partition("/")
    return (job_id, int(epoch)) if kind == TIMER else None


def is_used_up(record: JobRecord, held_for: float) -> bool:
    """Whether a job that held devices for so many seconds has had its time."""
    limit = record.spec.terms.max_time
    return limit is not None and held_for >= limit * (1 - _ROUNDING)


def used_up(record: JobRecord, saved: float) -> Reason:
    """Why a job ends that had its time, with ``saved`` units of its work in a checkpoint."""
    limit = format_duration(record.spec.terms.max_time or 0.0)
    return Reason(
        code="max_time",
        text=f"stopped at its max_time of {limit} with {saved:g} of {record.spec.work:g} units of work saved",
    )
