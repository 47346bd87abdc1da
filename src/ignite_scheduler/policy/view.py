"""What a policy sees and what it answers.

The controller owns the lists behind a :class:`View` and keeps them between decisions (a frozen copy for each event
would cost hundreds of times more); a policy only reads them. A policy that keeps something from one decision to the
next takes it as ``view.memory`` and returns it in its :class:`Decision`; policies themselves are frozen.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ignite_scheduler.cost.outlook import num_pauses
from ignite_scheduler.model import QueueTerms
from ignite_scheduler.policy.candidates import Candidate

Needs = tuple[tuple[str, int], ...]
"""(pool id, devices) pairs over fine pools *and* kind pools: all counters that starting lowers, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job is not running: a word for machines and a sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate as seen by a queued job: ``seconds`` from start to finish with the work that is left.

    ``margin`` are the seconds by which it may take longer, at the late end of its range: deadlines count them, nothing
    else does. 0 without calibration.
    """

    candidate: Candidate
    needs: Needs
    seconds: float
    margin: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that waits for devices.

    ``options`` are the fastest first (equal: fewer devices first), only those that the present devices can hold at
    all; never empty. ``queued_at`` is when it last began to wait, ``serial`` the order of submission.
    """

    job_id: str
    serial: int
    submitted: float
    queued_at: float
    terms: QueueTerms
    options: tuple[Option, ...]

    @property
    def key(self) -> tuple[float, float, int]:
        """Place in the queue: higher priority, then earlier submission, then order of submission."""
        return (-self.terms.priority, self.submitted, self.serial)

    @property
    def deadline_at(self) -> float:
        """Time by which it should be finished; infinity without a deadline."""
        return math.inf if self.terms.deadline is None else self.submitted + self.terms.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that holds devices; ``end`` is when it is expected to give them back.

    ``finish`` is when all its work would be done: later than ``end`` where its max_time or a stop comes first.
    ``stoppable``: it may be preempted, and is not being stopped already.
    """

    job_id: str
    started: float
    end: float
    finish: float
    needs: Needs
    option: Option
    terms: QueueTerms
    stoppable: bool


class JobQueue:
    """Queued jobs in order of their keys: a sorted list, so that taking one out of n costs O(log n) comparisons."""

    __slots__ = ("_jobs", "_keys")

    def __init__(self) -> None:
        self._keys: list[tuple[float, float, int]] = []
        self._jobs: dict[int, QueuedJob] = {}

    def add(self, job: QueuedJob) -> None:
        """Put a job in at its place."""
        insort(self._keys, job.key)
        self._jobs[job.serial] = job

    def remove(self, job: QueuedJob) -> None:
        """Take a job out."""
        del self._keys[bisect_left(self._keys, job.key)]
        del self._jobs[job.serial]

    def copy(self) -> JobQueue:
        """An independent queue of the same jobs."""
        other = JobQueue()
        other._keys, other._jobs = self._keys.copy(), self._jobs.copy()
        return other

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[QueuedJob]:
        jobs = self._jobs
        return (jobs[key[2]] for key in self._keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state of the cluster at one instant, read only.

    ``free`` and ``capacity`` count devices by pool, fine and kind pools alike; ``num_free`` counts each free device
    once. ``releases`` are (expected end, job id) of everything that holds devices, soonest first.
    """

    now: float
    queue: JobQueue
    running: Mapping[str, RunningJob]
    releases: Sequence[tuple[float, str]]
    free: Mapping[str, int]
    capacity: Mapping[str, int]
    num_free: int
    num_devices: int
    memory: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Give the job the devices of one of its options."""

    job_id: str
    option: Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy wants.

    Parameters
    ----------
    starts
        Jobs to start now, all on devices that are free now.
    stops
        Ids of running jobs to checkpoint and put back into the queue.
    reasons
        Job id → why it does not start, for the jobs that the policy looked at one by one.
    rest
        Why the other queued jobs do not start.
    wake_at
        When the policy wants to be asked again even if nothing happens.
    gap
        Proven upper bound on the relative distance of a joint choice from its optimum; None where nothing is
        optimised.
    method
        How the choice was made, for people.
    memory
        Comes back as ``view.memory`` at the next decision.
    """

    starts: tuple[Start, ...] = ()
    stops: tuple[str, ...] = ()
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    rest: Reason | None = None
    wake_at: float | None = None
    gap: float | None = None
    method: str = ""
    memory: Any = None


class Policy(Protocol):
    """Who gets what. ``decide`` is pure: equal views give equal decisions."""

    @property
    def name(self) -> str:
        """The name under which users ask for it."""
        ...

    def decide(self, view: View) -> Decision:
        """What to start (and stop) now."""
        ...


def fits(needs: Needs, free: Mapping[str, int]) -> bool:
    """Whether all counters hold the demand."""
    for pool, count in needs:  # noqa: SIM110  a loop: this is the hottest test of every policy
        if free.get(pool, 0) < count:
            return False
    return True


def take(needs: Needs, free: dict[str, int]) -> None:
    """Lower the counters by the demand."""
    for pool, count in needs:
        free[pool] = free.get(pool, 0) - count


def give(needs: Needs, free: dict[str, int]) -> None:
    """Raise the counters by the demand."""
    for pool, count in needs:
        free[pool] = free.get(pool, 0) + count


def lacking(job: QueuedJob, free: Mapping[str, int]) -> Reason:
    """Why none of the job's options fits what is free: names the option that lacks the fewest devices."""
    option = min(job.options, key=lambda o: sum(max(0, n - free.get(p, 0)) for p, n in o.needs))
    parts = [f"{count} of {pool} ({free.get(pool, 0)} free)" for pool, count in option.candidate.demand]
    return Reason(code="busy", text=f"waits for devices: needs {' and '.join(parts)}")


def remaining_seconds(
    work: float, rate: float, *, startup: float, checkpoint_every: float | None, checkpoint_cost: float
) -> float:
    """Seconds from start to finish of ``work`` units at ``rate`` units per second.

    Start-up, then the work, then a pause for each whole checkpoint before the end (the last save is part of the
    work).

    >>> remaining_seconds(100, 2.0, startup=5, checkpoint_every=40, checkpoint_cost=1)
    57.0
    """
    return startup + work / rate + num_pauses(work, checkpoint_every) * checkpoint_cost
