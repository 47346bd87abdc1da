"""The pump: order of the four steps, a crash between any two of them, and the replay law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.control.commands import Command, SetTimer, StartGang
from ignite_scheduler.control.events import (
    ClusterObserved,
    Event,
    GangFinished,
    GangProgressed,
    GangStarted,
    JobPlanned,
    JobRefused,
    TimerFired,
)
from ignite_scheduler.daemon.pump import Pump, recover, replay
from ignite_scheduler.errors import ConflictError
from ignite_scheduler.model import Infeasible
from live_fakes import MemoryJournal, OneByOne, submission, table_candidate


class CrashError(Exception):
    """The process dies here."""


def planned(job_id: str, at: float) -> JobPlanned:
    return JobPlanned(at=at, job_id=job_id, planning=1, candidates=(table_candidate(),))


STORY: tuple[Event, ...] = (
    submission("a", at=0),
    submission("b", at=1),
    planned("a", 2),
    GangStarted(at=3, job_id="a", epoch=1),
    JobRefused(at=4, job_id="b", planning=1, reason=Infeasible(code="memory", text="too large")),
    GangProgressed(at=5, job_id="a", epoch=1, done=4, saved=4),
    ClusterObserved(at=6, gangs=()),
    TimerFired(at=1002, timer_id="tick"),
    GangFinished(at=1003, job_id="a", epoch=2),
)


def feed_all(events: tuple[Event, ...], journal: MemoryJournal, core: OneByOne) -> list[Command]:
    carried_out: list[Command] = []
    pump = Pump(core=core, journal=journal, dispatch=carried_out.append)
    for event in events:
        pump.feed(event)
    return carried_out


def test_an_event_is_durable_before_it_is_handled_and_its_decision_before_it_is_carried_out() -> None:
    steps: list[str] = []

    class Journal(MemoryJournal):
        def append_event(self, event: Event) -> int:
            steps.append("event written")
            return super().append_event(event)

        def append_commands(self, sequence, commands) -> None:
            steps.append("commands written")
            super().append_commands(sequence, commands)

    class Core(OneByOne):
        def handle(self, event: Event) -> tuple[Command, ...]:
            steps.append("handled")
            return super().handle(event)

    pump = Pump(core=Core(), journal=Journal(), dispatch=lambda _: steps.append("carried out"))
    pump.feed(submission("a"))
    assert steps == ["event written", "handled", "commands written", "carried out"]


def test_time_never_falls() -> None:
    core = OneByOne()
    pump = Pump(core=core, journal=MemoryJournal(), dispatch=lambda _: None, last_at=10.0)
    pump.feed(submission("a", at=3))
    pump.feed(submission("b", at=12))
    pump.feed(submission("c", at=11))
    assert [event.at for event in core.seen] == [10, 12, 12]


def test_a_journal_replayed_into_a_fresh_core_gives_the_same_commands() -> None:
    journal = MemoryJournal()
    feed_all(STORY, journal, OneByOne())
    assert replay(journal.records(), OneByOne()) == ()


def test_replay_names_the_events_that_are_decided_otherwise() -> None:
    journal = MemoryJournal()
    feed_all(STORY, journal, OneByOne())
    found = replay(journal.records(), OneByOne(device_ids=("n/other-0",)))
    assert [mismatch.sequence for mismatch in found] == [1, 2, 3, 7]
    assert found[2].recorded[0].device_ids == ("n/d-0",)
    assert found[2].replayed[0].device_ids == ("n/other-0",)
    with pytest.raises(ConflictError, match="event 1,"):
        recover(journal, OneByOne(device_ids=("n/other-0",)))


@given(st.integers(0, len(STORY)))
def test_recovery_brings_a_fresh_core_to_the_same_state(length: int) -> None:
    journal, core, again = MemoryJournal(), OneByOne(), OneByOne()
    feed_all(STORY[:length], journal, core)
    recovery = recover(journal, again)
    assert vars(again) == vars(core)
    assert recovery.last_at == (STORY[length - 1].at if length else 0)


@given(st.integers(0, len(STORY) - 1), st.integers(1, 3))
def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(position: int, step: int) -> None:
    """Crash at the given event after step 1 (event written), 2 (handled) or 3 (commands written); then carry on."""
    whole, journal = MemoryJournal(), MemoryJournal()
    feed_all(STORY, whole, OneByOne())
    feed_all(STORY[:position], journal, OneByOne())

    sequence = journal.append_event(STORY[position])
    if step == 3:
        core = OneByOne()
        commands = [tuple(core.handle(event)) for event in STORY[: position + 1]]
        journal.append_commands(sequence, commands[-1])

    core = OneByOne()
    recovery = recover(journal, core)
    pump = Pump(core=core, journal=journal, dispatch=lambda _: None, last_at=recovery.last_at)
    for event in STORY[position + 1 :]:
        pump.feed(event)
    assert list(journal.records()) == list(whole.records())


def test_recovery_hands_back_timers_that_have_not_fired_and_plans_that_were_not_answered() -> None:
    journal = MemoryJournal()
    feed_all((submission("a"), submission("b"), planned("a", 2), submission("c", at=3)), journal, OneByOne())
    recovery = recover(journal, OneByOne())
    assert recovery.timers == (SetTimer(timer_id="tick", at=1002.0),)
    assert [plan.job_id for plan in recovery.plans] == ["b", "c"]

    feed = Pump(core=OneByOne(), journal=journal, dispatch=lambda _: None).feed
    feed(TimerFired(at=1002, timer_id="tick"))
    feed(JobRefused(at=1003, job_id="b", planning=1, reason=Infeasible(code="memory", text="too large")))
    feed(JobPlanned(at=1004, job_id="c", planning=0, candidates=(table_candidate(),)))  # an old answer
    fresh = MemoryJournal()
    feed_all(tuple(record.event for record in journal.records()), fresh, OneByOne())
    recovery = recover(fresh, OneByOne())
    assert [plan.job_id for plan in recovery.plans] == ["c"]
    assert [timer.at for timer in recovery.timers] == [2004.0]


def test_a_crash_while_carrying_out_is_seen_by_the_listing() -> None:
    """The start was decided and written but never carried out: the listing brings a new attempt."""
    journal, carried_out = MemoryJournal(), []

    def dies(command: Command) -> None:
        if isinstance(command, StartGang):
            raise CrashError
        carried_out.append(command)

    pump = Pump(core=OneByOne(), journal=journal, dispatch=dies)
    pump.feed(submission("a"))
    with pytest.raises(CrashError):
        pump.feed(planned("a", 1))
    core = OneByOne()
    recovery = recover(journal, core)
    pump = Pump(core=core, journal=journal, dispatch=carried_out.append, last_at=recovery.last_at)
    (start,) = pump.feed(ClusterObserved(at=2, gangs=()))
    assert isinstance(start, StartGang)
    assert start.epoch == 2
