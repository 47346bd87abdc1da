"""What becomes of jobs and their gangs: the answers to all events that speak of one job.

Every handler takes the event, changes the books and adds commands; it drops what is late, repeated or about somebody
unknown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ignite_scheduler.control import limits
from ignite_scheduler.control.admission import MENDABLE, affordable, refusal, startup_seconds
from ignite_scheduler.control.commands import Command, PlanJob, StopCause, StopGang
from ignite_scheduler.control.events import (
    CancelRequested,
    GangFailed,
    GangFinished,
    GangProgressed,
    GangStarted,
    GangStopped,
    JobPlanned,
    JobRefused,
    JobSubmitted,
)
from ignite_scheduler.control.ledger import Ledger
from ignite_scheduler.control.options import Options
from ignite_scheduler.control.records import JobRecord
from ignite_scheduler.control.states import FINAL, HOLDING, State
from ignite_scheduler.model import Cluster, Infeasible
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.view import Reason


class Lifecycle:
    """Jobs from submission to their end.

    ``commands`` gathers what the event that is being handled calls for; ``is_dirty`` says that a job may be able to
    start; ``unpromised`` are jobs whose start and finish have yet to be foretold.
    """

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self.options = options
        self.ledger = Ledger(cluster)
        self.commands: list[Command] = []
        self.is_dirty = False
        self.unpromised: list[str] = []
        self.faults: Counter[str] = Counter()

    def copy(self, options: Options) -> Lifecycle:
        """An independent one in the same state, with nothing promised and no command pending."""
        other = object.__new__(Lifecycle)
        other.options = options
        other.ledger = self.ledger.copy()
        other.commands = []
        other.is_dirty = True
        other.unpromised = []
        other.faults = self.faults.copy()
        return other

    # -- submission and planning --------------------------------------------------------------------------------------

    def job_submitted(self, event: JobSubmitted) -> None:
        """Open the books of a new job and ask for its candidates."""
        if event.job_id not in self.ledger.jobs:  # a repeated submission is the same job
            self._ask_for_plan(self.ledger.add(event))

    def plan(self, record: JobRecord) -> None:
        """Ask for candidates on the devices that are in service now."""
        version = self.ledger.inventory.version
        self._ask_for_plan(self.ledger.put(record, planning=record.planning + 1, planned_version=version))

    def _ask_for_plan(self, record: JobRecord) -> None:
        device_ids = self.ledger.inventory.present()
        self.commands.append(PlanJob(job_id=record.job_id, planning=record.planning, device_ids=device_ids))

    def _answered(self, event: JobPlanned | JobRefused) -> JobRecord | None:
        """The job's record if this is the first answer to its last planning."""
        record = self.ledger.jobs.get(event.job_id)
        if record is None or event.planning != record.planning or record.answered == event.planning:
            return None
        return None if record.state in FINAL else record

    def job_planned(self, event: JobPlanned) -> None:
        """Take the candidates: admit a new job, or reckon a waiting one anew."""
        record = self._answered(event)
        if record is None:
            return
        known = tuple(each for each in event.candidates if self.ledger.inventory.knows(each))
        candidates = affordable(record.spec, known)
        if record.state is State.SUBMITTED:
            record = self.ledger.put(record, state=State.PLANNED, answered=event.planning)
            self._admit(record, candidates, event.at, refusal(record.spec, known, event.at))
        elif record.state in (State.QUEUED, State.WAITING):
            self.ledger.requeue(record, candidates=candidates, answered=event.planning)
            self.is_dirty = True
        else:
            self.ledger.put(record, candidates=candidates, answered=event.planning)

    def _admit(
        self, record: JobRecord, candidates: tuple[Candidate, ...], at: float, refused: Infeasible | None
    ) -> None:
        if refused is not None:
            self._end(record, State.FAILED, at, Reason(code=refused.code, text=refused.text), rejection=refused)
            return
        record = self.ledger.enqueue(record, at, candidates=candidates)
        self.is_dirty = True
        if self.options.promises and record.state is State.QUEUED:
            self.unpromised.append(record.job_id)

    def job_refused(self, event: JobRefused) -> None:
        """End a job that fits nowhere; let it wait if known devices are away and might mend that."""
        record = self._answered(event)
        if record is None:
            return
        reason = Reason(code=event.reason.code, text=event.reason.text)
        number = event.planning
        hopeless = event.reason.code not in MENDABLE
        if (record.state is State.SUBMITTED and not self.ledger.inventory.out) or (
            record.state in (State.SUBMITTED, State.WAITING) and hopeless
        ):
            self._end(record, State.FAILED, event.at, reason, rejection=event.reason, answered=number)
        elif record.state is State.SUBMITTED:
            self.ledger.enqueue(record, event.at, candidates=(), reason=reason, answered=number)
        elif record.state in (State.QUEUED, State.WAITING):
            self.ledger.requeue(record, candidates=(), reason=reason, answered=number)
        else:
            self.ledger.put(record, candidates=(), answered=number)

    # -- gangs --------------------------------------------------------------------------------------------------------

    def current(self, job_id: str, epoch: int) -> JobRecord | None:
        """The job's record if that epoch is the one that holds devices now."""
        record = self.ledger.jobs.get(job_id)
        return record if record is not None and record.epoch == epoch and record.state in HOLDING else None

    def gang_started(self, event: GangStarted) -> None:
        """The gang is up: its end can be told from now on."""
        record = self.current(event.job_id, event.epoch)
        if record is None or record.state is not State.STARTING:
            return
        gang = replace(record.held, heard_at=event.at, missing_since=None)
        self.ledger.put(record, state=State.RUNNING, gang=gang)
        job = self.ledger.running[event.job_id]
        self.ledger.expect_finish(
            record, event.at + job.option.seconds - startup_seconds(record.spec, record.remaining)
        )

    def gang_progressed(self, event: GangProgressed) -> None:
        """Note what is done and saved, and the end that follows from a measured rate."""
        record = self.current(event.job_id, event.epoch)
        if record is None:
            return
        work = record.spec.work
        saved = min(work, max(record.saved, event.saved))
        done = min(work, max(record.done, event.done, saved))
        record = self.ledger.put(record, done=done, saved=saved, gang=replace(record.held, heard_at=event.at))
        if event.rate and record.state is State.RUNNING:
            self.ledger.expect_finish(record, event.at + (work - record.done) / event.rate)

    def gang_finished(self, event: GangFinished) -> None:
        """The job is done."""
        record = self.current(event.job_id, event.epoch)
        if record is None:
            return
        for device_id in record.held.device_ids:
            self.faults.pop(device_id, None)
        held_for, work = self._held_for(record, event.at), record.spec.work
        self.ledger.vacate(record)
        self._end(record, State.FINISHED, event.at, None, done=work, saved=work, held_for=held_for)

    def gang_stopped(self, event: GangStopped) -> None:
        """The gang ended as it was told, or by itself."""
        record = self.current(event.job_id, event.epoch)
        if record is not None:
            self.ended(record, event.at, event.saved)

    def gang_failed(self, event: GangFailed) -> str | None:
        """The id of the device at fault, if it has failed so often that it should go out of service."""
        record = self.current(event.job_id, event.epoch)
        if record is None:
            return None
        if event.device is None and record.state is not State.STOPPING:
            record = self.ledger.put(record, failures=record.failures + 1)
            if record.failures >= self.options.max_attempts:
                self._give_up(record, event)
                return None
        self.ended(record, event.at, event.saved)
        if event.device is None:
            return None
        self.faults[event.device] += 1
        return event.device if self.faults[event.device] >= self.options.max_device_faults else None

    def _give_up(self, record: JobRecord, event: GangFailed) -> None:
        saved = min(record.spec.work, max(record.saved, event.saved))
        reason = Reason(code="attempts", text=f"failed {record.failures} times, last: {event.reason}")
        held_for = self._held_for(record, event.at)
        self.ledger.vacate(record)
        self._end(record, State.FAILED, event.at, reason, saved=saved, done=max(record.done, saved), held_for=held_for)

    def ended(self, record: JobRecord, at: float, saved: float, *, held_until: float | None = None) -> None:
        """The gang is gone with its work unfinished: the job waits again, unless it was cancelled or has had its time.

        ``held_until``: when the gang is taken to have ended, if that was before ``at``.
        """
        cause = record.held.stop_cause
        saved = min(record.spec.work, max(record.saved, saved))
        held_for = self._held_for(record, at if held_until is None else held_until)
        self.ledger.vacate(record)
        if cause == "cancelled":
            reason = Reason(code="cancelled", text="cancelled by request")
            done = max(saved, record.done)
            self._end(record, State.CANCELLED, at, reason, saved=saved, done=done, held_for=held_for)
            return
        if limits.is_used_up(record, held_for):
            reason = limits.used_up(record, saved)
            self._end(record, State.FAILED, at, reason, saved=saved, done=max(saved, record.done), held_for=held_for)
            return
        preemptions = record.preemptions + (cause == "preempted")
        record = self.ledger.enqueue(
            record, at, gang=None, saved=saved, done=saved, held_for=held_for, preemptions=preemptions
        )
        self.is_dirty = True
        if record.planned_version != self.ledger.inventory.version:
            self.plan(record)

    def _end(self, record: JobRecord, state: State, at: float, reason: Reason | None, **changes: Any) -> None:
        """Close the books of a job. Its candidates are dropped: a hundred thousand ended jobs should cost little."""
        self.ledger.put(record, state=state, ended_at=at, reason=reason, gang=None, candidates=(), **changes)
        self.is_dirty = True

    def cancel_requested(self, event: CancelRequested) -> None:
        """Cancel at once what holds no devices; tell a gang to save and end."""
        record = self.ledger.jobs.get(event.job_id)
        if record is None or record.state in FINAL:
            return
        if record.state in HOLDING:
            self.stop(record, "cancelled", event.at)
            return
        self.ledger.dequeue(record)
        self._end(record, State.CANCELLED, event.at, Reason(code="cancelled", text="cancelled by request"))

    def time_is_up(self, job_id: str, epoch: int, at: float) -> None:
        """Tell a gang to save and end whose job has had its time."""
        record = self.current(job_id, epoch)
        if record is not None and limits.is_used_up(record, self._held_for(record, at)):
            self.stop(record, "max_time", at)

    def _held_for(self, record: JobRecord, until: float) -> float:
        """Seconds for which the job's gangs have held devices, the present one until then."""
        return record.held_for + until - self.ledger.running[record.job_id].started

    def stop(self, record: JobRecord, cause: StopCause, at: float) -> None:
        """Tell the gang to end.

        A cancellation overrules the cause of a stop that is under way, and nothing else does.
        """
        if record.state is State.STOPPING:
            if cause == "cancelled":
                self.ledger.put(record, gang=replace(record.held, stop_cause=cause))
            return
        gang = replace(record.held, stop_cause=cause, commanded_at=at, missing_since=None)
        record = self.ledger.put(record, state=State.STOPPING, gang=gang)
        self.ledger.expect_stop(record, at)
        self.commands.append(StopGang(job_id=record.job_id, epoch=record.epoch, save=cause != "lost", cause=cause))
