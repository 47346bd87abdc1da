"""The multi-job scheduler as one deterministic state machine: an event goes in, commands come out.

Theory of operation
-------------------
``handle`` reads no clock and does no I/O: each event carries its time. It changes the books (:class:`Ledger`), whose
operations refuse any step that the transition table lacks, and returns what should be done about it.

*Rounds.* Events that may let a job start mark the state *dirty*. A dirty controller asks for the timer ``round`` at
the present instant (or at the next multiple of the interval that the operator chose); since a timer comes after the
other events of its instant, the policy then sees all that happened in it at once: two jobs that arrive together are
weighed together. The round asks the policy, checks its whole answer against the books and only then changes anything,
so a policy that raises or wants the impossible leaves no trace.

*Epochs.* Each start of a job has a number. An answer about any epoch but the present one is late or repeated and is
dropped; so is an answer to any planning but the last.

*Reality wins.* ``ClusterObserved`` lists what really runs. A gang that should not run is told to stop; a gang that
should run but is missing for longer than a grace is taken as ended and its job waits again with what it has saved.

*Losses.* When a node goes, gangs wholly on it are over; of others the surviving processes are told to stop, and only
their answer (or their absence from a listing) frees the surviving devices, so that no device ever gets two gangs.
After any change of the set of devices all waiting jobs are planned anew; until the answer comes they keep those old
candidates that still fit.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from ignite_scheduler.control.admission import affordable, refusal, startup_seconds
from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    CancelRequested,
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
    NodeJoined,
    NodeLost,
    TimerFired,
)
from ignite_scheduler.control.forecast import forecast
from ignite_scheduler.control.ledger import Ledger
from ignite_scheduler.control.records import JobRecord, Promise, StopCause
from ignite_scheduler.control.rounds import ask
from ignite_scheduler.control.states import FINAL, HOLDING, State
from ignite_scheduler.errors import InvariantError, NotFoundError
from ignite_scheduler.model import Cluster, Infeasible
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.pools import Pools
from ignite_scheduler.policy.view import Decision, Policy, Reason

ROUND_TIMER: Final = "round"
WAKE_TIMER: Final = "wake"

_PLANNING: Final = Reason(code="planning", text="its plans are being made")
_NEXT_ROUND: Final = Reason(code="round", text="waits for the next round of decisions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator may set.

    Parameters
    ----------
    max_attempts
        Attempts that may fail by the job's own fault before the job has failed.
    max_device_faults
        Gangs in a row that may fail by a device's fault before the device is taken out of service.
    round_interval
        Least seconds between two rounds of decisions; 0 = at each instant at which something changed.
    start_grace
        Seconds after a start or stop command during which a listing need not agree.
    missing_grace
        Seconds for which a running gang must be missing from listings before it is taken as ended (its own answer may
        be on the way).
    promises
        Foretell start and finish of each job when it is admitted; costs a simulation of the whole queue each time.
    story_length
        Events kept to be told when a law breaks.
    """

    max_attempts: int = 3
    max_device_faults: int = 3
    round_interval: float = 0.0
    start_grace: float = 60.0
    missing_grace: float = 5.0
    promises: bool = False
    story_length: int = 500


