"""What every journal does: the same suite on each adapter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ignite_scheduler.control.commands import PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import ClusterObserved, GangFailed, GangProgressed, JobPlanned, TimerFired
from ignite_scheduler.daemon.ports import Journal
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.store import SqlJournal
from live_fakes import MemoryJournal, submission, table_candidate

EVENTS = (
    submission("a", at=0.1),
    JobPlanned(at=0.2, job_id="a", planning=1, candidates=(table_candidate(), table_candidate(2.5))),
    GangProgressed(at=0.1 + 0.2, job_id="a", epoch=1, done=3, saved=2, rate=None),
    GangFailed(at=1.0, job_id="a", epoch=1, saved=2, reason='résumé, «quoted» "text"\n', device="n/d-0"),
    ClusterObserved(at=2.0, gangs=(("a", 1), ("b", 2))),
    TimerFired(at=3.0, timer_id="round"),
)
COMMANDS = (
    PlanJob(job_id="a", planning=1, device_ids=("n/d-0",)),
    StartGang(job_id="a", epoch=1, candidate=table_candidate(), device_ids=("n/d-0",), saved=0.0),
    StopGang(job_id="a", epoch=1, save=True, cause="preempted"),
    SetTimer(timer_id="round", at=60.0),
)


class Memory:
    """Opens the journal that lives in this process."""

    def __init__(self, _: Path) -> None:
        self._journal = MemoryJournal()

    def __call__(self) -> Journal:
        return self._journal


class Sqlite:
    """Opens the journal in one file, each time anew."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.sqlite"

    def __call__(self) -> Journal:
        return SqlJournal.at(self._path)


@pytest.fixture(params=[Memory, Sqlite])
def opened(request: pytest.FixtureRequest, tmp_path: Path):
    """A function that opens the journal; what it opened is closed in the end."""
    adapter, journals = request.param(tmp_path), []

    def open_it() -> Journal:
        journals.append(adapter())
        return journals[-1]

    yield open_it
    for journal in journals:
        journal.close()


Opened = Callable[[], Journal]


def test_a_new_journal_is_empty(opened: Opened) -> None:
    assert list(opened().records()) == []


def test_it_gives_back_what_it_was_given_in_order_also_after_opening_again(opened: Opened) -> None:
    journal = opened()
    numbers = []
    for event in EVENTS:
        numbers.append(journal.append_event(event))
        journal.append_commands(numbers[-1], COMMANDS)
    assert numbers == list(range(1, len(EVENTS) + 1))
    journal.close()
    records = list(opened().records())
    assert [record.sequence for record in records] == numbers
    assert tuple(record.event for record in records) == EVENTS
    assert {record.commands for record in records} == {COMMANDS}


def test_no_decision_yet_differs_from_a_decision_to_do_nothing(opened: Opened) -> None:
    journal = opened()
    journal.append_commands(journal.append_event(EVENTS[0]), ())
    journal.append_event(EVENTS[1])
    assert [record.commands for record in journal.records()] == [(), None]


def test_numbers_go_on_after_opening_again(opened: Opened) -> None:
    opened().append_event(EVENTS[0])
    assert opened().append_event(EVENTS[1]) == 2


def test_what_is_appended_while_reading_is_read_or_not_but_does_no_harm(opened: Opened) -> None:
    journal = opened()
    journal.append_event(EVENTS[0])
    for record in journal.records():
        if record.commands is None:
            journal.append_commands(record.sequence, COMMANDS)
    assert [record.commands for record in journal.records()] == [COMMANDS]


def test_long_journals_are_read_whole(opened: Opened) -> None:
    journal = opened()
    events = [TimerFired(at=float(i), timer_id=str(i)) for i in range(1201)]
    for event in events:
        journal.append_event(event)
    assert [record.event for record in journal.records()] == events


@pytest.mark.parametrize("sequence", [0, 2, -1])
def test_a_decision_on_an_unknown_event_is_a_bug(opened: Opened, sequence: int) -> None:
    journal = opened()
    journal.append_event(EVENTS[0])
    with pytest.raises(InvariantError):
        journal.append_commands(sequence, COMMANDS)


def test_a_second_decision_is_a_bug_and_changes_nothing(opened: Opened) -> None:
    journal = opened()
    sequence = journal.append_event(EVENTS[0])
    journal.append_commands(sequence, COMMANDS)
    with pytest.raises(InvariantError):
        journal.append_commands(sequence, ())
    assert next(iter(journal.records())).commands == COMMANDS


def test_closing_twice_does_no_harm(opened: Opened) -> None:
    journal = opened()
    journal.close()
    journal.close()


def test_the_file_is_an_ordinary_database_with_units_in_its_columns(tmp_path: Path) -> None:
    journal = Sqlite(tmp_path)()
    journal.append_event(EVENTS[0])
    journal.close()
    connection = sqlite3.connect(tmp_path / "journal.sqlite")
    rows = connection.execute("SELECT sequence, at_s, kind, job_id FROM events").fetchall()
    connection.close()
    assert rows == [(1, 0.1, "JobSubmitted", "a")]
