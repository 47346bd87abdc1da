"""Predictions with an early and a late end: what is promised, and which end deadlines are held against."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.control import Controller, Options, State, forecast
from ignite_scheduler.control.admission import late_seconds, run_seconds
from ignite_scheduler.control.commands import SetTimer, StartGang
from ignite_scheduler.control.events import Event, GangStarted, JobPlanned, TimerFired
from ignite_scheduler.policy import Candidate, make_policy
from queue_jobs import cluster, submitted

CLUSTER = cluster({"a": {"V": 1}})
RANGED = Candidate(demand=(("*/V", 1),), rate=1.0, rate_low=0.8, rate_high=1.25)


def controller(policy: str = "fifo") -> Controller:
    return Controller(CLUSTER, make_policy(policy), Options(promises=True))


def say(core: Controller, event: Event) -> None:
    """Handle the event, and fire the timers of its instant."""
    for command in core.handle(event):
        if isinstance(command, SetTimer) and command.at <= event.at:
            say(core, TimerFired(at=event.at, timer_id=command.timer_id))


def submit(core: Controller, job_id: str, candidate: Candidate = RANGED, *, work: float = 100.0, **spec) -> None:
    terms = {name: spec.pop(name) for name in ("deadline",) if name in spec}
    say(core, replace(submitted(job_id, **terms), work=work, **spec))
    say(core, JobPlanned(at=0.0, job_id=job_id, planning=1, candidates=(candidate,)))


def test_each_end_has_its_own_start_up_and_rate() -> None:
    core = controller()
    submit(core, "first", startup=4.0, startup_range=(2.0, 10.0))
    submit(core, "second", startup=4.0, startup_range=(2.0, 10.0))
    first, second = core.promises["first"], core.promises["second"]
    assert (first.start, first.finish_low, first.finish_high) == (0.0, 2 + 80, 10 + 125)
    # It waits for the first: 104 seconds are expected.
    assert (second.start, second.finish_low, second.finish_high) == (104.0, 2 * 82, 2 * 135)


def test_a_range_of_the_start_up_alone_will_do() -> None:
    core = controller()
    plain = Candidate(demand=(("*/V", 1),), rate=1.0, rate_low=1.0)
    submit(core, "j", plain, startup=4.0, startup_range=(2.0, 10.0))
    promise = core.promises["j"]
    assert (promise.finish_low, promise.finish_high) == (102.0, 110.0)


def test_without_a_range_both_ends_are_what_is_expected() -> None:
    core = controller()
    submit(core, "j", Candidate(demand=(("*/V", 1),), rate=1.0, rate_low=1.0), startup=4.0)
    promise = core.promises["j"]
    assert promise.finish_low == promise.finish_high == 104.0


def test_what_is_left_of_a_running_job_keeps_its_range() -> None:
    core = controller()
    submit(core, "j")
    say(core, GangStarted(at=0.0, job_id="j", epoch=1))
    assert forecast(core, 50.0)["j"] == (0.0, 50 + 40, 50 + 62.5)


@pytest.mark.parametrize(("deadline", "state"), [(124.0, State.FAILED), (126.0, State.STARTING)])
def test_a_deadline_is_held_against_the_late_end(deadline: float, state: State) -> None:
    core = controller()
    submit(core, "j", deadline=deadline)
    assert core.job("j").state is state
    if state is State.FAILED:
        rejection = core.job("j").rejection
        assert rejection is not None
        assert (rejection.code, rejection.earliest_finish) == ("deadline", 125.0)


def test_the_default_policy_takes_the_option_that_is_surely_in_time() -> None:
    """Alike in what is expected, but only one is in time at its late end."""
    two = cluster({"a": {"F": 1}, "b": {"S": 1}})
    core = Controller(two, make_policy("ignite"), Options())
    sure = Candidate(demand=(("*/S", 1),), rate=0.99, rate_low=0.98)
    loose = Candidate(demand=(("*/F", 1),), rate=1.0, rate_low=0.5)
    say(core, replace(submitted("j", deadline=110.0), work=100.0))
    started: list[StartGang] = []

    def follow(event: Event) -> None:
        for command in core.handle(event):
            if isinstance(command, SetTimer) and command.at <= event.at:
                follow(TimerFired(at=event.at, timer_id=command.timer_id))
            if isinstance(command, StartGang):
                started.append(command)

    follow(JobPlanned(at=0.0, job_id="j", planning=1, candidates=(loose, sure)))
    assert [command.device_ids for command in started] == [("b/S-0",)]


@given(st.floats(0.1, 10.0), st.floats(0.5, 1.0), st.floats(0.0, 50.0))
def test_the_late_end_is_never_before_what_is_expected(rate: float, share: float, startup: float) -> None:
    spec = replace(submitted("j"), startup=startup, startup_range=(startup / 2, 2 * startup))
    candidate = Candidate(demand=(("*/V", 1),), rate=rate, rate_low=share * rate)
    assert late_seconds(spec, 60.0, candidate) >= run_seconds(spec, 60.0, rate)
    assert run_seconds(spec, 60.0, rate, "early") <= run_seconds(spec, 60.0, rate)
