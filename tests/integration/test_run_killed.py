"""A run whose process is interrupted or killed at any moment goes on where it was: none lost, none twice, no orphan."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ignite_scheduler import wiring
from ignite_scheduler.control.events import GangFinished, GangStarted, JobSubmitted
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.report import bars
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.executors import orphans
from ignite_scheduler.formats import load_observation
from ignite_scheduler.store import SqlJournal
from live_waiting import processes_marked, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for orphans in /proc"),
]
DRIVER = Path(__file__).with_name("run_driver.py")
STEPS, JOBS = 150, ("a", "b", "c")


class Driver:
    """One process that drives the run, in a session of its own as a terminal would have it."""

    def __init__(self, verb: str, directory: Path) -> None:
        self.mark = f"IGNITE_TEST_MARK={uuid.uuid4()}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), verb, str(directory)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, name: value},
            start_new_session=True,
        )

    def lines(self) -> Iterator[dict]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until_done(self, steps: float) -> None:
        """Read on until the jobs have done so many steps together."""
        for line in self.lines():
            if sum(line.get("done", {}).values()) >= steps or "outcome" in line:
                return

    def last_line(self) -> dict:
        *_, last = self.lines()
        assert self.process.wait() == 0
        return last

    def kill(self) -> None:
        """As a power cut to this one process; the others that it started must find out by themselves."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def check_no_orphans(self) -> None:
        wait_until(lambda: not processes_marked(self.mark), "processes of a killed run are still there")


class Drivers:
    """All processes that a test started."""

    def __init__(self) -> None:
        self.all: list[Driver] = []

    def start(self, verb: str, directory: Path) -> Driver:
        self.all.append(Driver(verb, directory))
        return self.all[-1]


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    started = Drivers()
    yield started
    for driver in started.all:
        driver.kill()
        driver.check_no_orphans()


def check_whole(directory: Path) -> None:
    """Every job was submitted and finished once, never ran twice at once, did every step; and the journal replays."""
    assert wiring.check_replay(directory) == ()
    whole = records(directory)
    events = [record.event for record in whole]
    for kind in (JobSubmitted, GangFinished):
        assert sorted(event.job_id for event in events if isinstance(event, kind)) == list(JOBS)
    started = [(event.job_id, event.epoch) for event in events if isinstance(event, GangStarted)]
    assert len(started) == len(set(started))
    free_from: dict[str, float] = {}
    for bar in bars(Chronicle(whole).jobs.values(), events[-1].at):
        assert bar.start >= free_from.get(bar.device_id, 0.0)
        free_from[bar.device_id] = bar.end
    for job in JOBS:
        lines = (directory / "jobs" / job / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, STEPS + 1))
        assert load_observation(directory / "jobs" / job / "observation.json").promised is not None


def records(directory: Path) -> list[Record]:
    journal = SqlJournal.at(directory / "journal.sqlite")
    try:
        return list(journal.records())
    finally:
        journal.close()


def test_interrupts_from_the_terminal_save_once_and_kill_twice(tmp_path: Path, drivers: Drivers) -> None:
    first = drivers.start("run", tmp_path / "run")
    first.until_done(60)
    os.killpg(first.process.pid, signal.SIGINT)  # a terminal sends it to every process of the group
    said = first.last_line()
    assert said["outcome"] == "interrupted"
    assert set(said["reasons"].values()) == {"interrupted"}
    stories = Chronicle(records(tmp_path / "run")).jobs
    saved = {job_id: story.done for job_id, story in stories.items()}
    assert sum(saved.values()) >= 60
    assert {attempt.ending for story in stories.values() for attempt in story.attempts} == {"stopped"}
    first.check_no_orphans()

    second = drivers.start("resume", tmp_path / "run")
    second.until_done(sum(saved.values()) + 20)
    os.kill(second.process.pid, signal.SIGINT)
    os.kill(second.process.pid, signal.SIGTERM)
    assert second.last_line()["outcome"] in ("killed", "interrupted")
    second.check_no_orphans()

    third = drivers.start("resume", tmp_path / "run")
    assert set(third.last_line()["states"].values()) == {"finished"}
    check_whole(tmp_path / "run")
    for job_id, story in Chronicle(records(tmp_path / "run")).jobs.items():
        assert [attempt.saved for attempt in story.attempts if attempt.epoch == 2] in ([], [saved.get(job_id, 0)])


@pytest.mark.parametrize("seed", [1])
def test_kills_at_random_moments(tmp_path: Path, drivers: Drivers, seed: int) -> None:
    draw = random.Random(seed)
    for verb in ("run", "resume"):
        driver = drivers.start(verb, tmp_path / "run")
        driver.until_done(draw.uniform(0, len(JOBS) * STEPS))
        driver.kill()
        driver.check_no_orphans()
    last = drivers.start("resume", tmp_path / "run")
    assert set(last.last_line()["states"].values()) == {"finished"}
    check_whole(tmp_path / "run")


def test_a_rank_that_hangs_on_after_its_driver_died_is_ended_before_its_job_runs_again(
    tmp_path: Path, drivers: Drivers
) -> None:
    first = drivers.start("run", tmp_path / "run")
    first.until_done(20)
    noted = tmp_path / "run" / "jobs" / "a" / "attempts" / "0001" / orphans.FILE
    frozen = int(next(iter(json.loads(noted.read_text()))))
    os.kill(frozen, signal.SIGSTOP)
    first.kill()
    assert frozen in processes_marked(first.mark)

    second = drivers.start("resume", tmp_path / "run")
    assert set(second.last_line()["states"].values()) == {"finished"}
    first.check_no_orphans()
    check_whole(tmp_path / "run")
