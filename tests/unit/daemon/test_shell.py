"""The live loop on jumping time: arrivals, timers, listings, interrupts, and the way back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.control.commands import PlanJob
from ignite_scheduler.control.events import (
    ClusterObserved,
    GangFinished,
    GangStarted,
    GangStopped,
    JobRefused,
    JobSubmitted,
    TimerFired,
)
from ignite_scheduler.daemon.pump import recover, replay
from ignite_scheduler.daemon.shell import OBSERVE_EVERY, POLL_EVERY, Outcome, Shell
from ignite_scheduler.errors import ExternalError, InvariantError
from ignite_scheduler.model import Infeasible
from live_fakes import (
    JumpingLoop,
    LoopClock,
    MemoryExecutor,
    MemoryJournal,
    MemoryPlanning,
    OneByOne,
    submission,
    table_candidate,
)


class Live:
    """One run over fakes; ``again`` is the same run in a new process."""

    def __init__(self, jobs: list[JobSubmitted], *, journal: MemoryJournal | None = None, **executor: Any) -> None:
        self.jobs = jobs
        self.clock = LoopClock()
        self.core = OneByOne()
        self.journal = journal or MemoryJournal()
        self.executor = MemoryExecutor(self.clock, {job.job_id: job.work for job in jobs}, **executor)
        self.planning = MemoryPlanning(lambda _: (table_candidate(),))
        self.recovery = None if journal is None else recover(journal, self.core)
        self.shell: Shell | None = None

    def run(self, *, at: dict[float, Callable[[Live], None]] | None = None) -> Outcome:
        async def main() -> Outcome:
            known = {event.job_id for event in self.core.seen if isinstance(event, JobSubmitted)}
            self.shell = Shell(
                core=self.core,
                journal=self.journal,
                executor=self.executor,
                planning=self.planning,
                clock=self.clock,
                settled=self.core.settled,
                recovery=self.recovery,
            )
            for time, action in (at or {}).items():
                asyncio.get_running_loop().call_at(time, action, self)
            return await self.shell.run([job for job in self.jobs if job.job_id not in known])

        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(main())

    def again(self) -> Live:
        return Live(self.jobs, journal=self.journal)

    def events(self, kind: type) -> list[Any]:
        return [record.event for record in self.journal.records() if isinstance(record.event, kind)]


def interrupt(live: Live) -> None:
    assert live.shell is not None
    live.shell.interrupt()


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=6))
def test_all_jobs_arrive_on_time_and_finish_once_and_the_replay_law_holds(jobs: list[tuple[int, int]]) -> None:
    live = Live([submission(f"j{i}", at=at, work=work) for i, (at, work) in enumerate(jobs)], startup=0.3)
    assert live.run() == "settled"
    submitted = {event.job_id: event.at for event in live.events(JobSubmitted)}
    assert submitted == pytest.approx({f"j{i}": at for i, (at, _) in enumerate(jobs)}, abs=1e-6)
    assert sorted(event.job_id for event in live.events(GangFinished)) == sorted(submitted)
    assert sorted(live.executor.starts) == sorted((job_id, 1) for job_id in submitted)
    assert replay(live.journal.records(), OneByOne()) == ()


def test_the_listing_comes_at_its_pace_and_never_calls_a_new_gang_lost() -> None:
    live = Live([submission("a", work=60), submission("b", work=60)])
    assert live.run() == "settled"
    listings = live.events(ClusterObserved)
    assert len(listings) == pytest.approx(120 / OBSERVE_EVERY, abs=2)
    gaps = [later.at - earlier.at for earlier, later in pairwise(listings)]
    assert min(gaps) >= OBSERVE_EVERY
    assert max(gaps) <= OBSERVE_EVERY + 3 * POLL_EVERY
    assert live.executor.starts == [("a", 1), ("b", 1)]


def test_a_timer_fires_at_its_time_and_one_that_was_replaced_does_not() -> None:
    live = Live([submission("a", work=1500), submission("b", at=300, work=1)])
    assert live.run() == "settled"
    fired = [event.at for event in live.events(TimerFired)]
    assert fired == pytest.approx([1300.0], abs=1e-3)  # set for 1000 when a was planned, replaced when b was


def test_a_long_search_keeps_nobody_waiting() -> None:
    live = Live([submission("a", work=20), submission("slow", at=1, work=1)])
    live.planning.delay = 5.0
    assert live.run() == "settled"
    finished = {event.job_id: event.at for event in live.events(GangFinished)}
    assert finished["a"] == pytest.approx(25, abs=0.2)


def test_a_refused_job_ends_the_run() -> None:
    live = Live([submission("a")])
    live.planning = MemoryPlanning(lambda _: Infeasible(code="memory", text="too large"))
    assert live.run() == "settled"
    assert live.events(JobRefused)[0].reason.code == "memory"
    assert live.executor.starts == []


@pytest.mark.parametrize("error", [ExternalError("no disk"), InvariantError("a bug")])
def test_an_error_of_the_search_ends_the_run_and_leaves_no_gang(error: Exception) -> None:
    def answer(command: PlanJob) -> Any:
        if command.job_id == "bad":
            raise error
        return (table_candidate(),)

    live = Live([submission("a", work=100), submission("bad", at=5)])
    live.planning = MemoryPlanning(answer)
    with pytest.raises(type(error)):
        live.run()
    assert live.executor.running() == ()


def test_no_candidates_and_no_reason_is_a_bug() -> None:
    live = Live([submission("a")])
    live.planning = MemoryPlanning(lambda _: ())
    with pytest.raises(InvariantError, match="found neither"):
        live.run()


def test_a_run_in_which_nothing_can_happen_any_more_ends_as_stalled() -> None:
    live = Live([submission("a")])

    def handle(event: Any) -> tuple[()]:
        live.core.open.add("a")
        return ()

    live.core.handle = handle  # type: ignore[method-assign]
    assert live.run() == "stalled"


def test_a_gang_that_the_world_ends_is_started_again_from_what_was_saved() -> None:
    live = Live([submission("a", work=20)])
    assert live.run(at={10.0: lambda live: live.executor.fail("a", "device lost")}) == "settled"
    assert live.executor.starts == [("a", 1), ("a", 2)]
    assert live.events(GangFinished)[0].at == pytest.approx(20, abs=1.1)


def test_one_interrupt_saves_and_stops_and_the_run_can_be_continued() -> None:
    live = Live([submission("a", work=20), submission("b", at=15, work=5)])
    assert live.run(at={10.0: interrupt}) == "interrupted"
    assert live.events(GangStopped)[0].saved == pytest.approx(10, abs=1)
    assert live.executor.starts == [("a", 1)]  # the next attempt was decided but must not begin
    assert live.events(GangFinished) == []

    again = live.again()
    assert again.run() == "settled"
    assert {event.job_id for event in again.events(GangFinished)} == {"a", "b"}
    assert len(again.events(JobSubmitted)) == 2
    assert replay(again.journal.records(), OneByOne()) == ()


def test_a_second_interrupt_kills_and_the_run_can_still_be_continued() -> None:
    live = Live([submission("a", work=20)])
    live.executor.stop = lambda _: None  # type: ignore[method-assign]  # a gang that never gets to its checkpoint
    assert live.run(at={10.0: interrupt, 12.0: interrupt}) == "killed"
    assert live.executor.running() == ()

    again = live.again()
    assert again.run() == "settled"
    assert again.executor.starts == [("a", 2)]
    assert again.events(GangFinished)[0].epoch == 2


@settings(max_examples=30)
@given(st.floats(0, 60), st.floats(0, 60))
def test_a_crash_at_any_moment_loses_no_job_and_runs_none_twice_at_once(first: float, second: float) -> None:
    class PowerCutError(Exception):
        pass

    def cut(_: Live) -> None:
        raise PowerCutError

    live = Live([submission(f"j{i}", at=5 * i, work=10) for i in range(5)], startup=0.7)
    outcome = None
    for moment in (first, second, math.inf):
        live.executor.poll = _cut_at(moment, live, live.executor.poll, PowerCutError)  # type: ignore[method-assign]
        try:
            outcome = live.run()
            break
        except PowerCutError:
            live = live.again()
    assert outcome == "settled"
    finished = [event.job_id for event in live.events(GangFinished)]
    assert sorted(finished) == [f"j{i}" for i in range(5)]
    epochs = [(event.job_id, event.epoch) for event in live.events(GangStarted)]
    assert len(epochs) == len(set(epochs))
    assert replay(live.journal.records(), OneByOne()) == ()


def _cut_at(moment: float, live: Live, poll: Callable[[], Any], error: type[Exception]) -> Callable[[], Any]:
    def polled() -> Any:
        if live.clock.now() >= moment:
            raise error
        return poll()

    return polled
