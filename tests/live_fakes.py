"""Ports of the daemon in memory, a small core, and an event loop whose time jumps: live tests without waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    ClusterObserved,
    Event,
    GangFailed,
    GangFinished,
    GangProgressed,
    GangStarted,
    GangStopped,
    JobPlanned,
    JobRefused,
    JobSubmitted,
    TimerFired,
)
from ignite_scheduler.daemon.ports import Clock, GangReport, Record
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Infeasible, QueueTerms
from ignite_scheduler.policy.candidates import Candidate


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for time to pass, lets it have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on simulated time: a day of timers passes at once."""

    def __init__(self) -> None:
        self.selector = _JumpingSelector()
        super().__init__(self.selector)
        # a timer that is due within the clock's resolution is due: rounding must not make the loop spin
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.selector.now


@dataclass
class HandClock:
    """A clock that stands where it was put."""

    time: float = 0.0

    def now(self) -> float:
        return self.time


class LoopClock:
    """The time of the running loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class MemoryJournal:
    """A journal in a list; lost with the process, otherwise like any other."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._commands: dict[int, tuple[Command, ...]] = {}

    def append_event(self, event: Event) -> int:
        self._events.append(event)
        return len(self._events)

    def append_commands(self, sequence: int, commands: Sequence[Command]) -> None:
        if not 1 <= sequence <= len(self._events) or sequence in self._commands:
            raise InvariantError(f"event {sequence} is unknown or already decided")
        self._commands[sequence] = tuple(commands)

    def records(self) -> Iterator[Record]:
        for sequence, event in enumerate(self._events, start=1):
            yield Record(sequence=sequence, event=event, commands=self._commands.get(sequence))

    def close(self) -> None:
        pass


@dataclass
class _Run:
    command: StartGang
    since: float
    startup: float
    work: float
    reported: float
    started: bool = False
    stopping: StopGang | None = None
    failure: str | None = None


@dataclass
class MemoryExecutor:
    """Gangs that are arithmetic: after ``startup`` seconds they work at their candidate's rate, saved as it is done."""

    clock: Clock
    work: dict[str, float]
    startup: float = 0.0
    starts: list[tuple[str, int]] = field(default_factory=list)
    _gangs: dict[str, _Run] = field(default_factory=dict)
    _late: list[GangReport] = field(default_factory=list)

    def start(self, command: StartGang) -> None:
        present = self._gangs.get(command.job_id)
        if present is not None:
            if present.command.epoch >= command.epoch:
                return
            self._late.append(self._ended(present, "a newer attempt takes over"))
        self.starts.append((command.job_id, command.epoch))
        work = self.work[command.job_id]
        self._gangs[command.job_id] = _Run(command, self.clock.now(), self.startup, work, command.saved)

    def stop(self, command: StopGang) -> None:
        gang = self._gangs.get(command.job_id)
        if gang is not None and gang.command.epoch == command.epoch:
            gang.stopping = command

    def fail(self, job_id: str, reason: str) -> None:
        """Let the world strike."""
        self._gangs[job_id].failure = reason

    def kill(self) -> None:
        for gang in self._gangs.values():
            gang.failure = "killed"

    def poll(self) -> tuple[GangReport, ...]:
        reports, self._late = self._late, []
        for gang in list(self._gangs.values()):
            reports.extend(self._reports(gang))
        return tuple(reports)

    def _reports(self, gang: _Run) -> Iterator[GangReport]:
        now, job_id, epoch = self.clock.now(), gang.command.job_id, gang.command.epoch
        if gang.failure is not None:
            del self._gangs[job_id]
            yield self._ended(gang, gang.failure)
            return
        begin = gang.since + gang.startup
        if now >= begin and not gang.started:
            gang.started = True
            yield GangStarted(at=begin, job_id=job_id, epoch=epoch)
        if gang.started:
            rate = gang.command.candidate.rate
            done = min(gang.work, gang.command.saved + float(int(max(0.0, now - begin) * rate)))
            if done > gang.reported:
                gang.reported = done
                yield GangProgressed(at=now, job_id=job_id, epoch=epoch, done=done, saved=done, rate=rate)
            if done >= gang.work:
                del self._gangs[job_id]
                yield GangFinished(at=now, job_id=job_id, epoch=epoch)
                return
        if gang.stopping is not None:
            del self._gangs[job_id]
            saved = gang.reported if gang.stopping.save else gang.command.saved
            yield GangStopped(at=now, job_id=job_id, epoch=epoch, saved=saved)

    def _ended(self, gang: _Run, reason: str) -> GangFailed:
        command = gang.command
        return GangFailed(
            at=self.clock.now(), job_id=command.job_id, epoch=command.epoch, saved=gang.reported, reason=reason
        )

    def running(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((job_id, gang.command.epoch) for job_id, gang in self._gangs.items()))

    def close(self) -> None:
        self._gangs.clear()


