"""The story of each job as the records tell it."""

from __future__ import annotations

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
)
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.model import Infeasible
from live_fakes import submission, table_candidate


def start(epoch: int, saved: float = 0.0, job_id: str = "a") -> StartGang:
    return StartGang(job_id=job_id, epoch=epoch, candidate=table_candidate(), device_ids=(f"n/d-{epoch}",), saved=saved)


def told(*entries: Event | tuple[Event, StartGang]) -> Chronicle:
    records = []
    for sequence, entry in enumerate(entries, start=1):
        event, commands = (entry[0], entry[1:]) if isinstance(entry, tuple) else (entry, ())
        records.append(Record(sequence=sequence, event=event, commands=commands))
    return Chronicle(records)


PLANNED = JobPlanned(at=2, job_id="a", planning=1, candidates=(table_candidate(),))


def test_a_job_that_runs_through() -> None:
    story = told(
        submission("a", at=1, work=10),
        (PLANNED, start(1)),
        GangStarted(at=5, job_id="a", epoch=1),
        GangProgressed(at=7, job_id="a", epoch=1, done=4, saved=0, rate=2.0),
        GangFinished(at=10, job_id="a", epoch=1),
    ).jobs["a"]
    (attempt,) = story.attempts
    assert (story.submitted, story.planned, story.started, story.finished, story.jct) == (1, 2, 5, 10, 9)
    assert (attempt.commanded, attempt.startup, attempt.ended, attempt.ending) == (2, 3, 10, "finished")
    assert (attempt.rate, story.done) == (2.0, 10)


def test_attempts_one_after_another_and_late_answers_about_the_first_change_nothing() -> None:
    story = told(
        submission("a", work=10),
        (PLANNED, start(1)),
        GangStarted(at=3, job_id="a", epoch=1),
        GangProgressed(at=4, job_id="a", epoch=1, done=6, saved=5),
        (GangFailed(at=5, job_id="a", epoch=1, saved=5, reason="killed", device="n/d-1"), start(2, saved=5)),
        GangProgressed(at=6, job_id="a", epoch=1, done=9, saved=9),
        GangFinished(at=7, job_id="a", epoch=1),
        GangStopped(at=8, job_id="a", epoch=2, saved=7),
    ).jobs["a"]
    first, second = story.attempts
    assert (first.ending, first.reason, first.device, first.ended) == ("failed", "killed", "n/d-1", 5)
    assert (second.ending, second.saved, second.done, second.started) == ("stopped", 5, 7, None)
    assert story.finished is None
    assert story.jct is None
    assert story.started == 3


def test_what_a_listing_no_longer_shows_is_lost() -> None:
    jobs = told(
        submission("a"),
        submission("b"),
        (PLANNED, start(1), start(1, job_id="b")),
        ClusterObserved(at=9, gangs=(("b", 1),)),
    ).jobs
    assert (jobs["a"].attempts[0].ending, jobs["a"].attempts[0].ended) == ("lost", 9)
    assert jobs["b"].attempts[0].ended is None


def test_refused_and_cancelled_jobs() -> None:
    reason = Infeasible(code="memory", text="too large")
    jobs = told(
        submission("a"),
        JobRefused(at=1, job_id="a", planning=1, reason=reason),
        submission("b"),
        CancelRequested(at=3, job_id="b"),
        CancelRequested(at=3, job_id="nobody"),
    ).jobs
    assert jobs["a"].refused == reason
    assert jobs["b"].cancelled == 3
    assert list(jobs) == ["a", "b"]
