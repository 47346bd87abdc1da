"""What people see of a run while it goes on."""

from __future__ import annotations

import pytest
from rich.console import Console

from ignite_scheduler.cli import live
from ignite_scheduler.control import State
from ignite_scheduler.daemon.view import JobView, Pace, Snapshot
from ignite_scheduler.policy import Reason


def job(name: str, state: State, **changes: object) -> JobView:
    facts: dict[str, object] = {
        "job_id": name, "state": state, "reason": None, "device_ids": (), "epoch": 1, "done": 0.0, "work": 40.0,
        "submitted": 1.0, "started": None, "finished": None, "start": None, "finish_low": None, "finish_high": None,
        "pace": None,
    }  # fmt: skip
    return JobView(**(facts | changes))  # type: ignore[arg-type]


RUNNING = job(
    "a",
    State.RUNNING,
    device_ids=("n/x", "n/y"),
    done=14.0,
    started=2.0,
    pace=Pace(done=14, loss=2.3, step=0.3, remaining=7.8),
)
FRESH = job("b", State.RUNNING, device_ids=("n/z",), started=9.0, pace=Pace(done=0))
QUEUED = job("c", State.QUEUED, reason=Reason(code="busy", text="all devices are busy"), start=30.0)
FINISHED = job("d", State.FINISHED, done=40.0, started=2.0, finished=21.0)
HOLDERS = {"n/x": "a", "n/y": "a", "n/z": "b", "n/free": None}


def seen(*jobs: JobView, now: float = 10.0, **changes: object) -> Snapshot:
    return Snapshot(now=now, jobs=jobs, arriving=(), holders=HOLDERS, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "said"),
    [(RUNNING, "7.8s left"), (FRESH, "estimating"), (QUEUED, "starts in 20s"), (FINISHED, "took 20s")],
    ids=["running", "fresh", "queued", "finished"],
)
def test_the_outlook_is_a_number_only_where_there_is_one(view: JobView, said: str) -> None:
    assert live.eta(view, 10.0) == said


def test_the_live_view_shows_jobs_devices_and_who_is_to_come() -> None:
    out = Console(width=160, record=True, color_system=None, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    with out.file:
        snapshot = Snapshot(
            now=10.0, jobs=(RUNNING, FRESH, QUEUED, FINISHED), arriving=(("e", 15.0),), holders=HOLDERS, stopping=True
        )
        out.print(live.live_view(snapshot))
        text = out.export_text()

    for word in ("n/x a", "n/free ·", "14/40", "300ms", "2.3", "estimating", "all devices are busy", "in 5s", "saving"):
        assert word in text


def test_without_a_terminal_each_change_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = live.PlainLines()
    waiting = job("a", State.QUEUED, reason=Reason(code="busy", text="all devices are busy"))

    lines.show(seen(waiting, now=1.0))
    lines.show(seen(waiting, now=2.0))
    lines.show(seen(RUNNING, now=3.0))
    lines.show(seen(RUNNING, now=4.0))
    lines.show(seen(RUNNING, now=3.0 + live.LINE_EVERY))

    out, err = capsys.readouterr()
    said = err.splitlines()
    assert out == ""
    assert len(said) == 3
    assert "queued, all devices are busy" in said[0]
    assert "running, on n/x, n/y, step 14 of 40, loss 2.3, 7.8s left" in said[1]
    assert "8.0 s" in said[2]
