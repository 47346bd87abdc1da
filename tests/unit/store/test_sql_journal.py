"""What the database journal does beyond the port: refusals, facts, and a process that dies while it writes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ignite_scheduler.control.events import TimerFired
from ignite_scheduler.errors import ConflictError, ExternalError
from ignite_scheduler.store import SqlJournal

WRITES_FOR_EVER = """
import sys
from pathlib import Path
from ignite_scheduler.control.commands import SetTimer
from ignite_scheduler.control.events import TimerFired
from ignite_scheduler.store import SqlJournal
journal = SqlJournal.at(Path(sys.argv[1]))
while True:
    sequence = journal.append_event(TimerFired(at=1.0, timer_id="x" * 3000))
    print(sequence, flush=True)
    journal.append_commands(sequence, (SetTimer(timer_id="y" * 3000, at=2.0),))
"""


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_text("this is no database, whatever its name says " * 100)
    with pytest.raises(ExternalError, match="found what no database reads"):
        SqlJournal.at(path)


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    SqlJournal.at(path).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE facts SET value = '99' WHERE name = 'layout'")
    connection.close()
    with pytest.raises(ConflictError, match="layout 99"):
        SqlJournal.at(path)


def test_a_fact_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = SqlJournal.at(path)
    assert journal.remember("origin", "1.5") == "1.5"
    assert journal.remember("origin", "2.5") == "1.5"
    journal.close()
    again = SqlJournal.at(path)
    assert again.remember("origin", "3.5") == "1.5"
    again.close()


@pytest.mark.parametrize("writes", [1, 7, 20])
def test_a_writer_that_is_killed_leaves_a_journal_with_all_that_it_had_said(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "journal.sqlite"
    with subprocess.Popen([sys.executable, "-c", WRITES_FOR_EVER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(writes):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
    journal = SqlJournal.at(path)
    records = list(journal.records())
    assert len(records) >= said
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    assert all(record.commands is not None for record in records[:-1])
    assert {record.event.at for record in records} == {1.0}
    assert journal.append_event(TimerFired(at=3.0, timer_id="z")) == len(records) + 1
    journal.close()


def test_a_full_disk_is_an_error_of_the_world_and_leaves_what_was_written_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n" + WRITES_FOR_EVER
    done = subprocess.run(
        [sys.executable, "-c", limited, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ExternalError: the journal at sqlite:///" in done.stderr
    said = int(done.stdout.split()[-1])
    journal = SqlJournal.at(path)
    assert len(list(journal.records())) >= said
    journal.close()