@dataclass
class MemoryPlanning:
    """Answers after ``delay`` seconds what the function says."""

    answer: Callable[[PlanJob], tuple[Candidate, ...] | Infeasible]
    delay: float = 0.0

    async def candidates(self, command: PlanJob) -> tuple[Candidate, ...] | Infeasible:
        await asyncio.sleep(self.delay)
        return self.answer(command)


class OneByOne:
    """The smallest core worth driving: plans each job at once and runs one job after another until it is done."""

    def __init__(self, device_ids: tuple[str, ...] = ("n/d-0",)) -> None:
        self._device_ids = device_ids
        self._queue: list[tuple[str, Candidate, float]] = []
        self._current: tuple[str, int, Candidate, float] | None = None
        self._epochs: dict[str, int] = {}
        self.open: set[str] = set()
        self.seen: list[Event] = []

    def settled(self) -> bool:
        return not self.open

    def handle(self, event: Event) -> tuple[Command, ...]:
        self.seen.append(event)
        match event:
            case JobSubmitted(job_id=job_id):
                self.open.add(job_id)
                return (PlanJob(job_id=job_id, planning=1, device_ids=self._device_ids),)
            case JobPlanned(job_id=job_id, candidates=candidates):
                self._queue.append((job_id, candidates[0], 0.0))
                return (*self._next(), SetTimer(timer_id="tick", at=event.at + 1000.0))
            case JobRefused(job_id=job_id):
                self.open.discard(job_id)
            case GangProgressed(epoch=epoch, saved=saved) if self._is_current(event.job_id, epoch):
                job_id, epoch, candidate, _ = self._the_current()
                self._current = (job_id, epoch, candidate, saved)
            case GangFinished(job_id=job_id, epoch=epoch) if self._is_current(job_id, epoch):
                self.open.discard(job_id)
                self._current = None
                return self._next()
            case GangStopped(saved=saved) | GangFailed(saved=saved) if self._is_current(event.job_id, event.epoch):
                return self._again(saved)
            case ClusterObserved(gangs=gangs) if self._current and self._current[:2] not in gangs:
                return self._again(self._current[3])
            case TimerFired():
                pass
        return ()

    def _the_current(self) -> tuple[str, int, Candidate, float]:
        assert self._current is not None
        return self._current

    def _is_current(self, job_id: str, epoch: int) -> bool:
        return self._current is not None and self._current[:2] == (job_id, epoch)

    def _again(self, saved: float) -> tuple[Command, ...]:
        job_id, _, candidate, _ = self._the_current()
        self._current = None
        self._queue.insert(0, (job_id, candidate, saved))
        return self._next()

    def _next(self) -> tuple[Command, ...]:
        if self._current is not None or not self._queue:
            return ()
        job_id, candidate, saved = self._queue.pop(0)
        epoch = self._epochs[job_id] = self._epochs.get(job_id, 0) + 1
        self._current = (job_id, epoch, candidate, saved)
        return (StartGang(job_id=job_id, epoch=epoch, candidate=candidate, device_ids=self._device_ids, saved=saved),)


def table_candidate(rate: float = 1.0) -> Candidate:
    """A candidate of a throughput-table job on one device."""
    return Candidate(demand=(("n/d", 1),), rate=rate, rate_low=rate)


def submission(job_id: str, *, at: float = 0.0, work: float = 10.0, max_time: float | None = None) -> JobSubmitted:
    """A job with the ordinary terms."""
    return JobSubmitted(at=at, job_id=job_id, work=work, terms=QueueTerms(max_time=max_time))
