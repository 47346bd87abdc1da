"""What every executor does: the same suite on each adapter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ignite_scheduler.control.commands import StartGang, StopGang
from ignite_scheduler.control.events import GangFailed, GangFinished, GangProgressed, GangStarted, GangStopped
from ignite_scheduler.daemon.ports import Executor, GangEnding, GangReport
from live_fakes import HandClock, MemoryExecutor
from live_jobs import small_cluster, small_job, start_of

STEPS = 6
ENDLESS = 1_000_000


class Rig:
    """An executor under test with two jobs, ``a`` of a few steps and ``long`` of more than anybody waits for."""

    executor: Executor

    def __init__(self) -> None:
        self.jobs = {"a": small_job("a", steps=STEPS), "long": small_job("long", steps=ENDLESS, every=3)}
        self.cluster = small_cluster()
        self.seen: list[GangReport] = []

    def start(self, job_id: str = "a", epoch: int = 1, saved: float = 0.0) -> StartGang:
        command = start_of(self.jobs[job_id], self.cluster, epoch=epoch, saved=saved)
        self.executor.start(command)
        return command

    def until(self, done: Callable[[list[GangReport]], bool]) -> list[GangReport]:
        """All reports up to the poll after which ``done`` of them holds."""
        for _ in self.patience():
            listed = self.executor.running()
            fresh = self.executor.poll()
            self.check_listing(listed, fresh)
            self.seen.extend(fresh)
            if done(self.seen):
                return self.seen
        raise AssertionError(f"waited in vain; seen: {self.seen}")

    def check_listing(self, before: tuple, fresh: tuple[GangReport, ...]) -> None:
        """Whoever reports is listed before the poll; whoever ended is not listed after it."""
        ended = {(report.job_id, report.epoch) for report in fresh if isinstance(report, GangEnding)}
        assert not ended & set(self.executor.running())
        assert {report.job_id for report in fresh} <= {job_id for job_id, _ in before}

    def until_ended(self, number: int = 1) -> list[GangReport]:
        return self.until(lambda seen: sum(isinstance(report, GangEnding) for report in seen) >= number)

    def until_progress(self, done: int) -> list[GangReport]:
        return self.until(lambda seen: any(isinstance(r, GangProgressed) and r.done >= done for r in seen))

    def patience(self) -> Iterator[None]:
        raise NotImplementedError


class MemoryRig(Rig):
    def __init__(self, _: Path) -> None:
        super().__init__()
        self.clock = HandClock()
        self.executor = MemoryExecutor(
            self.clock, {name: job.steps or 0 for name, job in self.jobs.items()}, startup=0.5
        )

    def patience(self) -> Iterator[None]:
        for _ in range(10_000):
            self.clock.time += 0.01
            yield


class ProcessRig(Rig):
    def __init__(self, folder: Path) -> None:
        pytest.importorskip("torch")
        from ignite_scheduler.executors import ProcessExecutor

        super().__init__()
        begun = time.monotonic()

        class Clock:
            def now(self) -> float:
                return time.monotonic() - begun

        self.executor = ProcessExecutor(
            jobs=self.jobs,
            cluster=self.cluster,
            directory_of=lambda job_id: folder / job_id,
            clock=Clock(),
            progress_every=0.01,
        )

    def patience(self) -> Iterator[None]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.01)
            yield


@pytest.fixture(params=[MemoryRig, pytest.param(ProcessRig, marks=pytest.mark.torch)])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made = request.param(tmp_path)
    yield made
    made.executor.close()
    assert made.executor.running() == ()


def test_a_gang_starts_progresses_and_finishes_once(rig: Rig) -> None:
    assert rig.executor.running() == ()
    rig.start()
    assert rig.executor.running() == (("a", 1),)
    seen = rig.until_ended()
    kinds = [type(report) for report in seen]
    assert kinds[0] is GangStarted
    assert kinds[-1] is GangFinished
    assert set(kinds[1:-1]) == {GangProgressed}
    assert {(report.job_id, report.epoch) for report in seen} == {("a", 1)}
    progress = [report for report in seen if isinstance(report, GangProgressed)]
    told = [(report.done, report.saved) for report in progress]
    assert told == sorted(set(told))
    assert all(0 <= report.saved <= report.done <= STEPS for report in progress)
    assert progress[-1].done == STEPS
    assert [report.at for report in seen] == sorted(report.at for report in seen)
    assert rig.executor.poll() == ()
    assert rig.executor.running() == ()


def test_starting_the_same_attempt_again_does_nothing(rig: Rig) -> None:
    command = rig.start()
    rig.executor.start(command)
    rig.until_progress(1)
    rig.executor.start(command)
    seen = rig.until_ended()
    assert sum(isinstance(report, GangStarted) for report in seen) == 1
    assert isinstance(seen[-1], GangFinished)


def test_a_stop_with_save_keeps_the_work_and_the_next_attempt_goes_on_from_it(rig: Rig) -> None:
    rig.start("long")
    rig.until_progress(4)
    rig.executor.stop(StopGang(job_id="long", epoch=1, save=True, cause="preempted"))
    stopped = rig.until_ended()[-1]
    assert isinstance(stopped, GangStopped)
    assert stopped.saved >= 4
    rig.seen.clear()
    rig.start("long", epoch=2, saved=stopped.saved)
    first = next(report for report in rig.until_progress(int(stopped.saved) + 1) if isinstance(report, GangProgressed))
    assert first.epoch == 2
    assert first.done > stopped.saved
    assert first.saved >= stopped.saved


def test_a_stop_without_save_ends_the_gang(rig: Rig) -> None:
    rig.start("long")
    rig.until_progress(1)
    rig.executor.stop(StopGang(job_id="long", epoch=1, save=False, cause="cancelled"))
    rig.executor.stop(StopGang(job_id="long", epoch=1, save=False, cause="cancelled"))
    assert isinstance(rig.until_ended()[-1], GangStopped)
    assert rig.executor.poll() == ()


def test_a_stop_right_after_the_start_is_not_forgotten(rig: Rig) -> None:
    rig.start("long")
    rig.executor.stop(StopGang(job_id="long", epoch=1, save=True, cause="preempted"))
    assert isinstance(rig.until_ended()[-1], GangStopped)


def test_a_stop_of_an_unknown_or_old_attempt_changes_nothing(rig: Rig) -> None:
    rig.executor.stop(StopGang(job_id="nobody", epoch=1, save=True, cause="stale"))
    rig.start(epoch=2)
    rig.executor.stop(StopGang(job_id="a", epoch=1, save=True, cause="stale"))
    assert isinstance(rig.until_ended()[-1], GangFinished)


def test_a_newer_attempt_ends_the_older_one_first(rig: Rig) -> None:
    rig.start("long", epoch=1)
    rig.until_progress(1)
    rig.start("long", epoch=2)
    assert rig.executor.running() == (("long", 2),)
    seen = rig.until(lambda seen: any(isinstance(r, GangStarted) and r.epoch == 2 for r in seen))
    endings = [report for report in seen if isinstance(report, GangEnding)]
    assert [report.epoch for report in endings] == [1]
    assert seen.index(endings[0]) < next(i for i, r in enumerate(seen) if isinstance(r, GangStarted) and r.epoch == 2)
    rig.start("long", epoch=1)  # late
    assert rig.executor.running() == (("long", 2),)


def test_a_stop_reaches_an_attempt_that_still_waits_for_the_older_one_to_be_gone(rig: Rig) -> None:
    rig.start("long", epoch=1)
    rig.until_progress(1)
    rig.start("long", epoch=2)
    rig.executor.stop(StopGang(job_id="long", epoch=2, save=True, cause="preempted"))
    endings = [report for report in rig.until_ended(2) if isinstance(report, GangEnding)]
    assert [report.epoch for report in endings] == [1, 2]
    assert isinstance(endings[1], GangStopped)
    assert rig.executor.running() == ()


def test_kill_ends_all_gangs_and_says_so(rig: Rig) -> None:
    rig.start("long")
    rig.start("a", epoch=4)
    rig.executor.kill()
    endings = [report for report in rig.until_ended(2) if isinstance(report, GangEnding)]
    assert {(report.job_id, report.epoch) for report in endings} == {("long", 1), ("a", 4)}
    assert all(isinstance(report, GangStopped | GangFailed) for report in endings)


def test_closing_ends_what_still_runs(rig: Rig) -> None:
    rig.start("long")
    rig.until_progress(1)
    rig.executor.close()
    assert rig.executor.running() == ()
    rig.executor.close()
