"""What a finished job leaves for ``ignite calibrate``: planned before calibration, measured as it was played."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.control.events import GangFinished, GangStarted, JobPlanned
from ignite_scheduler.control.records import Promise
from ignite_scheduler.cost import stage_durations
from ignite_scheduler.cost.calibration import Calibration, KindCalibration, Quantiles
from ignite_scheduler.cost.observation import Observation, Sample
from ignite_scheduler.daemon.directory import Asked
from ignite_scheduler.daemon.observing import Observer
from ignite_scheduler.daemon.placement import choice_of
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.formats import load_observation
from ignite_scheduler.formats.run_files import attempt_directory
from ignite_scheduler.formats.timeline import StepTimes, measured_document
from ignite_scheduler.pipeline import Interval, Timeline, Transfer, timeline
from live_fakes import submission
from live_jobs import small_cluster, small_job, small_profile, start_of

CLUSTER = small_cluster(0.5, 0.5)
JOB, PROFILE = small_job("a", steps=20), small_profile()
START = start_of(JOB, CLUSTER)
PLAN = START.candidate.plan
LEARNT = Calibration(kinds={"core": KindCalibration(rate=3.0)}, num_runs=2)


def planned_timeline() -> Timeline:
    assert PLAN is not None
    return timeline(*stage_durations(JOB, PROFILE, CLUSTER, choice_of(PLAN, PROFILE)))


def leave(directory: Path, *, stretch: float = 1.25) -> None:
    """What the engine leaves: two steps, every action and message ``stretch`` times as long as planned."""
    line = planned_timeline()

    def stretched(part: Any) -> Any:
        return part._replace(end=part.start + stretch * (part.end - part.start))

    step = StepTimes(
        step_index=20,
        step=1.0,
        intervals=tuple(map(stretched, line.intervals)),
        transfers=tuple(map(stretched, line.transfers)),
        finishes=((0, 1.0, 1.1), (1, 1.0, 1.3)),
    )
    assert all(isinstance(each, Interval) for each in step.intervals)
    assert all(isinstance(each, Transfer) for each in step.transfers)
    slow = replace(step, step_index=1, intervals=tuple(i._replace(end=i.end + 9.0) for i in step.intervals))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "timeline.json").write_text(json.dumps(measured_document(line.schedule, [slow, step], {"job": "a"})))
    metrics = [{"step": k, "step_s": 9.0 if k <= 5 else 0.5 + 0.01 * (k % 2)} for k in range(1, 21)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in metrics))
    own = attempt_directory(directory, 1)
    own.mkdir(parents=True)
    (own / "saves.jsonl").write_text('{"step": 10, "bytes": 1000, "save_s": 0.25}\n{"step": 20, "by')
    memory = [{"stage": 1, "device": "lab/core-1", "rank": 1, "idle_bytes": 100, "peak_bytes": 350}]
    (directory / "memory.json").write_text(json.dumps(memory))


EVENTS = (
    (submission("a", at=1.0, work=20.0), ()),
    (JobPlanned(at=1.5, job_id="a", planning=1, candidates=(START.candidate,)), (START,)),
    (GangStarted(at=2.0, job_id="a", epoch=1), ()),
    (GangFinished(at=12.0, job_id="a", epoch=1), ()),
)
RECORDS = [Record(sequence=n, event=event, commands=commands) for n, (event, commands) in enumerate(EVENTS, start=1)]
OTHER = replace(START, job_id="b", device_ids=START.device_ids[::-1])
BESIDE = [
    Record(sequence=11, event=submission("b", at=0.0), commands=()),
    Record(sequence=12, event=JobPlanned(at=0.5, job_id="b", planning=1, candidates=()), commands=(OTHER,)),
]


def observe(root: Path, records: list[Record], calibration: Calibration | None = None) -> Observer:
    """Tell an observer of the records, as a process does that runs or reads them."""
    chronicle = Chronicle()
    observer = Observer(
        asked={name: Asked(job=replace(JOB, name=name), profile=PROFILE, work=20) for name in "ab"},
        cluster=CLUSTER,
        stories=chronicle.jobs,
        promise={"a": Promise(at=1.5, start=1.5, finish_low=11.0, finish_high=13.0)}.get,
        calibration=calibration,
        directory_of=root.joinpath,
        num_sharing=lambda plan: (plan.num_stages,) * plan.num_stages,
        origin=1e9,
    )
    for record in records:
        chronicle.note(record)
        observer.note(record)
    return observer


@pytest.fixture
def seen(tmp_path: Path) -> Observation:
    leave(tmp_path / "a")
    assert observe(tmp_path, RECORDS).notices == []
    return load_observation(tmp_path / "a" / "observation.json")


def test_planned_stands_beside_measured_for_each_stage_and_message(seen: Observation) -> None:
    # Layers of 1 + 2 ms a sample at half a core, microbatches of 4: stage 0 has two of them, stage 1 one.
    first, second = seen.stages
    assert first.forward == pytest.approx((0.016, 0.016))
    assert second.backward == pytest.approx((0.016, 0.016))
    assert first.measured_forward == Sample(median=pytest.approx(0.02), spread=pytest.approx(0.0), count=2)
    assert second.measured_backward == Sample(median=pytest.approx(0.02), spread=pytest.approx(0.0), count=2)
    assert [stage.measured_update and stage.measured_update.median for stage in seen.stages] == pytest.approx(
        [0.1, 0.3]
    )
    assert {(edge.source, edge.target, edge.kind) for edge in seen.edges} == {(0, 1, "F"), (1, 0, "B")}
    for edge in seen.edges:
        assert edge.bytes == 4 * 256
        assert edge.measured is not None
        assert edge.measured.median == pytest.approx(1.25 * edge.planned[0])
    assert seen.planned_step == pytest.approx(float(planned_timeline().step))


def test_the_step_is_the_median_after_the_warm_up(seen: Observation) -> None:
    assert seen.step == Sample(median=0.5, spread=pytest.approx(0.02), count=15)


def test_start_saves_memory_and_company_are_there(seen: Observation) -> None:
    assert seen.startup == 0.5 + 5 * (9.0 - 0.5), "the first five steps are slow"
    assert seen.checkpoints == ((1000.0, 0.25),)  # the line that was cut off is no save
    assert [stage.peak_memory for stage in seen.stages] == [None, 250.0]
    assert [stage.num_sharing for stage in seen.stages] == [2, 2]
    assert not seen.beside_others


def test_promise_and_truth_count_from_the_submission(seen: Observation) -> None:
    assert PLAN is not None
    promised, step = seen.promised, PLAN.predicted.step
    assert promised is not None
    assert (promised.finish_low, promised.finish_high, promised.finished, promised.kept) == (10.0, 12.0, 11.0, True)
    assert promised.step == Quantiles(low=step, middle=step, high=step)
    assert promised.calibration is None


def test_a_gang_beside_it_is_told(tmp_path: Path) -> None:
    leave(tmp_path / "a")
    observe(tmp_path, BESIDE + RECORDS)
    assert load_observation(tmp_path / "a" / "observation.json").beside_others


def test_what_is_planned_is_before_calibration(tmp_path: Path, seen: Observation) -> None:
    leave(tmp_path / "more" / "a")
    observe(tmp_path / "more", RECORDS, LEARNT)
    again = load_observation(tmp_path / "more" / "a" / "observation.json")
    assert again.stages == seen.stages
    assert again.planned_step == seen.planned_step
    assert again.promised is not None
    assert (again.promised.calibration or "").startswith("2 runs (")


def test_the_next_process_makes_up_for_one_that_was_killed_and_repeats_nothing(tmp_path: Path) -> None:
    leave(tmp_path / "a")
    observe(tmp_path, RECORDS[:-1])
    path = tmp_path / "a" / "observation.json"
    assert not path.exists()
    observe(tmp_path, RECORDS)
    path.write_text(path.read_text() + "\n")
    observe(tmp_path, RECORDS)
    assert path.read_text().endswith("\n\n")  # written once
    assert [place.name for place in (tmp_path / "a").glob(".obs*")] == []


def test_a_job_whose_files_are_broken_costs_a_notice_and_not_the_run(tmp_path: Path) -> None:
    leave(tmp_path / "a")
    (tmp_path / "a" / "timeline.json").write_text("{")
    observer = observe(tmp_path, RECORDS)
    assert "a: no observation.json was written" in observer.notices[0]
    assert not (tmp_path / "a" / "observation.json").exists()


def test_a_job_too_short_to_be_measured_leaves_nothing(tmp_path: Path) -> None:
    leave(tmp_path / "a")
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1, "step_s": 1.0}\n')
    assert observe(tmp_path, RECORDS).notices == []
    assert not (tmp_path / "a" / "observation.json").exists()


def test_slow_devices_are_told_at_the_end_from_what_was_left(tmp_path: Path) -> None:
    leave(tmp_path / "a", stretch=1.5)
    observer = observe(tmp_path, RECORDS)
    assert observer.slow() == ()  # four actions a device say nothing
    path = tmp_path / "a" / "observation.json"
    document = json.loads(path.read_text())
    for part in ("measured_forward", "measured_backward"):
        document["stages"][1][part]["count"] = 50
    path.write_text(json.dumps(document))
    [drift] = observer.slow()
    assert drift.device == "lab/core-1"
    assert drift.ratio == pytest.approx(1.5)
