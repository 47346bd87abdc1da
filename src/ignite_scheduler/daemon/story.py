"""What became of each job, told from the records of a run alone: nothing in here asks the controller or the clock.

The same fold serves the live view, the report at the end and the report of a run that was killed and continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

from ignite_scheduler.control.commands import StartGang
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
)
from ignite_scheduler.daemon.ports import GangReport, Record
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy.candidates import Candidate

Ending = Literal["finished", "stopped", "failed", "lost"]
"""How an attempt ended; ``lost`` = a listing no longer showed it, such as after a crash of the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One gang of one job. Times are seconds since the run's origin.

    It holds ``device_ids`` from ``commanded`` to ``ended``, and works from ``started`` on. ``saved`` is what earlier
    attempts left it, ``done`` what is done in all attempts together.
    """

    epoch: int
    candidate: Candidate
    device_ids: tuple[str, ...]
    commanded: float
    saved: float
    done: float
    rate: float | None = None
    started: float | None = None
    ended: float | None = None
    ending: Ending | None = None
    reason: str | None = None
    device: str | None = None

    @property
    def startup(self) -> float | None:
        """Seconds from the command to the first step; None while it is still to come."""
        return None if self.started is None else self.started - self.commanded


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """One job from its submission on."""

    job_id: str
    submitted: float
    work: float
    planned: float | None = None
    candidates: tuple[Candidate, ...] = ()
    refused: Infeasible | None = None
    cancelled: float | None = None
    finished: float | None = None
    attempts: tuple[Attempt, ...] = field(default=())

    @property
    def started(self) -> float | None:
        """When its first step of all began."""
        return next((attempt.started for attempt in self.attempts if attempt.started is not None), None)

    @property
    def done(self) -> float:
        """Units of work done, as far as is known and not lost."""
        return self.attempts[-1].done if self.attempts else 0.0

    @property
    def jct(self) -> float | None:
        """Job completion time: seconds from submission to finish; None while unfinished."""
        return None if self.finished is None else self.finished - self.submitted


class Chronicle:
    """Folds records, in order, into one story a job."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._stories: dict[str, JobStory] = {}
        for record in records:
            self.note(record)

    @property
    def jobs(self) -> Mapping[str, JobStory]:
        """Job id → story, in order of submission."""
        return self._stories

    def note(self, record: Record) -> None:
        """Take note of one more record."""
        self._note_event(record.event)
        for command in record.commands or ():
            if isinstance(command, StartGang):
                self._begin(record.event.at, command)

    def _note_event(self, event: Event) -> None:
        at = event.at
        match event:
            case JobSubmitted(job_id=job_id, work=work):
                self._stories.setdefault(job_id, JobStory(job_id=job_id, submitted=at, work=work))
            case JobPlanned(job_id=job_id, candidates=candidates):
                self._change(job_id, planned=at, candidates=candidates, refused=None)
            case JobRefused(job_id=job_id, reason=reason):
                self._change(job_id, refused=reason)
            case CancelRequested(job_id=job_id):
                self._change(job_id, cancelled=at)
            case ClusterObserved(gangs=gangs):
                self._miss(at, frozenset(gangs))
            case GangStarted() | GangProgressed() | GangFinished() | GangStopped() | GangFailed():
                self._note_report(event)
            case _:
                pass

    def _note_report(self, report: GangReport) -> None:
        at, job_id, epoch = report.at, report.job_id, report.epoch
        match report:
            case GangStarted():
                self._change_attempt(job_id, epoch, started=at)
            case GangProgressed(done=done, rate=rate):
                self._change_attempt(job_id, epoch, done=done, rate=rate)
            case GangFinished():
                story = self._stories.get(job_id)
                done = 0.0 if story is None else story.work
                if self._change_attempt(job_id, epoch, ended=at, ending="finished", done=done):
                    self._change(job_id, finished=at)
            case GangStopped(saved=saved):
                self._change_attempt(job_id, epoch, ended=at, ending="stopped", done=saved)
            case GangFailed(saved=saved, reason=reason, device=device):
                why = {"reason": reason, "device": device}
                self._change_attempt(job_id, epoch, ended=at, ending="failed", done=saved, **why)
            case _:
                assert_never(report)

    def _change(self, job_id: str, **changes: Any) -> None:
        story = self._stories.get(job_id)
        if story is not None:
            self._stories[job_id] = replace(story, **changes)

    def _begin(self, at: float, command: StartGang) -> None:
        attempt = Attempt(
            epoch=command.epoch,
            candidate=command.candidate,
            device_ids=command.device_ids,
            commanded=at,
            saved=command.saved,
            done=command.saved,
        )
        story = self._stories.get(command.job_id)
        if story is not None:
            self._change(command.job_id, attempts=(*story.attempts, attempt))

    def _change_attempt(self, job_id: str, epoch: int, **changes: Any) -> bool:
        """Change the attempt if it is the job's last one and alive; late answers about others change nothing."""
        story = self._stories.get(job_id)
        if story is None or not story.attempts:
            return False
        last = story.attempts[-1]
        if last.epoch != epoch or last.ended is not None:
            return False
        self._change(job_id, attempts=(*story.attempts[:-1], replace(last, **changes)))
        return True

    def _miss(self, at: float, gangs: frozenset[tuple[str, int]]) -> None:
        """Close the attempts that a full listing does not show."""
        for job_id, story in self._stories.items():
            if story.attempts and (job_id, story.attempts[-1].epoch) not in gangs:
                self._change_attempt(job_id, story.attempts[-1].epoch, ended=at, ending="lost")
