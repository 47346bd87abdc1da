"""A job with nothing left to do, as after a crash between its last save and its end, is started like any other."""

from __future__ import annotations

import pytest

from ignite_scheduler.control import Controller, State
from ignite_scheduler.control.commands import Command, StartGang
from ignite_scheduler.control.events import (
    Event,
    GangFailed,
    GangProgressed,
    GangStarted,
    JobPlanned,
    TimerFired,
)
from ignite_scheduler.policy import POLICIES, make_policy
from ignite_scheduler.policy.candidates import Candidate
from live_fakes import submission
from live_jobs import small_cluster

CANDIDATES = (Candidate(demand=(("lab/core-0", 1),), rate=1.0, rate_low=1.0),)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("others", [0, 1, 3])
def test_it_starts_again_at_once(policy: str, others: int) -> None:
    controller = Controller(small_cluster(0.5, 0.5), make_policy(policy))
    starts: list[StartGang] = []

    def feed(event: Event) -> None:
        commands: list[Command] = list(controller.handle(event))
        starts.extend(command for command in commands if isinstance(command, StartGang))

    names = ["done", *(f"other{i}" for i in range(others))]
    for name in names:
        feed(submission(name, work=10.0))
        feed(JobPlanned(at=0.0, job_id=name, planning=1, candidates=CANDIDATES))
        feed(TimerFired(at=0.0, timer_id="round"))
    feed(GangStarted(at=1.0, job_id="done", epoch=1))
    feed(GangProgressed(at=11.0, job_id="done", epoch=1, done=10.0, saved=10.0))
    feed(GangFailed(at=12.0, job_id="done", epoch=1, saved=10.0, reason="killed", device="lab/core-0"))
    assert controller.job("done").remaining == 0
    feed(TimerFired(at=12.0, timer_id="round"))
    if others < 2:  # else the other jobs may hold both devices
        assert controller.job("done").state is State.STARTING
        assert starts[-1].job_id == "done"
        assert starts[-1].saved == 10.0
