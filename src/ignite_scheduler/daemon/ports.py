"""What the daemon needs of the world, as protocols: a clock, a journal, an executor, somebody who plans.

The daemon is written against these alone. Adapters live in ``store`` and ``executors``; ``wiring`` brings them
together. Each port has one conformance suite under ``tests/conformance`` that every adapter passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ignite_scheduler.control.commands import Command, PlanJob, StartGang, StopGang
from ignite_scheduler.control.events import Event, GangFailed, GangFinished, GangProgressed, GangStarted, GangStopped
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy.candidates import Candidate

GangReport = GangStarted | GangProgressed | GangFinished | GangStopped | GangFailed
"""What an executor may say of a gang."""

GangEnding = GangFinished | GangStopped | GangFailed
"""Reports after which the gang is gone and its devices are free. Each attempt has exactly one."""


class Core(Protocol):
    """The decision: one event in, commands out, no clock and no I/O."""

    def handle(self, event: Event) -> Sequence[Command]:
        """Commands that answer ``event``."""
        ...


class Clock(Protocol):
    """Time of a run."""

    def now(self) -> float:
        """Seconds since the run's origin. Never falls, and runs on while no process of ours lives."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a journal: an event and what was decided. ``commands`` is None where a crash came between the two."""

    sequence: int
    event: Event
    commands: tuple[Command, ...] | None


class Journal(Protocol):
    """All events of a run, in the order in which they were handled. What was appended survives any later crash."""

    def append_event(self, event: Event) -> int:
        """Write ``event`` and return its sequence number (1, 2, …). It is durable when the call returns."""
        ...

    def append_commands(self, sequence: int, commands: Sequence[Command]) -> None:
        """Write what was decided on the event of that number; InvariantError if it is unknown or already decided."""
        ...

    def records(self) -> Iterator[Record]:
        """All records, oldest first."""
        ...

    def close(self) -> None:
        """Give the file or connection back. A second call does no harm."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How a gang does at present. ``step`` and ``remaining`` are in seconds, None while estimating.

    ``busy`` are the median seconds of computing in a step by rank, over ``num_busy`` steps after the warm-up.
    """

    epoch: int
    done: int
    total: int
    loss: float | None
    step: float | None
    remaining: float | None
    busy: tuple[float, ...] = ()
    num_busy: int = 0


class Executor(Protocol):
    """Runs gangs. All calls return quickly; none raises because of the world: what goes wrong there becomes a report.

    A gang is listed by :meth:`running` from :meth:`start` until :meth:`poll` has returned its ending, and never
    changes in between those calls: so a listing taken right after the reports were handled is consistent with them.
    """

    def start(self, command: StartGang) -> None:
        """Begin the gang. Starting the same attempt again does nothing; a newer attempt ends an older one first."""
        ...

    def stop(self, command: StopGang) -> None:
        """Ask the gang to end, after a checkpoint if the command says so. An unknown attempt is no matter."""
        ...

    def poll(self) -> tuple[GangReport, ...]:
        """Reports since the last call, oldest first, in the order of each gang's life."""
        ...

    def running(self) -> tuple[tuple[str, int], ...]:
        """(job id, epoch) of all gangs that hold devices, sorted."""
        ...

    def kill(self) -> None:
        """End all gangs at once, unsaved. Their endings are still reported by :meth:`poll`."""
        ...

    def close(self) -> None:
        """End whatever still runs and leave nothing behind."""
        ...


class Planning(Protocol):
    """Makes the candidates of a job."""

    async def candidates(self, command: PlanJob) -> tuple[Candidate, ...] | Infeasible:
        """Candidates over the devices that the command names, never an empty tuple, or why there are none."""
        ...
