"""A gang whose stages have several devices: each device is watched, and observed, with its own share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ignite_scheduler.control.commands import StartGang
from ignite_scheduler.control.events import GangFinished, GangStarted, JobPlanned
from ignite_scheduler.cost import Assignment, StageChoice, evaluate
from ignite_scheduler.cost.observation import Observation
from ignite_scheduler.daemon.directory import Asked
from ignite_scheduler.daemon.observing import Observer
from ignite_scheduler.daemon.pace import Paces
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.formats import load_observation
from ignite_scheduler.formats.timeline import StepTimes, measured_document
from ignite_scheduler.pipeline import Action, Interval, Transfer, make_schedule
from ignite_scheduler.policy.candidates import candidates_of_plans
from ignite_scheduler.policy.pools import pools_of
from live_fakes import submission
from live_jobs import small_cluster, small_job, small_profile

CLUSTER = small_cluster(0.5, 0.25, 0.5)
JOB, PROFILE = small_job("a", steps=20, max_devices=3), small_profile()
IDS = ("lab/core-0", "lab/core-1", "lab/core-2")
CHOICE = Assignment(
    stages=(
        StageChoice(layers=(0, 1), devices=IDS[:2], samples=(3, 1)),
        StageChoice(layers=(2,), devices=IDS[2:], samples=(4,)),
    ),
    microbatches=(4, 4),
    schedule="gpipe",
)
PLAN = evaluate(JOB, PROFILE, CLUSTER, CHOICE)
CANDIDATE = candidates_of_plans((PLAN,), CLUSTER, pools_of(CLUSTER))[0]
START = StartGang(job_id="a", epoch=1, candidate=CANDIDATE, device_ids=PLAN.device_ids, saved=0.0)
FORWARD = (0.012, 0.008, 0.008)
"""By device: 2 layers × 3 samples × 1 ms ÷ 0.5; 2 × 1 × 1 ms ÷ 0.25; 1 × 4 × 1 ms ÷ 0.5."""


def test_each_device_is_held_against_its_own_share() -> None:
    paces = Paces(asked={"a": Asked(job=JOB, profile=PROFILE, work=20)}, cluster=CLUSTER, calibration=None)
    busy = [2 * 3 * forward for forward in FORWARD]
    assert paces.slow(START, busy, 100) == ()
    [drift] = paces.slow(START, (busy[0], 2 * busy[1], busy[2]), 100)
    assert drift.device == IDS[1]
    assert drift.ratio == pytest.approx(2.0)


def leave(directory: Path) -> None:
    """Steps in which each device takes a quarter longer than planned, and one of two messages is the longer one."""
    stages = (0, 0, 1)
    step = StepTimes(
        step_index=20,
        step=1.0,
        intervals=tuple(
            Interval(Action(stages[row], kind, k), row, 0.0, 1.25 * times * FORWARD[row])
            for row in range(3)
            for kind, times in (("F", 1), ("B", 2))
            for k in range(2)
        ),
        transfers=tuple(
            Transfer(source, target, kind, k, 0.0, seconds, (source, target))
            for source, target, kind in ((0, 1, "F"), (1, 0, "B"))
            for k in range(2)
            for seconds in (0.5, 0.25)
        ),
        finishes=((0, 1.0, 1.5), (1, 1.0, 1.5), (2, 1.0, 1.25)),
    )
    directory.mkdir()
    document = measured_document(make_schedule("gpipe", 2, 2), [step], {"job": "a"})
    (directory / "timeline.json").write_text(json.dumps(document))
    lines = [{"step": k, "step_s": 0.5} for k in range(1, 21)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    entries = [
        {"stage": stages[rank], "device": device, "rank": rank, "idle_bytes": 0, "peak_bytes": 100 + rank}
        for rank, device in enumerate(IDS)
    ]
    (directory / "memory.json").write_text(json.dumps(entries))


@pytest.fixture
def seen(tmp_path: Path) -> Observation:
    leave(tmp_path / "a")
    chronicle = Chronicle()
    observer = Observer(
        asked={"a": Asked(job=JOB, profile=PROFILE, work=20)},
        cluster=CLUSTER,
        stories=chronicle.jobs,
        promise={}.get,
        calibration=None,
        directory_of=tmp_path.joinpath,
        num_sharing=lambda plan: (3,) * len(plan.device_ids),
        origin=1e9,
    )
    events = (
        (submission("a", at=1.0, work=20.0), ()),
        (JobPlanned(at=1.5, job_id="a", planning=1, candidates=(CANDIDATE,)), (START,)),
        (GangStarted(at=2.0, job_id="a", epoch=1), ()),
        (GangFinished(at=12.0, job_id="a", epoch=1), ()),
    )
    for number, (event, commands) in enumerate(events, start=1):
        record = Record(sequence=number, event=event, commands=commands)
        chronicle.note(record)
        observer.note(record)
    assert observer.notices == []
    return load_observation(tmp_path / "a" / "observation.json")


def test_every_device_is_observed_and_the_longest_stands_for_its_stage(seen: Observation) -> None:
    assert [stage.device for stage in seen.stages] == [IDS[0], IDS[2]]
    assert [stage.device for stage in seen.others] == [IDS[1]]
    by_device = {stage.device: stage for stage in (*seen.stages, *seen.others)}
    for rank, device in enumerate(IDS):
        found = by_device[device]
        assert found.forward == pytest.approx((FORWARD[rank],) * 2)
        assert found.measured_forward is not None
        assert found.measured_forward.median == pytest.approx(1.25 * FORWARD[rank])
        assert found.peak_memory == 100.0 + rank
        assert found.planned_memory == pytest.approx([each.memory for s in PLAN.stages for each in s.devices][rank])
    assert by_device[IDS[0]].measured_update is None, "it ends with an all-reduce"
    assert by_device[IDS[2]].measured_update is not None


def test_messages_are_those_of_the_busiest_pair(seen: Observation) -> None:
    assert [edge.measured and (edge.measured.median, edge.measured.count) for edge in seen.edges] == [(0.5, 2)] * 2


def test_the_all_reduce_of_replicas_is_there(seen: Observation) -> None:
    [reduction] = seen.reductions
    assert reduction.stages == (0,)
    assert reduction.planned == pytest.approx(PLAN.stages[0].allreduce)
