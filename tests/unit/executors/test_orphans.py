"""Processes that a dead driver left behind are ended, and nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ignite_scheduler.executors import orphans

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the platform has no /proc")


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_what_was_noted_and_still_lives_is_ended(tmp_path: Path) -> None:
    with sleeper() as first, sleeper() as second:
        orphans.note(tmp_path, (first.pid, second.pid))
        second.kill()
        second.wait()
        assert orphans.end(tmp_path) == (first.pid,)
        assert first.wait() == -9
    assert orphans.end(tmp_path) == ()


def test_a_process_that_was_given_the_same_id_later_is_left_alone(tmp_path: Path) -> None:
    with sleeper() as other:
        ticks = orphans.start_ticks(other.pid)
        assert ticks is not None
        (tmp_path / orphans.FILE).write_text(json.dumps({str(other.pid): ticks - 1}))
        assert orphans.end(tmp_path) == ()
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_no_note_or_a_broken_one_ends_nothing(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / orphans.FILE).write_text(content)
    assert orphans.end(tmp_path) == ()


def test_start_ticks_of_processes_that_are_not(tmp_path: Path) -> None:
    with sleeper() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped: a zombie
        assert orphans.start_ticks(process.pid) is None
    assert orphans.start_ticks(2**22 + 1) is None
    assert orphans.start_ticks(os.getpid()) is not None
