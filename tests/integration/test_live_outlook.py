"""What a watcher of ``ignite run`` is told, from reports to the words on the screen: its gangs are scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ignite_scheduler import wiring
from ignite_scheduler.cli import live
from ignite_scheduler.control import State
from ignite_scheduler.cost.calibration import Calibration, CheckpointTime, KindCalibration, Quantiles
from ignite_scheduler.daemon.report import RunReport
from ignite_scheduler.daemon.view import JobView, Snapshot
from ignite_scheduler.engine.reports import Finished, Progressed, Report, Started
from ignite_scheduler.engine.specification import GangSpec
from ignite_scheduler.executors import process
from ignite_scheduler.model import PipelineChoice
from live_jobs import small_cluster, small_job, small_profile

STEPS = 1000
SLOW_START = (10.0,) * 3 + (2.0,) * 9
"""Seconds of the steps in the field's case: the first three take five times as long."""


class ScriptedGang:
    """Tells the next report only when the watcher has seen the one before."""

    def __init__(self, spec: GangSpec, reports: Iterator[Report]) -> None:
        self.spec = spec
        self.process_ids: tuple[int, ...] = ()
        self._reports = reports
        self.told = 0

    def poll(self) -> list[Report]:
        if STAGE["seen"] < self.told:
            return []
        report = next(self._reports, None)
        self.told += report is not None
        return [] if report is None else [report]

    def stop(self, save: bool = True) -> None:
        self.kill()

    def kill(self) -> None:
        self._reports = iter(())


STAGE = {"seen": 0}


def scripted(steps: tuple[float, ...], busy: Callable[[int], tuple[float, ...]] = lambda _: ()) -> Iterator[Report]:
    yield Started(done=0, total=STEPS, process_ids=())
    for done, seconds in enumerate(steps, start=1):
        yield Progressed(done=done, loss=1.0, grad_norm=1.0, step=seconds, busy=busy(done))
    yield Finished(done=STEPS)


