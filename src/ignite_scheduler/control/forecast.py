"""Start and finish of every job, foretold by running the same controller ahead on a copy with ideal executors."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING

from ignite_scheduler.control import limits
from ignite_scheduler.control.admission import run_seconds, startup_seconds
from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import Event, GangFinished, GangStopped, TimerFired
from ignite_scheduler.control.records import JobRecord
from ignite_scheduler.control.states import State
from ignite_scheduler.policy.candidates import Candidate, RangeEnd

if TYPE_CHECKING:
    from ignite_scheduler.control.controller import Controller

_TIMER_LAST = 1
"""Among the events of one instant timers come last, so that a round sees all that happened in it."""


def forecast(controller: Controller, now: float) -> dict[str, tuple[float, float, float]]:
    """Job id → (start, earliest finish, latest finish), on the controller's clock.

    The start is what is expected. The ends of the finish come from two more looks ahead, in which every gang starts and
    runs at the early or the late end of its range; without calibration all are equal. Jobs that are not planned yet,
    whose devices do not exist, or that will be stopped at their ``max_time`` are left out.
    Executors are ideal: no failures, every plan keeps its rate, and nothing new arrives. The controller itself is not
    changed. Costs as much as simulating all unfinished jobs.
    """
    expected = early = late = _look_ahead(controller, now, "expected")
    if any(map(_is_ranged, controller.jobs.values())):
        early, late = _look_ahead(controller, now, "early"), _look_ahead(controller, now, "late")
    return {
        job_id: (
            start,
            min(finish, early.get(job_id, (start, finish))[1]),
            max(finish, late.get(job_id, (start, finish))[1]),
        )
        for job_id, (start, finish) in expected.items()
    }


def _is_ranged(record: JobRecord) -> bool:
    return record.spec.startup_range is not None or any(candidate.is_ranged for candidate in record.candidates)


class _IdealWorld:
    """Executors that do exactly what the candidates promise, at one end of their range."""

    def __init__(self, controller: Controller, now: float, pace: RangeEnd) -> None:
        self.controller = controller.copy(options=replace(controller.options, promises=False))
        self.pace = pace
        self.heap: list[tuple[float, int, int, Event]] = []
        self.serial = 0
        self.finish: dict[str, float] = {}
        for job_id, job in controller.ledger.running.items():
            record = controller.jobs[job_id]
            end = max(now, job.finish)
            if record.state is State.STOPPING:
                self.push(GangStopped(at=now, job_id=job_id, epoch=record.epoch, saved=record.saved))
                continue
            if pace != "expected":
                end = now + self._left(record, job.option.candidate, end - now, now)
            self.push(GangFinished(at=end, job_id=job_id, epoch=record.epoch))
            limit = limits.timer(record, job.started)
            if limit is not None:
                self.push(TimerFired(at=max(now, limit.at), timer_id=limit.timer_id))
        self.push(TimerFired(at=now, timer_id="look-ahead"))  # changes nothing, but lets the copy ask for its round

    def _left(self, record: JobRecord, candidate: Candidate, expected: float, now: float) -> float:
        """Seconds that a gang still needs at this end of its range, where ``expected`` ones are expected."""
        starting = [0.0, 0.0]
        if record.state is State.STARTING:
            gone = now - record.held.commanded_at
            starting = [
                max(0.0, startup_seconds(record.spec, record.remaining, end) - gone) for end in ("expected", self.pace)
            ]
        working = max(0.0, expected - starting[0])
        return starting[1] + working * candidate.rate / candidate.pace(self.pace)

    def push(self, event: Event) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (event.at, _TIMER_LAST * isinstance(event, TimerFired), self.serial, event))

    def run(self) -> None:
        while self.heap:
            event = heapq.heappop(self.heap)[3]
            for command in self.controller.handle(event):
                self.carry_out(command, event.at)

    def carry_out(self, command: Command, at: float) -> None:
        match command:
            case StartGang():
                spec = self.controller.jobs[command.job_id].spec
                rate = command.candidate.pace(self.pace)
                end = at + run_seconds(spec, spec.work - command.saved, rate, self.pace)
                self.push(GangFinished(at=end, job_id=command.job_id, epoch=command.epoch))
            case StopGang():
                saved = self._saved(command.job_id, at)
                self.push(GangStopped(at=at, job_id=command.job_id, epoch=command.epoch, saved=saved))
            case SetTimer():
                self.push(TimerFired(at=command.at, timer_id=command.timer_id))
            case PlanJob():
                pass  # the devices do not change in here: the candidates at hand are the latest

    def _saved(self, job_id: str, at: float) -> float:
        """Work that an ideal checkpoint holds when the gang is stopped at ``at``."""
        record = self.controller.jobs[job_id]
        gang = record.gang
        if gang is None:
            return record.saved
        rate = gang.candidate.pace(self.pace)
        left = (self.controller.ledger.running[job_id].finish - at) * rate
        return min(record.spec.work, max(record.saved, record.spec.work - left))


def _look_ahead(controller: Controller, now: float, pace: RangeEnd) -> dict[str, tuple[float, float]]:
    world = _IdealWorld(controller, now, pace)
    world.run()
    return {
        job_id: (record.first_started, record.ended_at)
        for job_id, record in world.controller.jobs.items()
        if record.state is State.FINISHED
        and controller.jobs[job_id].state is not State.FINISHED
        and record.first_started is not None
        and record.ended_at is not None
    }
