"""What a run leaves: measured steps without warm-up, occupation of devices, a line for each event."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from ignite_scheduler.control.commands import StartGang
from ignite_scheduler.control.events import GangFailed, GangProgressed, JobPlanned
from ignite_scheduler.daemon.estimate import WARM_UP
from ignite_scheduler.daemon.eventlog import EventLogs
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.report import bars, plan_of, read_metrics
from ignite_scheduler.daemon.story import Attempt, JobStory
from live_fakes import submission, table_candidate
from live_jobs import small_cluster, small_job, start_of

CLUSTER = small_cluster(0.25, 0.25, 0.25)
START = start_of(small_job(), CLUSTER)


def attempt(epoch: int = 1, *, saved: int = 0, command: StartGang = START, **changes: object) -> Attempt:
    made = Attempt(
        epoch=epoch,
        candidate=command.candidate,
        device_ids=command.device_ids,
        commanded=10.0 * epoch,
        saved=saved,
        done=saved,
    )
    return replace(made, **changes)


def write(directory: Path, steps: dict[int, float], tail: str = "") -> None:
    lines = [json.dumps({"step": step, "loss": 1 / step, "step_s": seconds}) for step, seconds in steps.items()]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n" + tail)


def test_no_metrics_measure_nothing(tmp_path: Path) -> None:
    for attempts in ([], [attempt()]):
        measured = read_metrics(tmp_path, attempts)
        assert (measured.step, measured.num_steps, measured.losses) == (None, 0, ())


def test_the_warm_up_of_each_attempt_does_not_count(tmp_path: Path) -> None:
    slow = {step: 9.0 for first in (1, 21) for step in range(first, first + WARM_UP)}
    write(tmp_path, {step: slow.get(step, 2.0) for step in range(1, 41)}, tail='{"step": 41, "lo')
    measured = read_metrics(tmp_path, [attempt(1), attempt(2, saved=20)])
    assert (measured.step, measured.num_steps) == (2.0, 40 - 2 * WARM_UP)
    assert measured.losses[0] == 1.0
    assert len(measured.losses) == 40


def test_only_attempts_by_the_last_plan_are_measured(tmp_path: Path) -> None:
    other = start_of(small_job(), CLUSTER, split=(1, 1, 1))
    write(tmp_path, {step: 5.0 if step <= 20 else 2.0 for step in range(1, 41)})
    measured = read_metrics(tmp_path, [attempt(1, command=other), attempt(2, saved=20)])
    assert (measured.step, measured.num_steps) == (2.0, 20 - WARM_UP)


def test_bars_show_who_held_a_device_and_end_with_the_run() -> None:
    first = attempt(1, started=12.0, ended=19.0, ending="failed")
    story = JobStory(job_id="a", submitted=0.0, work=5.0, attempts=(first, attempt(2)))
    found = bars([story], 30.0)
    assert [(bar.device_id, bar.epoch, bar.start, bar.working, bar.end) for bar in found] == [
        ("lab/core-0", 1, 10.0, 12.0, 19.0),
        ("lab/core-0", 2, 20.0, None, 30.0),
        ("lab/core-1", 1, 10.0, 12.0, 19.0),
        ("lab/core-1", 2, 20.0, None, 30.0),
    ]


def test_the_plan_of_an_attempt_is_on_the_devices_that_it_had() -> None:
    moved = attempt(device_ids=("lab/core-2", "lab/core-0"))
    plan = plan_of(moved)
    assert plan is not None
    assert plan.device_ids == ("lab/core-2", "lab/core-0")
    assert plan_of(replace(moved, candidate=table_candidate())) is None


def test_event_logs_have_a_line_with_units_for_each_event_and_command(tmp_path: Path) -> None:
    logs = EventLogs(lambda job_id: tmp_path / job_id)
    planned = JobPlanned(at=1.0, job_id="a", planning=1, candidates=(table_candidate(),))
    events = [
        (submission("a", work=5.0), ()),
        (planned, (replace(START, job_id="a"),)),
        (GangProgressed(at=2.0, job_id="a", epoch=1, done=3.0, saved=2.0, rate=0.5), ()),
        (GangFailed(at=3.0, job_id="a", epoch=1, saved=2.0, reason="died", device="lab/core-0"), ()),
    ]
    for sequence, (event, commands) in enumerate(events, start=1):
        logs.note(Record(sequence=sequence, event=event, commands=commands))
    lines = [json.loads(line) for line in (tmp_path / "a" / "events.jsonl").read_text().splitlines()]
    assert [line.get("event") or line.get("command") for line in lines] == [
        "JobSubmitted",
        "JobPlanned",
        "StartGang",
        "GangProgressed",
        "GangFailed",
    ]
    assert lines[2]["devices"] == ["lab/core-0", "lab/core-1"]
    assert lines[3] == {
        "at_s": 2.0,
        "event": "GangProgressed",
        "epoch": 1,
        "done_steps": 3.0,
        "saved_steps": 2.0,
        "steps_per_s": 0.5,
    }
    assert (lines[4]["reason"], lines[4]["device"]) == ("died", "lab/core-0")


def test_event_logs_are_told_anew_by_the_next_process(tmp_path: Path) -> None:
    for _ in range(2):
        logs = EventLogs(lambda _: tmp_path)
        logs.note(Record(sequence=1, event=submission("a"), commands=()))
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 1
    assert pytest.approx(0.0) == json.loads((tmp_path / "events.jsonl").read_text())["at_s"]


def test_event_logs_keep_no_file_open(tmp_path: Path) -> None:
    logs = EventLogs(lambda job_id: tmp_path / job_id)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/dev/fd")) + 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        for sequence in range(2 * few):
            logs.note(Record(sequence=sequence, event=submission(f"job{sequence}"), commands=()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(tmp_path.glob("*/events.jsonl"))) == 2 * few
