"""The live loop with the real controller over executors that are arithmetic: schedules, crashes, interrupts, views."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.control import FINAL, Controller, Options, State
from ignite_scheduler.control.events import GangFinished, GangStarted, JobSubmitted
from ignite_scheduler.daemon.pump import recover, replay
from ignite_scheduler.daemon.report import bars
from ignite_scheduler.daemon.shell import Outcome, Shell
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.daemon.view import Pace, Snapshot, snapshot
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy import make_policy
from ignite_scheduler.policy.candidates import Candidate
from live_fakes import JumpingLoop, LoopClock, MemoryExecutor, MemoryJournal, MemoryPlanning, submission
from live_jobs import small_cluster

OPTIONS = Options(start_grace=0.0, missing_grace=0.0, promises=True)
CLUSTER = small_cluster(0.5, 0.5)


def wants(devices: int, rate: float = 1.0) -> tuple[Candidate, ...]:
    return (Candidate(demand=(("lab/core-0", devices),), rate=rate, rate_low=rate),)


class PowerCutError(Exception):
    pass


class Run:
    """A run whose process may die and be started again over the same journal."""

    def __init__(
        self,
        jobs: dict[str, tuple[JobSubmitted, tuple[Candidate, ...] | Infeasible]],
        *,
        policy: str = "backfill",
        startup: float = 0.0,
    ) -> None:
        self.jobs, self.policy, self.startup = jobs, policy, startup
        self.journal = MemoryJournal()
        self.starts: list[tuple[str, int]] = []
        self.snapshots: list[Snapshot] = []

    def process(self, *, dies_at: float = math.inf, interrupted_at: float | None = None) -> Outcome:
        """One process's share."""
        clock = LoopClock()
        self.controller = Controller(CLUSTER, make_policy(self.policy), OPTIONS)
        self.chronicle = Chronicle()
        executor = MemoryExecutor(clock, {k: event.work for k, (event, _) in self.jobs.items()}, startup=self.startup)
        executor.starts = self.starts
        executor.poll = self.mortal(executor.poll, clock, dies_at)  # type: ignore[method-assign]

        async def main() -> Outcome:
            recovery = recover(self.journal, self.controller, self.chronicle.note)
            shell = Shell(
                core=self.controller,
                journal=self.journal,
                executor=executor,
                planning=MemoryPlanning(lambda command: self.jobs[command.job_id][1]),
                clock=clock,
                settled=lambda: all(record.state in FINAL for record in self.controller.jobs.values()),
                observer=self.chronicle.note,
                recovery=recovery,
            )
            if interrupted_at is not None:
                asyncio.get_running_loop().call_at(interrupted_at, shell.interrupt)
            watching = asyncio.create_task(self.watch(clock))
            try:
                return await shell.run([e for k, (e, _) in self.jobs.items() if k not in self.controller.jobs])
            finally:
                watching.cancel()

        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(main())

    def mortal(self, poll: Callable[[], Any], clock: LoopClock, dies_at: float) -> Callable[[], Any]:
        def polled() -> Any:
            if clock.now() >= dies_at:
                raise PowerCutError
            return poll()

        return polled

    async def watch(self, clock: LoopClock) -> None:
        while True:
            await asyncio.sleep(1.0)
            stories = self.chronicle.jobs
            paces = {job_id: Pace(done=story.done) for job_id, story in stories.items()}
            self.snapshots.append(snapshot(self.controller, stories, paces, now=clock.now()))

    def check_laws(self) -> None:
        """No job lost, none started twice as one attempt, no device held twice, and the journal replays."""
        assert replay(self.journal.records(), Controller(CLUSTER, make_policy(self.policy), OPTIONS)) == ()
        finished = [r.event.job_id for r in self.journal.records() if isinstance(r.event, GangFinished)]
        assert sorted(finished) == sorted(self.jobs)
        started = [(r.event.job_id, r.event.epoch) for r in self.journal.records() if isinstance(r.event, GangStarted)]
        assert len(started) == len(set(started))
        assert len(self.starts) == len(set(self.starts))
        end = max(record.event.at for record in self.journal.records())
        held: dict[str, float] = {}
        for bar in bars(self.chronicle.jobs.values(), end):
            assert held.get(bar.device_id, 0.0) <= bar.start <= bar.end
            assert bar.working is None or bar.start <= bar.working <= bar.end
            held[bar.device_id] = bar.end