class Controller:
    """Decides over one cluster with one policy. See the module's text for how it works."""

    def __init__(self, cluster: Cluster, policy: Policy, options: Options | None = None) -> None:
        self.policy = policy
        self.options = options or Options()
        self.ledger = Ledger(cluster)
        self.decision = Decision()
        self.promises: dict[str, Promise] = {}
        self._commands: list[Command] = []
        self._dirty = False
        self._round_pending: float | None = None
        self._last_round = float("-inf")
        self._wake_pending: float | None = None
        self._faults: Counter[str] = Counter()
        self._unpromised: list[str] = []
        self._story: deque[Event] = deque(maxlen=self.options.story_length)

    # -- what others may read -----------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """Records of all jobs, by id, in order of submission. Read only."""
        return self.ledger.jobs

    @property
    def cluster(self) -> Cluster:
        """The cluster with all known devices."""
        return self.ledger.inventory.cluster

    @property
    def pools(self) -> Pools:
        """Pools of all known devices: candidates that answer a PlanJob are expressed in them."""
        return self.ledger.inventory.pools

    def job(self, job_id: str) -> JobRecord:
        """The record of a job; NotFoundError if there is none."""
        try:
            return self.ledger.jobs[job_id]
        except KeyError:
            raise NotFoundError(f"no job {job_id!r}") from None

    def reason(self, job_id: str) -> Reason | None:
        """Why the job is not running, or how it ended; None where there is nothing to explain."""
        record = self.job(job_id)
        if record.state is State.SUBMITTED:
            return _PLANNING
        if record.state is State.QUEUED:
            return self.decision.reasons.get(job_id) or self.decision.rest or _NEXT_ROUND
        return record.reason

    def story(self, job_id: str | None = None) -> tuple[str, ...]:
        """The last events, told in the order in which they came; of one job only if asked so."""
        about = (e for e in self._story if job_id is None or getattr(e, "job_id", job_id) == job_id)
        return tuple(_tell(event) for event in about)

    def copy(self, options: Options | None = None) -> Controller:
        """An independent controller in the same state, to look ahead with."""
        other = object.__new__(Controller)
        other.__dict__.update(self.__dict__)
        other.options = options or self.options
        other.ledger = self.ledger.copy()
        other.promises = self.promises.copy()
        other._commands = []
        other._dirty, other._round_pending, other._wake_pending = True, None, None
        other._faults = self._faults.copy()
        other._unpromised = []
        other._story = deque(maxlen=20)
        return other

    # -- the one entry ------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """What should be done about the event.

        Raises
        ------
        InvariantError
            A law is broken or the policy misbehaved; carries the story. After a policy's fault the state is as
            before.
        """
        self._story.append(event)
        self._commands = []
        try:
            self._dispatch(event)
            self._ask_for_round(event.at)
            self.ledger.check_touched()
        except InvariantError as error:
            if error.story:
                raise
            raise InvariantError(str(error), story=self.story()[-40:]) from error
        return self._commands

    def _dispatch(self, event: Event) -> None:  # noqa: PLR0912  one branch an event
        match event:
            case TimerFired():
                self._timer_fired(event)
            case JobSubmitted():
                self._job_submitted(event)
            case JobPlanned():
                self._job_planned(event)
            case GangStarted():
                self._gang_started(event)
            case GangProgressed():
                self._gang_progressed(event)
            case GangFinished():
                self._gang_finished(event)
            case GangStopped():
                self._gang_stopped(event)
            case GangFailed():
                self._gang_failed(event)
            case JobRefused():
                self._job_refused(event)
            case CancelRequested():
                self._cancel_requested(event)
            case NodeLost():
                lost = [device.id for device in self.ledger.inventory.devices_of(event.node)]
                self._devices_out(lost, event.at)
            case NodeJoined():
                self._node_joined(event)
            case ClusterObserved():
                self._cluster_observed(event)
            case _:
                assert_never(event)

    # -- submission and planning --------------------------------------------------------------------------------------

    def _job_submitted(self, event: JobSubmitted) -> None:
        if event.job_id not in self.ledger.jobs:  # a repeated submission is the same job
            self._ask_for_plan(self.ledger.add(event))

    def _plan(self, record: JobRecord) -> None:
        """Ask for candidates on the devices that are in service now."""
        version = self.ledger.inventory.version
        self._ask_for_plan(self.ledger.put(record, planning=record.planning + 1, planned_version=version))

    def _ask_for_plan(self, record: JobRecord) -> None:
        device_ids = self.ledger.inventory.present()
        self._commands.append(PlanJob(job_id=record.job_id, planning=record.planning, device_ids=device_ids))

    def _answered(self, event: JobPlanned | JobRefused) -> JobRecord | None:
        """The job's record if this is the first answer to its last planning."""
        record = self.ledger.jobs.get(event.job_id)
        if record is None or event.planning != record.planning or record.answered == event.planning:
            return None
        return None if record.state in FINAL else record

    def _job_planned(self, event: JobPlanned) -> None:
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
            self._dirty = True
        else:
            self.ledger.put(record, candidates=candidates, answered=event.planning)

    def _admit(
        self, record: JobRecord, candidates: tuple[Candidate, ...], at: float, refused: Infeasible | None
    ) -> None:
        if refused is not None:
            self._end(record, State.FAILED, at, Reason(code=refused.code, text=refused.text), rejection=refused)
            return
        record = self.ledger.enqueue(record, at, candidates=candidates)
        self._dirty = True
        if self.options.promises and record.state is State.QUEUED:
            self._unpromised.append(record.job_id)

    def _job_refused(self, event: JobRefused) -> None:
        record = self._answered(event)
        if record is None:
            return
        reason = Reason(code=event.reason.code, text=event.reason.text)
        number = event.planning
        if record.state is State.SUBMITTED and not self.ledger.inventory.out:
            self._end(record, State.FAILED, event.at, reason, rejection=event.reason, answered=number)
        elif record.state is State.SUBMITTED:
            self.ledger.enqueue(record, event.at, candidates=(), reason=reason, answered=number)
        elif record.state in (State.QUEUED, State.WAITING):
            self.ledger.requeue(record, candidates=(), reason=reason, answered=number)
        else:
            self.ledger.put(record, candidates=(), answered=number)

    # -- gangs --------------------------------------------------------------------------------------------------------

    def _current(self, job_id: str, epoch: int) -> JobRecord | None:
        """The job's record if that epoch is the one that holds devices now."""
        record = self.ledger.jobs.get(job_id)
        return record if record is not None and record.epoch == epoch and record.state in HOLDING else None

    def _gang_started(self, event: GangStarted) -> None:
        record = self._current(event.job_id, event.epoch)
        if record is None or record.gang is None or record.state is not State.STARTING:
            return
        gang = replace(record.gang, started_at=event.at, missing_since=None)
        self.ledger.put(record, state=State.RUNNING, gang=gang)
        job = self.ledger.running[event.job_id]
        self.ledger.expect_end(record, event.at + job.option.seconds - startup_seconds(record.spec, record.remaining))

    def _gang_progressed(self, event: GangProgressed) -> None:
        record = self._current(event.job_id, event.epoch)
        if record is None:
            return
        work = record.spec.work
        saved = min(work, max(record.saved, event.saved))
        record = self.ledger.put(record, done=min(work, max(record.done, event.done, saved)), saved=saved)
        if event.rate and record.state is State.RUNNING:
            self.ledger.expect_end(record, event.at + (work - record.done) / event.rate)

    def _gang_finished(self, event: GangFinished) -> None:
        record = self._current(event.job_id, event.epoch)
        if record is None or record.gang is None:
            return
        for device_id in record.gang.device_ids:
            self._faults.pop(device_id, None)
        self.ledger.vacate(record)
        self._end(record, State.FINISHED, event.at, None, done=record.spec.work, saved=record.spec.work)

    def _gang_stopped(self, event: GangStopped) -> None:
        record = self._current(event.job_id, event.epoch)
        if record is not None:
            self._ended(record, event.at, event.saved)

    def _gang_failed(self, event: GangFailed) -> None:
        record = self._current(event.job_id, event.epoch)
        if record is None:
            return
        asked_to_stop = record.state is State.STOPPING
        if event.device is None and not asked_to_stop:
            record = self.ledger.put(record, failures=record.failures + 1)
        if record.failures >= self.options.max_attempts and not asked_to_stop:
            saved = min(record.spec.work, max(record.saved, event.saved))
            text = f"failed {record.failures} times, last: {event.reason}"
            self.ledger.vacate(record)
            done = max(record.done, saved)
            self._end(record, State.FAILED, event.at, Reason(code="attempts", text=text), saved=saved, done=done)
            return
        self._ended(record, event.at, event.saved)
        if event.device is not None:
            self._faults[event.device] += 1
            if self._faults[event.device] >= self.options.max_device_faults:
                self._devices_out([event.device], event.at)

    def _ended(self, record: JobRecord, at: float, saved: float) -> None:
        """The gang is gone with its work unfinished: the job waits again, or is cancelled if that was asked."""
        if record.gang is None:
            raise InvariantError(f"job {record.job_id!r} has no gang that could have ended")
        cause = record.gang.stop_cause
        saved = min(record.spec.work, max(record.saved, saved))
        self.ledger.vacate(record)
        if cause == "cancelled":
            reason = Reason(code="cancelled", text="cancelled by request")
            self._end(record, State.CANCELLED, at, reason, saved=saved, done=max(saved, record.done))
            return
        preemptions = record.preemptions + (cause == "preempted")
        record = self.ledger.enqueue(record, at, gang=None, saved=saved, done=saved, preemptions=preemptions)
        self._dirty = True
        if record.planned_version != self.ledger.inventory.version:
            self._plan(record)

    def _end(self, record: JobRecord, state: State, at: float, reason: Reason | None, **changes: Any) -> None:
        """Close the books of a job. Its candidates are dropped: a hundred thousand ended jobs should cost little."""
        self.ledger.put(record, state=state, ended_at=at, reason=reason, gang=None, candidates=(), **changes)
        self._dirty = True

    def _cancel_requested(self, event: CancelRequested) -> None:
        record = self.ledger.jobs.get(event.job_id)
        if record is None or record.state in FINAL:
            return
        if record.state in HOLDING:
            self._stop(record, "cancelled", event.at)
            return
        self.ledger.dequeue(record)
        self._end(record, State.CANCELLED, event.at, Reason(code="cancelled", text="cancelled by request"))

    def _stop(self, record: JobRecord, cause: StopCause, at: float) -> None:
        """Tell the gang to end. A cancellation overrules the cause of a stop that is under way, and nothing else
        does."""
        if record.gang is None:
            raise InvariantError(f"job {record.job_id!r} has no gang to stop")
        if record.state is State.STOPPING:
            if cause == "cancelled":
                self.ledger.put(record, gang=replace(record.gang, stop_cause=cause))
            return
        gang = replace(record.gang, stop_cause=cause, commanded_at=at, missing_since=None)
        record = self.ledger.put(record, state=State.STOPPING, gang=gang)
        self.ledger.expect_stop(record, at)
        self._commands.append(StopGang(job_id=record.job_id, epoch=record.epoch, save=cause != "lost", cause=cause))

    # -- devices ------------------------------------------------------------------------------------------------------

    def _devices_out(self, device_ids: list[str], at: float) -> None:
        inventory = self.ledger.inventory
        if not inventory.put_out(device_ids):
            return
        hit = dict.fromkeys(inventory.holder[each] for each in device_ids if each in inventory.holder)
        for job_id in hit:
            record = self.ledger.jobs[job_id]
            gang = record.gang
            if gang is None:
                raise InvariantError(f"job {job_id!r} holds devices without a gang")
            lost = gang.lost.union(device_ids).intersection(gang.device_ids)
            record = self.ledger.put(record, gang=replace(gang, lost=lost))
            if len(lost) == len(gang.device_ids):
                self._ended(record, at, record.saved)
            else:
                self._stop(record, "lost", at)
        self._devices_changed()

    def _node_joined(self, event: NodeJoined) -> None:
        joined = {device.id for device in event.devices}
        gone = [each.id for each in self.ledger.inventory.devices_of(event.node) if each.id not in joined]
        self._devices_out(gone, event.at)
        before = self.pools.pool_of
        if not self.ledger.inventory.join(event.node, event.devices):
            return
        for device in event.devices:
            self._faults.pop(device.id, None)
        after = self.pools.pool_of
        regrouped = any(after.get(device_id) != pool for device_id, pool in before.items())
        self._devices_changed(drop_plans=regrouped)

    def _devices_changed(self, *, drop_plans: bool = False) -> None:
        """Reckon all options anew and have the waiting jobs planned for the new set of devices.

        ``drop_plans``: the pools are grouped anew, so a plan's representatives no longer stand for what they stood
        for.
        """
        self._dirty = True
        self.ledger.recount_running()
        for record in list(self.ledger.jobs.values()):
            if record.state not in FINAL:
                self._reconsider(record, drop_plans=drop_plans)

    def _reconsider(self, record: JobRecord, *, drop_plans: bool) -> None:
        if drop_plans:
            kept = tuple(each for each in record.candidates if each.plan is None)
            record = self.ledger.put(record, candidates=kept)
        if record.state in (State.QUEUED, State.WAITING):
            record = self.ledger.requeue(record)
        if record.state not in HOLDING and record.planned_version != self.ledger.inventory.version:
            self._plan(record)

    def _cluster_observed(self, event: ClusterObserved) -> None:
        listed = set(event.gangs)
        for job_id, epoch in event.gangs:
            if self._current(job_id, epoch) is None:
                self._commands.append(StopGang(job_id=job_id, epoch=epoch, save=False, cause="stale"))
        for job_id in list(self.ledger.running):
            self._compare(self.ledger.jobs[job_id], listed, event.at)
        if self._dirty and self._round_pending is not None and self._round_pending < event.at:
            self._round_pending = None  # its timer was lost

    def _compare(self, record: JobRecord, listed: set[tuple[str, int]], at: float) -> None:
        gang = record.gang
        if gang is None:
            raise InvariantError(f"job {record.job_id!r} is seen as running without a gang")
        is_settled = at - gang.commanded_at >= self.options.start_grace
        if (record.job_id, record.epoch) in listed:
            if gang.missing_since is not None:
                self.ledger.put(record, gang=replace(gang, missing_since=None))
            if record.state is State.STOPPING and is_settled and gang.stop_cause is not None:
                # the command may have been lost: say it again
                self.ledger.put(record, gang=replace(gang, commanded_at=at))
                save = gang.stop_cause != "lost"
                self._commands.append(
                    StopGang(job_id=record.job_id, epoch=record.epoch, save=save, cause=gang.stop_cause)
                )
            return
        if record.state is State.STARTING and not is_settled:
            return
        if gang.missing_since is None:
            record = self.ledger.put(record, gang=replace(gang, missing_since=at))
        if at - (gang.missing_since if gang.missing_since is not None else at) >= self.options.missing_grace:
            self._ended(record, at, record.saved)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _ask_for_round(self, at: float) -> None:
        if not self._dirty:
            return
        if not len(self.ledger.queue):
            self._dirty = False
            return
        if self._round_pending is None:
            self._round_pending = max(at, self._last_round + self.options.round_interval)
            self._commands.append(SetTimer(timer_id=ROUND_TIMER, at=self._round_pending))

    def _timer_fired(self, event: TimerFired) -> None:
        if event.timer_id == WAKE_TIMER:
            if self._wake_pending is not None and event.at >= self._wake_pending:
                self._wake_pending = None
                self._dirty = True
        elif event.timer_id == ROUND_TIMER and self._round_pending is not None and event.at >= self._round_pending:
            self._round_pending = None
            if self._dirty and len(self.ledger.queue):
                self._round(event.at)
            self._dirty = False

    def _round(self, at: float) -> None:
        ledger = self.ledger
        decision = ask(self.policy, ledger.view(at, self.decision.memory), ledger.queued)
        self.decision = decision
        self._last_round = at
        for job_id in decision.stops:
            self._stop(self.ledger.jobs[job_id], "preempted", at)
        # fine pools first: a demand on a whole kind may take any device that these leave
        for start in sorted(decision.starts, key=lambda start: start.option.candidate.plan is None):
            record = self.ledger.occupy(self.ledger.jobs[start.job_id], start.option, at)
            gang = record.gang
            if gang is None:
                raise InvariantError(f"job {record.job_id!r} was started without devices")
            self._commands.append(
                StartGang(
                    job_id=record.job_id,
                    epoch=record.epoch,
                    candidate=gang.candidate,
                    device_ids=gang.device_ids,
                    saved=record.saved,
                )
            )
        if decision.wake_at is not None and decision.wake_at > at and decision.wake_at != self._wake_pending:
            self._wake_pending = decision.wake_at
            self._commands.append(SetTimer(timer_id=WAKE_TIMER, at=decision.wake_at))
        if self._unpromised:
            self._promise(at)

    def _promise(self, at: float) -> None:
        foretold = forecast(self, at)
        for job_id in self._unpromised:
            if job_id in foretold:
                start, low, high = foretold[job_id]
                self.promises[job_id] = Promise(at=at, start=start, finish_low=low, finish_high=high)
        self._unpromised = []


def _tell(event: Event) -> str:
    names = [name for name in event.__dataclass_fields__ if name not in ("at", "candidates", "devices")]
    return f"t={event.at:g} {type(event).__name__} " + " ".join(f"{name}={getattr(event, name)!r}" for name in names)
