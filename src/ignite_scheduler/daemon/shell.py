"""The live loop: waits for what happens, feeds it to the pump one event at a time, and carries the commands out.

Theory of operation
-------------------
Everything that reaches the core comes through one task, in rounds: (1) wait for the inbox, at most ``poll_every``
seconds; (2) feed what came in (submissions, timers, finished plans); (3) ask the executor for reports and feed them;
(4) now and then feed a full listing of what runs. The listing is taken right before it is fed and after the reports:
an older one would call a gang lost that was started in between. Planning runs elsewhere and answers through the
inbox, so a long search never keeps a report waiting.

An interrupt asks every gang to save and stop, starts nothing any more, and ends the loop when the last gang is gone;
a second one kills what is left and feeds nothing further: to the journal that is a crash, and the way back is the
same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, assert_never

from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    ClusterObserved,
    Event,
    JobPlanned,
    JobRefused,
    JobSubmitted,
    TimerFired,
)
from ignite_scheduler.daemon.ports import Clock, Core, Executor, Journal, Planning
from ignite_scheduler.daemon.pump import Observer, Pump, Recovery
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Infeasible

Outcome = Literal["settled", "stalled", "interrupted", "killed"]
"""How a run ended: all jobs are settled; some are left but nothing can happen any more; saved and stopped; killed."""

POLL_EVERY: Final = 0.05
"""Seconds between two looks at the executor: small against a start-up, large against the look itself."""

OBSERVE_EVERY: Final = 5.0
"""Seconds between two full listings."""


class Shell:
    """Drives the core through the pump in real time.

    Parameters
    ----------
    core, journal, executor, planning, clock
        The ports.
    settled
        Whether the core knows of no job that could still run; asked after each round.
    observer
        Told of each record.
    recovery
        What a journal that is continued leaves to do; None for a new run.
    poll_every, observe_every
        Seconds.
    """

    def __init__(
        self,
        *,
        core: Core,
        journal: Journal,
        executor: Executor,
        planning: Planning,
        clock: Clock,
        settled: Callable[[], bool],
        observer: Observer | None = None,
        recovery: Recovery | None = None,
        poll_every: float = POLL_EVERY,
        observe_every: float = OBSERVE_EVERY,
    ) -> None:
        self._executor = executor
        self._planning = planning
        self._clock = clock
        self._settled = settled
        self._recovery = recovery
        self._poll_every = poll_every
        self._observe_every = observe_every
        self._pump = Pump(
            core=core,
            journal=journal,
            dispatch=self._dispatch,
            observer=observer,
            last_at=0.0 if recovery is None else recovery.last_at,
        )
        self._inbox: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self._arrivals: deque[JobSubmitted] = deque()  # soonest first; equal times in the order given
        self._next_arrival: asyncio.TimerHandle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._searches: set[asyncio.Task[None]] = set()
        self._interrupts = 0

    async def run(self, arrivals: Sequence[JobSubmitted] = ()) -> Outcome:
        """Feed ``arrivals`` at their times and all that follows from them, until nothing is left to do.

        Notes
        -----
        Whatever ends it, also an exception, no gang, timer or search is left behind.
        """
        try:
            self._resume()
            self._arrivals.extend(sorted(arrivals, key=lambda event: event.at))
            self._arrive()
            return await self._rounds()
        finally:
            self._withdraw()
            self._executor.close()

    def interrupt(self) -> None:
        """The first time: save, stop and end; the second time: kill and end. For a signal handler of the loop."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._withdraw()
            for job_id, epoch in self._executor.running():
                self._executor.stop(StopGang(job_id=job_id, epoch=epoch, save=True, cause="preempted"))
        else:
            self._executor.kill()

    async def _rounds(self) -> Outcome:
        next_listing = self._clock.now() + self._observe_every
        while True:
            for event in await self._arrived():
                self._feed(event)
            for report in self._executor.poll():
                self._feed(report)
            if self._interrupts > 1:
                return "killed"
            if self._interrupts == 1:
                if not self._executor.running():
                    return "interrupted"
            elif self._quiet():
                return "settled" if self._settled() else "stalled"
            if self._clock.now() >= next_listing:
                self._observe()
                next_listing = self._clock.now() + self._observe_every

    async def _arrived(self) -> list[Event | Exception]:
        """What came in until now; waits for a first one, but not longer than until the next look at the executor."""
        try:
            async with asyncio.timeout(self._poll_every):  # wait_for would swallow a cancellation if something is there
                found = [await self._inbox.get()]
        except TimeoutError:
            return []
        while not self._inbox.empty():
            found.append(self._inbox.get_nowait())
        return found

    def _feed(self, event: Event | Exception) -> None:
        if isinstance(event, Exception):
            raise event
        if self._interrupts < 2:
            self._pump.feed(event)

    def _observe(self) -> None:
        self._feed(ClusterObserved(at=self._clock.now(), gangs=self._executor.running()))

    def _quiet(self) -> bool:
        """Whether nothing is under way that could still bring an event of its own accord.

        With every job settled a timer of the core is no reason to wait for.
        """
        if self._arrivals or self._searches or not self._inbox.empty() or self._executor.running():
            return False
        return self._settled() or not self._timers

    def _resume(self) -> None:
        if self._recovery is None:
            return
        for timer in self._recovery.timers:
            self._dispatch(timer)
        for plan in self._recovery.plans:
            self._dispatch(plan)
        self._observe()

    def _arrive(self) -> None:
        """Hand in the submissions that are due and wait for the next one."""
        now = self._clock.now()
        while self._arrivals and self._arrivals[0].at <= now:
            self._inbox.put_nowait(replace(self._arrivals.popleft(), at=now))
        if self._arrivals:
            self._next_arrival = self._later(self._arrivals[0].at, self._arrive)

    def _later(self, at: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, at - self._clock.now()), action)

    def _withdraw(self) -> None:
        """Call off what has not happened yet: arrivals, timers, searches. The journal still knows of the last two."""
        for handle in (self._next_arrival, *self._timers.values()):
            if handle is not None:
                handle.cancel()
        for task in self._searches:
            task.cancel()
        self._arrivals.clear()
        self._timers.clear()

    def _dispatch(self, command: Command) -> None:
        if self._interrupts and not isinstance(command, StopGang):
            return  # as if the crash had come before it; resuming makes up for it
        match command:
            case StartGang():
                self._executor.start(command)
            case StopGang():
                self._executor.stop(command)
            case SetTimer():
                self._set_timer(command)
            case PlanJob():
                task = asyncio.get_running_loop().create_task(self._search(command))
                self._searches.add(task)
                task.add_done_callback(self._searches.discard)
            case _:
                assert_never(command)

    def _set_timer(self, command: SetTimer) -> None:
        earlier = self._timers.pop(command.timer_id, None)
        if earlier is not None:
            earlier.cancel()
        self._timers[command.timer_id] = self._later(command.at, lambda: self._fire(command))

    def _fire(self, command: SetTimer) -> None:
        del self._timers[command.timer_id]
        at = max(command.at, self._clock.now())  # the loop may call a hair early; the core takes that for a stray timer
        self._inbox.put_nowait(TimerFired(at=at, timer_id=command.timer_id))

    async def _search(self, command: PlanJob) -> None:
        try:
            answer = await self._planning.candidates(command)
        except Exception as error:  # carried over to the loop, which ends with it
            self._inbox.put_nowait(error)
            return
        at, job_id, planning = self._clock.now(), command.job_id, command.planning
        if isinstance(answer, Infeasible):
            self._inbox.put_nowait(JobRefused(at=at, job_id=job_id, planning=planning, reason=answer))
        elif answer:
            self._inbox.put_nowait(JobPlanned(at=at, job_id=job_id, planning=planning, candidates=answer))
        else:
            self._inbox.put_nowait(InvariantError(f"expected candidates or a reason for job {job_id!r}, found neither"))