def field_case() -> Run:
    """Two devices: S1, then a job that needs both, then two that may or may not slip by (as in field case D9)."""
    entries = [("S1", 0, 1, 10), ("L", 1, 2, 10), ("B1", 2, 1, 5), ("B2", 3, 1, 10)]
    return Run({name: (submission(name, at=at, work=work), wants(devices)) for name, at, devices, work in entries})


def test_backfill_lets_small_jobs_by_only_where_the_head_is_not_delayed() -> None:
    run = field_case()
    assert run.process() == "settled"
    run.check_laws()
    started = {job_id: story.started for job_id, story in run.chronicle.jobs.items()}
    assert started == pytest.approx({"S1": 0, "B1": 2, "L": 10, "B2": 20}, abs=0.3)


def test_the_view_shows_states_holders_and_foretold_times() -> None:
    run = field_case()
    run.process()
    early = next(each for each in run.snapshots if len(each.jobs) == 4)
    views = {view.job_id: view for view in early.jobs}
    assert views["S1"].state is State.RUNNING
    assert views["S1"].pace is not None
    assert set(early.holders) == {"lab/core-0", "lab/core-1"}
    assert early.holders[views["S1"].device_ids[0]] == "S1"
    assert views["L"].state is State.QUEUED
    assert views["L"].reason is not None
    assert views["L"].start == pytest.approx(10, abs=0.5)
    assert views["L"].finish_low == pytest.approx(20, abs=0.5)
    assert views["B2"].finish_high == pytest.approx(30, abs=1)
    last = run.snapshots[-1]
    assert {view.state for view in last.jobs if view.finished} == {State.FINISHED}


def test_a_refused_job_fails_with_its_reason_and_keeps_nobody_waiting() -> None:
    run = field_case()
    run.jobs["L"] = (run.jobs["L"][0], Infeasible(code="memory", text="too large"))
    assert run.process() == "settled"
    record = run.controller.job("L")
    assert record.state is State.FAILED
    assert record.reason is not None
    assert record.reason.code == "memory"


def test_a_job_whose_devices_do_not_exist_stalls_the_run_instead_of_hanging() -> None:
    run = field_case()
    run.jobs["L"] = (run.jobs["L"][0], wants(3))
    assert run.process() == "stalled"
    assert run.controller.job("L").state is State.WAITING


def test_a_job_is_stopped_at_its_max_time_also_by_a_process_that_came_later() -> None:
    terms = {"slow": (submission("slow", work=100, max_time=20), wants(2)), "next": (submission("next"), wants(1))}
    for dies_at in (math.inf, 8.0):
        run = Run(dict(terms))
        if dies_at < math.inf:
            with pytest.raises(PowerCutError):
                run.process(dies_at=dies_at)
        assert run.process() == "settled"
        record = run.controller.job("slow")
        assert record.state is State.FAILED
        assert record.reason is not None
        assert record.reason.code == "max_time"
        assert record.held_for == pytest.approx(20, abs=0.2)
        assert record.saved > 0
        assert run.controller.job("next").state is State.FINISHED
        assert replay(run.journal.records(), Controller(CLUSTER, make_policy(run.policy), OPTIONS)) == ()


@settings(max_examples=25)
@given(st.lists(st.floats(0, 40), min_size=1, max_size=3), st.sampled_from(["fifo", "backfill"]))
def test_crashes_at_any_moment_lose_no_job_and_run_none_twice(moments: list[float], policy: str) -> None:
    run = field_case()
    run.policy, run.startup = policy, 0.7
    for moment in [*moments, math.inf]:
        try:
            outcome = run.process(dies_at=moment)
            break
        except PowerCutError:
            continue
    assert outcome == "settled"
    run.check_laws()


@settings(max_examples=15)
@given(st.floats(0, 35))
def test_an_interrupt_at_any_moment_saves_and_the_rest_follows(moment: float) -> None:
    run = field_case()
    first = run.process(interrupted_at=moment)
    if first == "settled":
        return
    assert first == "interrupted"
    assert not any(record.state is State.RUNNING for record in run.controller.jobs.values())
    assert run.process() == "settled"
    run.check_laws()
