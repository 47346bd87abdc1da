"""What the controller keeps of each job: frozen records in dicts that the controller owns."""

from __future__ import annotations

from dataclasses import dataclass

from ignite_scheduler.control.commands import StopCause
from ignite_scheduler.control.events import JobSubmitted
from ignite_scheduler.control.states import State
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.view import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The devices of one attempt.

    ``commanded_at`` is the time of the last command about it (start or stop), ``heard_at`` that of its last sign of
    life (at first: of its start), ``lost`` are those of its devices that went away under it (its processes there are
    dead, even if the device is back), ``missing_since`` when a listing of what really runs first lacked it.
    """

    candidate: Candidate
    device_ids: tuple[str, ...]
    commanded_at: float
    heard_at: float
    missing_since: float | None = None
    lost: frozenset[str] = frozenset()
    stop_cause: StopCause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job.

    ``spec`` is the submission. ``planning`` counts the plannings asked for, ``answered`` is the last one that was
    answered, ``planned_version`` is the version of the device set that the last one was asked for. ``epoch`` is the
    number of its last gang (0 before the first), ``gang`` that gang while it holds devices. ``done`` and ``saved``
    are units of work: finished, and finished in a whole checkpoint. ``held_for`` are the seconds for which its ended
    gangs held devices, as far as they were seen to live. ``failures`` counts attempts that failed by the job's own
    fault. ``reason`` says why it waits or how it ended; ``rejection`` why it was never admitted.
    """

    spec: JobSubmitted
    serial: int
    state: State = State.SUBMITTED
    planning: int = 0
    answered: int = 0
    planned_version: int = 0
    candidates: tuple[Candidate, ...] = ()
    epoch: int = 0
    gang: Gang | None = None
    done: float = 0.0
    saved: float = 0.0
    held_for: float = 0.0
    failures: int = 0
    preemptions: int = 0
    queued_at: float | None = None
    first_started: float | None = None
    ended_at: float | None = None
    reason: Reason | None = None
    rejection: Infeasible | None = None

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self.spec.job_id

    @property
    def held(self) -> Gang:
        """The gang that holds devices; InvariantError if there is none."""
        if self.gang is None:
            raise InvariantError(f"job {self.job_id!r} ({self.state}) holds no devices")
        return self.gang

    @property
    def remaining(self) -> float:
        """Units of work that a new gang would have to do."""
        return self.spec.work - self.saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was foretold at ``at``: start, and finish as a range. Times are on the controller's clock."""

    at: float
    start: float
    finish_low: float
    finish_high: float
