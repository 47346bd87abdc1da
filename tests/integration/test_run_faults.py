"""Jobs whose processes die under them, or that cannot work at all."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ignite_scheduler import wiring
from ignite_scheduler.control import State
from ignite_scheduler.daemon.view import Snapshot
from ignite_scheduler.errors import InputError
from ignite_scheduler.executors import orphans
from ignite_scheduler.model import Reference
from live_jobs import small_cluster, small_job, small_profile

pytestmark = pytest.mark.torch


def test_a_job_whose_rank_is_killed_goes_on_from_its_checkpoint_and_the_device_is_named(tmp_path: Path) -> None:
    place = tmp_path / "run"
    noted = place / "jobs" / "rows" / "attempts" / "0001" / orphans.FILE
    killed: list[int] = []

    def strike(now: Snapshot) -> None:
        if not killed and now.jobs and now.jobs[0].done >= 15:
            killed.append(int(list(json.loads(noted.read_text()))[-1]))
            os.kill(killed[0], signal.SIGKILL)

    asked = wiring.ask(small_job(steps=400, every=10), small_profile())
    report = wiring.run([asked], small_cluster(0.5, 0.5), directory=place, policy="fifo", watch=strike)
    (job,) = report.jobs
    assert job.state is State.FINISHED
    first, second = job.story.attempts
    assert first.ending == "failed"
    assert first.reason is not None
    assert "SIGKILL" in first.reason
    assert first.device == first.device_ids[-1]
    assert second.ending == "finished"
    assert second.saved == first.done >= 10
    assert second.saved % 10 == 0
    steps = [json.loads(line)["step"] for line in (job.directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 401))


def test_a_watcher_that_fails_saves_and_stops_the_run_and_its_error_comes_out(tmp_path: Path) -> None:
    def watch(now: Snapshot) -> None:
        if now.jobs and now.jobs[0].done >= 10:
            raise RuntimeError("no screen")

    asked = wiring.ask(small_job(steps=400, every=None), small_profile())
    with pytest.raises(RuntimeError, match="no screen"):
        wiring.run([asked], small_cluster(0.5, 0.5), directory=tmp_path / "run", policy="fifo", watch=watch)
    (job,) = wiring.resume(tmp_path / "run").jobs
    assert job.state is State.FINISHED
    assert [attempt.ending for attempt in job.story.attempts] == ["stopped", "finished"]
    assert job.story.attempts[1].saved >= 10


def test_a_job_that_cannot_work_fails_after_some_attempts_with_its_own_words(tmp_path: Path) -> None:
    broken = replace(small_job("broken"), data=Reference(zoo="synthetic_rows", args={"features": 7}))
    asked = [wiring.ask(broken, small_profile()), wiring.ask(small_job("whole"), small_profile())]
    report = wiring.run(asked, small_cluster(0.5, 0.5), directory=tmp_path / "run", policy="fifo")
    first, second = report.jobs
    assert (first.state, second.state) == (State.FAILED, State.FINISHED)
    assert first.reason is not None
    assert first.reason.code == "attempts"
    assert "linear0" in first.reason.text
    assert len(first.story.attempts) == 3
    assert wiring.check_replay(tmp_path / "run") == ()


def test_a_job_that_can_only_be_planned_is_refused_before_anything_is_written() -> None:
    with pytest.raises(InputError, match="can be planned but not run: add its data"):
        wiring.ask(replace(small_job(), data=None), small_profile())
    with pytest.raises(InputError, match="can be planned but not run: add its model's code"):
        wiring.ask(replace(small_job(), model=Reference(profile="x.json")), small_profile())
    with pytest.raises(InputError, match="needs steps or epochs"):
        wiring.ask(replace(small_job(), steps=None), small_profile())


def test_epochs_become_steps_by_the_size_of_the_data() -> None:
    data = Reference(zoo="synthetic_rows", args={"length": 100})
    asked = wiring.ask(replace(small_job(), steps=None, epochs=3, data=data), small_profile())
    assert asked.work == 38  # 300 samples in batches of 8, the last one filled from the next pass
