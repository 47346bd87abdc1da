"""What can happen, seen from the controller. Each event carries its own time: the controller reads no clock.

Events are past participles. ``epoch`` is the attempt number of a gang, from 1; an answer about an old epoch is late
and does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from ignite_scheduler.model import Device, Infeasible, QueueTerms
from ignite_scheduler.policy.candidates import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A user handed over a job of ``work`` units (training steps, or the throughput table's units)."""

    at: float
    job_id: str
    work: float
    terms: QueueTerms
    startup: float = 0.0
    """Seconds from start to the first unit of work, at each start."""
    startup_range: tuple[float, float] | None = None
    """Its early and its late end; None = not known how far it may be off."""
    restart: float = 0.0
    """Further seconds of a start that continues saved work (the checkpoint is loaded)."""
    checkpoint_every: float | None = None
    """Units of work between checkpoints; None = only on a requested stop."""
    checkpoint_cost: float = 0.0
    """Seconds that one checkpoint takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanned:
    """The answer to :class:`~ignite_scheduler.control.commands.PlanJob`: a Pareto set, never empty.

    ``planning`` repeats the command's number; an answer to an older planning does no harm.
    """

    at: float
    job_id: str
    planning: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRefused:
    """The job fits no permitted set of devices, whatever is free.

    The reason's code tells whether devices that are out of service might mend that:
    :data:`~ignite_scheduler.control.admission.MENDABLE`.
    """

    at: float
    job_id: str
    planning: int
    reason: Infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A user takes a job back."""

    at: float
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStarted:
    """All processes of the gang are up and the first unit of work begins."""

    at: float
    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProgressed:
    """``done`` units are finished in all epochs together; ``saved`` of them are in a whole checkpoint."""

    at: float
    job_id: str
    epoch: int
    done: float
    saved: float
    rate: float | None = None
    """Measured units per second over the last ones; None while estimating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFinished:
    """All the job's work is done and saved; its devices are free."""

    at: float
    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStopped:
    """The gang ended because it was told to; ``saved`` units survive."""

    at: float
    job_id: str
    epoch: int
    saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFailed:
    """The gang died. ``device`` names the device at fault where the world is to blame, None where the job is."""

    at: float
    job_id: str
    epoch: int
    saved: float
    reason: str
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost:
    """A node and its devices are gone; gangs on it are dead."""

    at: float
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined:
    """A node is (back) in the cluster with these devices."""

    at: float
    node: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that the controller set has run out."""

    at: float
    timer_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObserved:
    """A full listing of what really runs: (job id, epoch) pairs."""

    at: float
    gangs: tuple[tuple[str, int], ...]


Event = (
    JobSubmitted
    | JobPlanned
    | JobRefused
    | CancelRequested
    | GangStarted
    | GangProgressed
    | GangFinished
    | GangStopped
    | GangFailed
    | NodeLost
    | NodeJoined
    | TimerFired
    | ClusterObserved
)