def played(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    reports: Iterator[Report],
    calibration: Calibration | None = None,
    specs: list[GangSpec] | None = None,
) -> tuple[RunReport, list[Snapshot]]:
    """A run whose one gang says ``reports``, and every view of it; ``specs`` gathers what the gang was told."""
    seen: list[Snapshot] = []
    STAGE["seen"] = 0

    def watch(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        STAGE["seen"] += 1

    monkeypatch.setattr(wiring, "load_engine", lambda: None)
    monkeypatch.setattr(wiring, "WATCH_EVERY", 0.01)
    monkeypatch.setattr(wiring, "WATCH_REST", 0.0)

    def start(spec: GangSpec) -> ScriptedGang:
        if specs is not None:
            specs.append(spec)
        return ScriptedGang(spec, reports)

    monkeypatch.setattr(process.Gang, "start", start)
    straight = replace(small_job(steps=STEPS, every=100), pipeline=PipelineChoice(replicas=1))
    asked = wiring.ask(straight, small_profile(), calibration=calibration)
    cluster = small_cluster(0.5, 0.5)
    return wiring.run([asked], cluster, directory=directory, calibration=calibration, watch=watch), seen


def running(seen: list[Snapshot]) -> dict[int, JobView]:
    """Steps done → the last view of the job then."""
    return {int(job.done): job for each in seen for job in each.jobs if job.state is State.RUNNING}


@pytest.fixture(scope="module")
def slow_start(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    with pytest.MonkeyPatch.context() as patch:
        return played(patch, tmp_path_factory.mktemp("slow") / "run", scripted(SLOW_START))[1]


def test_the_first_steps_say_estimating_and_ten_steps_tell_the_remaining_time(slow_start: list[Snapshot]) -> None:
    views = running(slow_start)
    for done in range(5):
        assert live.eta(views[done], 0.0) == "estimating"
    after_ten = views[10]
    assert after_ten.pace is not None
    assert after_ten.pace.remaining == pytest.approx(1980, rel=0.05)
    assert live.eta(after_ten, 0.0) == "33min left"
    assert "33min left" in live.sentence(after_ten, 0.0)
    assert sum(SLOW_START[:10]) / 10 * 990 == 4356  # what a plain average says


def test_the_live_table_shows_the_same(slow_start: list[Snapshot]) -> None:
    snapshot = next(each for each in slow_start if each.jobs[0].done == 10)
    screen = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    screen.print(live.live_view(snapshot))
    text = screen.export_text()
    screen.file.close()
    assert "33min left" in text
    assert "10/1000" in text


def test_a_device_slower_than_profiled_is_named_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two microbatches of 4 samples and three equal layers of 1 + 2 ms a sample at half a core: 48 ms a layer."""
    layer = 2 * 4 * 0.003 / 0.5
    lines = live.PlainLines()

    def busy(_: int) -> tuple[float, ...]:
        return 2 * layer * 1.01, 1 * layer * 1.62

    _, seen = played(monkeypatch, tmp_path / "run", scripted((0.2,) * 30, busy))
    for snapshot in seen:
        lines.show(snapshot)
    told = [line for line in capsys.readouterr().err.splitlines() if "longer than profiled" in line]
    assert len(told) == 1
    assert "computes 62 % longer than profiled (range: up to 25 %" in told[0]
    assert "measure it again" in told[0]
    assert "leave it out" in told[0]
    first = next(job for each in seen for job in each.jobs if job.pace is not None and job.pace.slow)
    assert first.done >= 5 + 5  # the warm-up, and steps enough
    assert first.pace is not None
    assert [drift.device for drift in first.pace.slow] == [first.device_ids[1]]


LEARNT = Calibration(
    kinds={"core": KindCalibration(rate=1.5, num_stages=9, spread=0.02)},
    message=0.01,
    startup=Quantiles(low=1.0, middle=2.0, high=4.0),
    checkpoint=CheckpointTime(base=0.5, bandwidth=1e9),
    residual=Quantiles(low=0.9, middle=1.0, high=1.1),
    num_runs=4,
    provenance={"date": "2026-05-04"},
)


def test_a_run_with_a_calibration_promises_a_range_and_keeps_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[GangSpec] = []
    report, seen = played(monkeypatch, tmp_path / "run", scripted((0.2,) * 8), LEARNT, specs)
    job = report.jobs[0]
    promise, predicted = job.promise, job.plans[0].predicted
    assert promise is not None
    saves = 9 * (0.5 + 3 * 20_000 * 3 / 1e9)
    early, late = promise.finish_low - promise.start, promise.finish_high - promise.start
    assert early == pytest.approx(1.0 + 0.9 * (1000 * predicted.step + saves))
    assert late == pytest.approx(4.0 + 1.1 * (1000 * predicted.step + saves))
    assert job.promise_kept is False  # eight steps were played, and it was over
    assert job.promise_error is not None
    assert job.plans[0].resolved["calibration"].startswith("4 runs of 2026-05-04")
    view = next(job for each in seen for job in each.jobs if job.state is State.RUNNING)
    assert view.finish_low is not None
    assert view.finish_high is not None
    assert view.finish_low < view.finish_high
    assert ", done at " in live.eta(view, 0.0)
    # The calibration is for foretelling: what is played is the cluster as it was written down.
    [spec] = specs
    assert [device.speed for device in spec.devices] == [0.5, 0.5]
    assert {link.latency for link in spec.links.values()} == {1e-4}
    # It is kept with the run, and the journal leads to the same decisions again.
    assert wiring.check_replay(tmp_path / "run") == ()
    again = wiring.resume(tmp_path / "run")
    assert again.jobs[0].promise == promise


def test_what_a_start_and_a_save_are_reckoned_with() -> None:
    job, profile = small_job(), small_profile()
    plain = wiring.ask(job, profile)
    assert (plain.startup, plain.startup_range, plain.checkpoint_cost) == (0.25, None, 0.0)
    learnt = wiring.ask(job, profile, calibration=LEARNT)
    assert (learnt.startup, learnt.startup_range) == (2.0, (1.0, 4.0))
    assert learnt.checkpoint_cost == pytest.approx(0.5 + 3 * 20_000 * 3 / 1e9)
    given = wiring.ask(job, profile, startup=7.0, calibration=LEARNT)
    assert (given.startup, given.startup_range) == (7.0, None)
