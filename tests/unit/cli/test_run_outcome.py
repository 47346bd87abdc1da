"""What a run amounts to: exit code, table, document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ignite_scheduler.api import Ran
from ignite_scheduler.cli import run
from ignite_scheduler.control import Promise, State
from ignite_scheduler.cost.drift import Drift
from ignite_scheduler.daemon.report import Bar, JobReport, Measured, RunReport
from ignite_scheduler.daemon.story import JobStory
from ignite_scheduler.formats import parse_cluster
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy import Reason

CLUSTER = parse_cluster(
    {
        "version": 1, "name": "pair",
        "nodes": [{"name": "n", "devices": [{"kind": "box", "count": 2, "speed": 0.5, "memory": "1GB"}]}],
    }
)  # fmt: skip


def job(name: str, state: State, *, refused: Infeasible | None = None, finished: float | None = None) -> JobReport:
    return JobReport(
        story=JobStory(job_id=name, submitted=2.0, work=40.0, finished=finished),
        state=state,
        reason=None if finished else Reason(code="why", text="for a reason"),
        refused=refused,
        promise=Promise(at=2.0, start=3.0, finish_low=10.0, finish_high=14.0),
        plans=(),
        measured=Measured(step=0.25, num_steps=35, losses=(2.0, 1.0)),
        directory=Path("run") / "jobs" / name,
    )


def ran(*jobs: JobReport, outcome: Any = "settled") -> Ran:
    bar = Bar(device_id="n/box-0", job_id="a", epoch=1, start=3.0, working=4.0, end=15.0)
    report = RunReport(
        outcome=outcome, policy="ignite", directory=Path("run"), jobs=jobs, bars=(bar,),
        notices=("emulated on this machine",), end=15.0,
    )  # fmt: skip
    return Ran(report=report, cluster=CLUSTER)


DONE = job("a", State.FINISHED, finished=15.0)
FAILED = job("b", State.FAILED)
REFUSED = job("c", State.FAILED, refused=Infeasible(code="memory", text="does not fit"))
LATE = job("d", State.FAILED, refused=Infeasible(code="deadline", text="too late", earliest_finish=9.0))


@pytest.mark.parametrize(
    ("jobs", "outcome", "code"),
    [
        ((DONE,), "settled", 0),
        ((DONE, FAILED), "settled", 1),
        ((FAILED, REFUSED), "settled", 1),
        ((DONE, REFUSED), "settled", 3),
        ((LATE,), "settled", 4),
        ((LATE, REFUSED), "settled", 3),
        ((DONE, job("e", State.QUEUED)), "stalled", 1),
        ((job("e", State.QUEUED),), "interrupted", 130),
        ((job("e", State.QUEUED),), "killed", 130),
    ],
)
def test_the_exit_code_is_that_of_the_worst_job(jobs: tuple[JobReport, ...], outcome: str, code: int) -> None:
    assert run.exit_code(ran(*jobs, outcome=outcome)) == code


def test_the_table_holds_promise_and_truth_side_by_side() -> None:
    out = Console(width=160, record=True, color_system=None, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    with out.file:
        out.print(run.outcome_table(ran(DONE)))
        text = out.export_text()

    # Promised 10 to 14 (12 in the middle), real 15, from a submission at 2: 13 seconds instead of 10, and too late.
    for word in ("finished", "250ms", "10s to 14s", "15s", "+30.0 %", "no", "2 → 1"):
        assert word in text


def test_the_document_is_json_with_units_in_its_keys() -> None:
    document = json.loads(json.dumps(ran(DONE, REFUSED).to_dict(), allow_nan=False))

    first, second = document["jobs"]
    assert first["measured_step_s"] == 0.25
    assert first["finish_s"] == 15.0
    assert second["refused"] == "does not fit"


def test_promise_error_and_whether_it_was_kept_stand_beside_what_happened() -> None:
    kept, broken = job("k", State.FINISHED, finished=11.0), job("n", State.FINISHED, finished=9.0)
    entries = {entry["name"]: entry for entry in ran(DONE, kept, broken, FAILED).to_dict()["jobs"]}

    assert (entries["a"]["promised_finish_low_s"], entries["a"]["promised_finish_high_s"]) == (10.0, 14.0)
    assert entries["a"]["promise_error"] == pytest.approx(0.3)
    assert entries["k"]["promise_error"] == pytest.approx(-0.1)
    assert [entries[name]["promise_kept"] for name in "aknb"] == [False, True, False, None]
    assert entries["b"]["promise_error"] is None


def test_without_a_range_there_is_nothing_to_keep() -> None:
    point = replace(DONE, promise=Promise(at=2.0, start=3.0, finish_low=15.0, finish_high=15.0))

    assert point.promise_kept is None
    assert run.kept_text(point) == "–"
    assert run.promise_text(point) == "15s"


def test_slow_devices_are_named_in_document_and_notebook() -> None:
    slow = Drift(device="n/box-1", kind="box", ratio=1.62, limit=1.25, num_actions=40)
    told = ran(DONE)
    told = replace(told, report=replace(told.report, slow=(slow,)))

    [entry] = told.to_dict()["slow_devices"]
    assert entry == {"device": "n/box-1", "kind": "box", "ratio": 1.62, "limit": 1.25, "num_actions": 40, "slow": True}
    assert "n/box-1 computes 62 % longer than profiled" in told._repr_html_()


def test_a_run_shows_itself_in_a_notebook() -> None:
    shown = ran(DONE)._repr_html_()

    assert "emulated" in shown
    assert "<svg" in shown
    assert "n/box-1" in shown
