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

*Limits.* A gang whose job has a ``max_time`` gets a timer with its start; when that fires, it is told to save and end,
and the job has failed. Time counts over all attempts, as far as they were seen to live.

*Losses.* When a node goes, gangs wholly on it are over; of others the surviving processes are told to stop, and only
their answer (or their absence from a listing) frees the surviving devices, so that no device ever gets two gangs.
After any change of the set of devices all waiting jobs are planned anew; until the answer comes they keep those old
candidates that still fit.
"""

from __future__ import annotations

from collections import deque
from typing import Final, assert_never

from ignite_scheduler.control import limits
from ignite_scheduler.control.commands import Command, SetTimer, StartGang
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
from ignite_scheduler.control.lifecycle import Lifecycle
from ignite_scheduler.control.options import Options
from ignite_scheduler.control.reality import cluster_observed, devices_out, node_joined, node_lost
from ignite_scheduler.control.records import JobRecord, Promise
from ignite_scheduler.control.rounds import ask
from ignite_scheduler.control.states import State
from ignite_scheduler.errors import InvariantError, NotFoundError
from ignite_scheduler.model import Cluster
from ignite_scheduler.policy.pools import Pools
from ignite_scheduler.policy.view import Decision, Policy, Reason

ROUND_TIMER: Final = "round"
WAKE_TIMER: Final = "wake"

_PLANNING: Final = Reason(code="planning", text="its plans are being made")
_NEXT_ROUND: Final = Reason(code="round", text="waits for the next round of decisions")


class Controller:
    """Decides over one cluster with one policy. See the module's text for how it works."""

    def __init__(self, cluster: Cluster, policy: Policy, options: Options | None = None) -> None:
        self.policy = policy
        self.options = options or Options()
        self.decision = Decision()
        self.promises: dict[str, Promise] = {}
        self._life = Lifecycle(cluster, self.options)
        self._round_pending: float | None = None
        self._last_round = float("-inf")
        self._wake_pending: float | None = None
        self._story: deque[Event] = deque(maxlen=self.options.story_length)

    # -- what others may read -----------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The books. Read only."""
        return self._life.ledger

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
            if not self._was_weighed(record):
                return _NEXT_ROUND
            return self.decision.reasons.get(job_id) or self.decision.rest or _NEXT_ROUND
        return record.reason

    def _was_weighed(self, record: JobRecord) -> bool:
        """Whether the queued job was in the queue when the policy was last asked: what it said then is about it."""
        if record.queued_at is None or record.queued_at > self._last_round:
            return False
        return record.queued_at < self._last_round or self._round_pending is None

    def story(self, job_id: str | None = None) -> tuple[str, ...]:
        """The last events, told in the order in which they came; of one job, and what concerns all, if asked so."""
        about = (e for e in self._story if job_id is None or getattr(e, "job_id", job_id) == job_id)
        return tuple(_tell(event) for event in about)

    def copy(self, options: Options | None = None) -> Controller:
        """An independent controller in the same state, to look ahead with."""
        other = object.__new__(Controller)
        other.__dict__.update(self.__dict__)
        other.options = options or self.options
        other.promises = self.promises.copy()
        other._life = self._life.copy(other.options)
        other._round_pending, other._wake_pending = None, None
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
        life = self._life
        life.commands = []
        try:
            self._dispatch(event)
            self._ask_for_round(event.at)
            life.ledger.check_touched()
        except InvariantError as error:
            if error.story:
                raise
            raise InvariantError(str(error), story=self.story(getattr(event, "job_id", None))[-40:]) from error
        return life.commands

    def _dispatch(self, event: Event) -> None:  # noqa: PLR0912  one branch an event
        life = self._life
        match event:
            case TimerFired():
                self._timer_fired(event)
            case JobSubmitted():
                life.job_submitted(event)
            case JobPlanned():
                life.job_planned(event)
            case GangStarted():
                life.gang_started(event)
            case GangProgressed():
                life.gang_progressed(event)
            case GangFinished():
                life.gang_finished(event)
            case GangStopped():
                life.gang_stopped(event)
            case GangFailed():
                device_id = life.gang_failed(event)
                if device_id is not None:
                    devices_out(life, [device_id], event.at)
            case JobRefused():
                life.job_refused(event)
            case CancelRequested():
                life.cancel_requested(event)
            case NodeLost():
                node_lost(life, event)
            case NodeJoined():
                node_joined(life, event)
            case ClusterObserved():
                cluster_observed(life, event)
                if self._round_pending is not None and self._round_pending < event.at:
                    self._round_pending = None  # its timer was lost
            case _:
                assert_never(event)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _ask_for_round(self, at: float) -> None:
        if not self._life.is_dirty:
            return
        if not len(self.ledger.queue):
            self._life.is_dirty = False
            return
        if self._round_pending is None:
            self._round_pending = max(at, self._last_round + self.options.round_interval)
            self._life.commands.append(SetTimer(timer_id=ROUND_TIMER, at=self._round_pending))

    def _timer_fired(self, event: TimerFired) -> None:
        if event.timer_id == WAKE_TIMER:
            if self._wake_pending is not None and event.at >= self._wake_pending:
                self._wake_pending = None
                self._life.is_dirty = True
        elif (gang := limits.gang_of(event.timer_id)) is not None:
            self._life.time_is_up(*gang, event.at)
        elif event.timer_id == ROUND_TIMER and self._round_pending is not None and event.at >= self._round_pending:
            self._round_pending = None
            if self._life.is_dirty and len(self.ledger.queue):
                self._round(event.at)
            self._life.is_dirty = False

    def _round(self, at: float) -> None:
        ledger = self.ledger
        decision = ask(self.policy, ledger.view(at, self.decision.memory), ledger.queued)
        self.decision = decision
        self._last_round = at
        for job_id in decision.stops:
            self._life.stop(ledger.jobs[job_id], "preempted", at)
        # fine pools first: a demand on a whole kind may take any device that these leave
        for start in sorted(decision.starts, key=lambda start: start.option.candidate.plan is None):
            record = ledger.occupy(ledger.jobs[start.job_id], start.option, at)
            self._life.commands.append(
                StartGang(
                    job_id=record.job_id,
                    epoch=record.epoch,
                    candidate=record.held.candidate,
                    device_ids=record.held.device_ids,
                    saved=record.saved,
                )
            )
            limit = limits.timer(record, at)
            if limit is not None:
                self._life.commands.append(limit)
        if decision.wake_at is not None and decision.wake_at > at and decision.wake_at != self._wake_pending:
            self._wake_pending = decision.wake_at
            self._life.commands.append(SetTimer(timer_id=WAKE_TIMER, at=decision.wake_at))
        if self._life.unpromised:
            self._promise(at)

    def _promise(self, at: float) -> None:
        foretold = forecast(self, at)
        for job_id in self._life.unpromised:
            if job_id in foretold:
                start, low, high = foretold[job_id]
                self.promises[job_id] = Promise(at=at, start=start, finish_low=low, finish_high=high)
        self._life.unpromised = []


def _tell(event: Event) -> str:
    names = [name for name in event.__dataclass_fields__ if name not in ("at", "candidates", "devices")]
    return f"t={event.at:g} {type(event).__name__} " + " ".join(f"{name}={getattr(event, name)!r}" for name in names)
