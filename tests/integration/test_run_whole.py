"""Small jobs planned, scheduled and trained for real, in the foreground, from request to report."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ignite_scheduler import wiring
from ignite_scheduler.control import State
from ignite_scheduler.control.events import ClusterObserved, JobPlanned
from ignite_scheduler.daemon.directory import slug
from ignite_scheduler.daemon.report import RunReport
from ignite_scheduler.daemon.view import Snapshot
from ignite_scheduler.errors import ConflictError, InputError, NotFoundError
from ignite_scheduler.formats import load_observation
from ignite_scheduler.formats.plan import load_plan
from ignite_scheduler.model import Infeasible
from ignite_scheduler.store import SqlJournal
from live_jobs import small_cluster, small_job, small_profile

pytestmark = pytest.mark.torch
STEPS = 30


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, list[Snapshot]]:
    """Three jobs, one of a name that is no file name, one that cannot be planned."""
    directory = tmp_path_factory.mktemp("runs") / "first"
    jobs = [
        wiring.ask(small_job("a", steps=STEPS), small_profile(), startup=0.2),
        wiring.ask(small_job("b c", steps=STEPS, priority=5), small_profile(), submitted=0.3, startup=0.2),
        wiring.ask(small_job("too late", steps=STEPS, deadline=0.01), small_profile(), submitted=0.3),
    ]
    seen: list[Snapshot] = []
    report = wiring.run(jobs, small_cluster(0.5, 0.5), directory=directory, watch=seen.append)
    return report, seen


def test_all_that_can_finish_does_and_the_rest_says_why(done: tuple[RunReport, list[Snapshot]]) -> None:
    report, _ = done
    assert report.outcome == "settled"
    assert not report.finished
    assert {job.job_id: job.state for job in report.jobs} == {
        "a": State.FINISHED,
        "b c": State.FINISHED,
        "too late": State.FAILED,
    }
    refused = report.jobs[2]
    assert isinstance(refused.refused, Infeasible)
    assert refused.refused.code == "deadline"
    assert refused.plans == ()


def test_each_job_is_told_from_promise_to_measurement(done: tuple[RunReport, list[Snapshot]]) -> None:
    for job in done[0].jobs[:2]:
        story = job.story
        assert story.planned is not None
        assert story.started is not None
        assert story.finished is not None
        assert 0 <= story.submitted <= story.planned <= story.started < story.finished <= done[0].end
        assert job.promise is not None
        assert job.promise.finish_low <= job.promise.finish_high
        assert job.planned_step == job.plans[0].predicted.step
        assert job.measured.num_steps == STEPS - 5
        assert job.measured.step is not None
        assert job.step_error is not None
        assert len(job.measured.losses) == STEPS
        assert job.measured.losses[-1] < job.measured.losses[0]
        assert job.startups == (story.attempts[0].startup,)


def test_emulation_is_said_out_loud(done: tuple[RunReport, list[Snapshot]]) -> None:
    assert "emulated on this machine: lab/core-0 as 0.5 of a core" in done[0].notices[0]


def test_no_device_is_held_twice_at_once(done: tuple[RunReport, list[Snapshot]]) -> None:
    report, _ = done
    assert {bar.job_id for bar in report.bars} == {"a", "b c"}
    free_from: dict[str, float] = {}
    for bar in report.bars:
        assert bar.start >= free_from.get(bar.device_id, 0.0)
        free_from[bar.device_id] = bar.end


def test_the_run_directory_holds_what_the_contract_says(done: tuple[RunReport, list[Snapshot]]) -> None:
    report, _ = done
    for job in report.jobs[:2]:
        assert job.directory == report.directory / "jobs" / slug(job.job_id)
        assert {"plan.json", "metrics.jsonl", "timeline.json", "checkpoints", "events.jsonl", "observation.json"} <= {
            path.name for path in job.directory.iterdir()
        }
        assert load_plan(job.directory / "plan.json").device_ids == job.story.attempts[-1].device_ids
        metrics = [json.loads(line) for line in (job.directory / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
        assert {"step", "loss", "grad_norm", "step_s", "samples_per_s"} <= metrics[0].keys()


def test_what_each_job_showed_is_written_down(done: tuple[RunReport, list[Snapshot]]) -> None:
    for job in done[0].jobs[:2]:
        seen, plan = load_observation(job.directory / "observation.json"), job.plans[-1]
        assert len(seen.stages) == plan.num_stages
        assert sorted(each.device for each in (*seen.stages, *seen.others)) == sorted(plan.device_ids)
        for stage, planned in zip(seen.stages, plan.stages, strict=True):
            assert stage.forward[0] + stage.backward[0] == pytest.approx(planned.forward + planned.backward)
            assert (stage.measured_update is None) == (len(planned.devices) > 1)
        for each in (*seen.stages, *seen.others):
            assert each.measured_forward is not None
            assert each.measured_backward is not None
            assert each.num_sharing == len(plan.device_ids)
        assert all(edge.measured is not None for edge in seen.edges)
        assert seen.planned_step == pytest.approx(plan.predicted.step)
        assert (seen.step.median, seen.step.count) == (job.measured.step, STEPS - 5)
        assert seen.startup == job.startups[-1] + job.measured.slow_start
        assert len(seen.checkpoints) == STEPS // 2  # one every two steps, the last included
        assert all(num_bytes > 0 and seconds > 0 for num_bytes, seconds in seen.checkpoints)
        assert seen.promised is not None
        assert seen.promised.finished == job.story.jct


def test_the_journal_replays_into_a_fresh_controller(done: tuple[RunReport, list[Snapshot]]) -> None:
    directory = done[0].directory
    assert wiring.check_replay(directory) == ()
    journal = SqlJournal.at(directory / "journal.sqlite")
    records = list(journal.records())
    journal.close()
    assert all(record.commands is not None for record in records)
    assert {ClusterObserved, JobPlanned} <= {type(record.event) for record in records}
    assert [record.event.at for record in records] == sorted(record.event.at for record in records)


def test_the_view_followed_the_run(done: tuple[RunReport, list[Snapshot]]) -> None:
    _, seen = done
    last = seen[-1]
    assert {view.job_id: view.done for view in last.jobs if view.state is State.FINISHED} == {"a": 30, "b c": 30}
    running = [view for each in seen for view in each.jobs if view.state is State.RUNNING and view.pace is not None]
    assert running
    assert all(view.device_ids for view in running)
    assert set(last.holders.values()) == {None}


def test_a_run_that_is_over_can_be_resumed_and_does_nothing(done: tuple[RunReport, list[Snapshot]]) -> None:
    before = done[0]
    again = wiring.resume(before.directory)
    assert again.outcome == "settled"
    assert [job.story.attempts for job in again.jobs] == [job.story.attempts for job in before.jobs]
    assert [job.promise for job in again.jobs] == [job.promise for job in before.jobs]
    with pytest.raises(ConflictError, match="--resume"):
        wiring.run([wiring.ask(small_job(), small_profile())], small_cluster(), directory=before.directory)


def test_wrong_requests_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    place = tmp_path / "run"
    asked = wiring.ask(small_job(), small_profile())
    with pytest.raises(InputError, match="at least one job"):
        wiring.run([], small_cluster(), directory=place)
    with pytest.raises(InputError, match="twice"):
        wiring.run([asked, asked], small_cluster(), directory=place)
    with pytest.raises(InputError, match="no policy 'fofi'"):
        wiring.run([asked], small_cluster(), directory=place, policy="fofi")
    with pytest.raises(NotFoundError, match="no run in"):
        wiring.resume(place)
    assert not place.exists()


def test_a_run_can_be_driven_from_within_a_loop_such_as_a_notebooks(done: tuple[RunReport, list[Snapshot]]) -> None:
    async def cell() -> RunReport:
        return wiring.resume(done[0].directory)

    assert asyncio.run(cell()).outcome == "settled"


def test_an_interrupt_of_a_notebooks_cell_saves_and_stops_the_run(tmp_path: Path) -> None:
    told: list[Snapshot] = []

    def interrupting(seen: Snapshot) -> None:
        if any(job.state is State.RUNNING for job in seen.jobs) and not told:
            told.append(seen)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def cell() -> RunReport:
        job = wiring.ask(small_job("long", steps=100_000), small_profile())
        return wiring.run([job], small_cluster(0.5), directory=tmp_path / "run", watch=interrupting)

    loop = asyncio.new_event_loop()
    try:
        report = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert report.outcome == "interrupted"
    assert report.jobs[0].state is State.QUEUED


def test_a_device_that_this_machine_cannot_play_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 1"):
        wiring.run([wiring.ask(small_job(), small_profile())], small_cluster(2.0), directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()
