"""What the controller wants done. Commands are imperatives; carrying one out twice does no harm, since each names its
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ignite_scheduler.policy.candidates import Candidate

StopCause = Literal["preempted", "cancelled", "max_time", "lost"]
"""Why a gang that should run is told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """Make the job's candidates for these devices; answer with JobPlanned or JobRefused that repeat ``planning``.

    ``planning`` counts the plannings of this job, from 1: only the answer to the last one is taken, since the set of
    devices may have changed meanwhile.
    """

    job_id: str
    planning: int
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGang:
    """Start the job's processes on exactly these devices, all or none.

    ``device_ids`` are in the order in which the candidate's plan names its representatives (``plan.device_ids``); for
    a throughput-table job in the order of its demand. ``saved`` units of work are already done.
    """

    job_id: str
    epoch: int
    candidate: Candidate
    device_ids: tuple[str, ...]
    saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGang:
    """End the job's processes. ``save`` asks for a checkpoint first.

    Every stop is answered by exactly one of GangStopped, GangFailed and GangFinished (if the work was done first); a
    ``stale`` gang's answer is not waited for.
    """

    job_id: str
    epoch: int
    save: bool
    cause: StopCause | Literal["stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Send TimerFired at the given time, after the other events of that instant; a timer of the same id is replaced.

    ``at`` may be the time of the event that is being handled: such a timer closes the instant, so that a policy sees
    all that happened in it at once.
    """

    timer_id: str
    at: float


Command = PlanJob | StartGang | StopGang | SetTimer
