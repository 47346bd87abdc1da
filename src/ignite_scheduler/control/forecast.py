"""Start and finish of every job, foretold by running the same controller ahead on a copy with ideal executors."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING

from ignite_scheduler.control import limits
from ignite_scheduler.control.admission import run_seconds
from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import Event, GangFinished, GangStopped, TimerFired
from ignite_scheduler.control.states import State

if TYPE_CHECKING:
    from ignite_scheduler.control.controller import Controller

_TIMER_LAST = 1
"""Among the events of one instant timers come last, so that a round sees all that happened in it."""


def forecast(controller: Controller, now: float) -> dict[str, tuple[float, float, float]]:
    """Job id → (start, earliest finish, latest finish), on the controller's clock.

    The late end comes from a second look ahead in which every gang runs at its candidate's pessimistic rate; without
    calibration the two are equal. Jobs that are not planned yet, whose devices do not exist, or that
    will be stopped at their ``max_time`` are left out.
    Executors are ideal: no failures, every plan keeps its rate, and nothing new arrives. The controller itself is not
    changed. Costs as much as simulating all unfinished jobs.
    """
    low = _look_ahead(controller, now, pessimistic=False)
    calibrated = any(
        candidate.rate_low < candidate.rate
        for record in controller.jobs.values()
        for candidate in (record.candidates or ())
    )
    high = _look_ahead(controller, now, pessimistic=True) if calibrated else low
    return {
        job_id: (start, finish, max(finish, high.get(job_id, (start, finish))[1]))
        for job_id, (start, finish) in low.items()
    }


class _IdealWorld:
    """Executors that do exactly what the candidates promise."""

    def __init__(self, controller: Controller, now: float, *, pessimistic: bool) -> None:
        self.controller = controller.copy(options=replace(controller.options, promises=False))
        self.pessimistic = pessimistic
        self.heap: list[tuple[float, int, int, Event]] = []
        self.serial = 0
        self.finish: dict[str, float] = {}
        for job_id, job in controller.ledger.running.items():
            record = controller.jobs[job_id]
            end = max(now, job.finish)
            if record.state is State.STOPPING:
                self.push(GangStopped(at=now, job_id=job_id, epoch=record.epoch, saved=record.saved))
                continue
            if pessimistic:
                end = now + (end - now) * job.option.candidate.rate / job.option.candidate.rate_low
            self.push(GangFinished(at=end, job_id=job_id, epoch=record.epoch))
            limit = limits.timer(record, job.started)
            if limit is not None:
                self.push(TimerFired(at=max(now, limit.at), timer_id=limit.timer_id))
        self.push(TimerFired(at=now, timer_id="look-ahead"))  # changes nothing, but lets the copy ask for its round

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
                rate = command.candidate.rate_low if self.pessimistic else command.candidate.rate
                end = at + run_seconds(spec, spec.work - command.saved, rate)
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
        rate = gang.candidate.rate_low if self.pessimistic else gang.candidate.rate
        left = (self.controller.ledger.running[job_id].finish - at) * rate
        return min(record.spec.work, max(record.saved, record.spec.work - left))


def _look_ahead(controller: Controller, now: float, *, pessimistic: bool) -> dict[str, tuple[float, float]]:
    world = _IdealWorld(controller, now, pessimistic=pessimistic)
    world.run()
    return {
        job_id: (record.first_started, record.ended_at)
        for job_id, record in world.controller.jobs.items()
        if record.state is State.FINISHED
        and controller.jobs[job_id].state is not State.FINISHED
        and record.first_started is not None
        and record.ended_at is not None
    }
