"""The controller, event by event."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ignite_scheduler.control import FINAL, TRANSITIONS, Controller, Options, State, forecast
from ignite_scheduler.control.admission import MENDABLE
from ignite_scheduler.control.commands import PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    CancelRequested,
    ClusterObserved,
    GangFailed,
    GangFinished,
    GangProgressed,
    GangStarted,
    GangStopped,
    JobPlanned,
    JobRefused,
    NodeJoined,
    NodeLost,
    TimerFired,
)
from ignite_scheduler.control.states import format_transitions
from ignite_scheduler.errors import InvariantError, NotFoundError
from ignite_scheduler.model import Device, Infeasible
from ignite_scheduler.policy import Candidate, Decision, Start, make_policy
from queue_jobs import cluster, submitted

CLUSTER = cluster({"a": {"V": 2}, "b": {"V": 2}}, prices={"V": 0.5})
NODES = {node.name: node for node in CLUSTER.nodes}


def candidate(count=1, rate=1.0, kind="V", **more):
    return Candidate(demand=((f"*/{kind}", count),), rate=rate, rate_low=rate, **more)


class Desk:
    """A controller and what was asked of the world."""

    def __init__(self, policy="fifo", the_cluster=CLUSTER, **options):
        policy = make_policy(policy) if isinstance(policy, str) else policy
        self.controller = Controller(the_cluster, policy, Options(**options))
        self.commands = []

    def say(self, event):
        """Handle the event, and fire the timers of its instant."""
        commands = self.controller.handle(event)
        self.commands += commands
        for command in commands:
            if isinstance(command, SetTimer) and command.at <= event.at:
                self.say(TimerFired(at=event.at, timer_id=command.timer_id))
        self.controller.ledger.check()
        return commands

    def submit(self, job_id, count=1, at=0.0, rate=1.0, **terms):
        self.say(submitted(job_id, at, **terms))
        planned = JobPlanned(at=at, job_id=job_id, planning=1, candidates=(candidate(count, rate),))
        self.say(planned)

    def run(self, job_id, epoch=1, at=0.0):
        self.say(GangStarted(at=at, job_id=job_id, epoch=epoch))

    def state(self, job_id):
        return self.controller.job(job_id).state

    def asked(self, kind):
        return [command for command in self.commands if isinstance(command, kind)]


def test_a_job_goes_its_way():
    desk = Desk()
    assert desk.say(submitted("j")) == [
        PlanJob(job_id="j", planning=1, device_ids=("a/V-0", "a/V-1", "b/V-0", "b/V-1"))
    ]
    assert desk.state("j") is State.SUBMITTED
    assert desk.controller.reason("j").code == "planning"
    desk.say(JobPlanned(at=1, job_id="j", planning=1, candidates=(candidate(2),)))
    (start,) = desk.asked(StartGang)
    assert (start.epoch, start.device_ids, start.saved) == (1, ("a/V-0", "a/V-1"), 0)
    assert desk.state("j") is State.STARTING
    desk.run("j", at=2)
    assert desk.state("j") is State.RUNNING
    desk.say(GangProgressed(at=3, job_id="j", epoch=1, done=50, saved=40, rate=1.0))
    desk.say(GangFinished(at=4, job_id="j", epoch=1))
    record = desk.controller.job("j")
    assert (record.state, record.saved, record.first_started, record.ended_at) == (State.FINISHED, 100, 1, 4)
    assert desk.controller.ledger.inventory.num_free == 4
    assert [line.split()[1] for line in desk.controller.story("j")][:2] == ["JobSubmitted", "JobPlanned"]


def test_jobs_that_arrive_together_are_weighed_together():
    desk = Desk("ignite")
    for name in ("x", "y"):
        desk.controller.handle(submitted(name))
    first = desk.controller.handle(JobPlanned(at=0, job_id="x", planning=1, candidates=(candidate(),)))
    assert first == [SetTimer(timer_id="round", at=0)]
    assert desk.controller.handle(JobPlanned(at=0, job_id="y", planning=1, candidates=(candidate(),))) == []
    commands = desk.controller.handle(TimerFired(at=0, timer_id="round"))
    assert sorted(command.job_id for command in commands) == ["x", "y"]


def test_rounds_keep_the_interval_of_the_operator():
    desk = Desk(round_interval=60.0)
    desk.submit("x", at=0.0)
    desk.controller.handle(submitted("y", 10.0))
    commands = desk.controller.handle(JobPlanned(at=10, job_id="y", planning=1, candidates=(candidate(),)))
    assert commands == [SetTimer(timer_id="round", at=60.0)]
    assert desk.controller.handle(TimerFired(at=30, timer_id="round")) == []  # a stray one
    assert [type(each) for each in desk.controller.handle(TimerFired(at=60, timer_id="round"))] == [StartGang]


@pytest.mark.parametrize("how", ["submitted", "queued", "waiting", "starting", "running", "stopping", "finished"])
def test_cancel_in_each_state(how):
    desk = Desk()
    if how == "queued":
        desk.submit("blocker", 4)
    if how == "submitted":
        desk.say(submitted("j"))
    else:
        desk.submit("j", 9 if how == "waiting" else 2)
    if how in ("running", "stopping", "finished"):
        desk.run("j")
    if how == "stopping":
        desk.say(NodeLost(at=1, node="b"))  # not on j
        desk.controller._life.stop(desk.controller.job("j"), "preempted", 1.0)
    if how == "finished":
        desk.say(GangFinished(at=1, job_id="j", epoch=1))
    assert desk.state("j") == how
    desk.say(CancelRequested(at=2, job_id="j"))
    desk.say(CancelRequested(at=2, job_id="j"))
    stops = [stop for stop in desk.asked(StopGang) if stop.cause == "cancelled"]
    if how in ("starting", "running"):
        assert [(stop.epoch, stop.save) for stop in stops] == [(1, True)]
    if how in ("starting", "running", "stopping"):
        assert desk.state("j") is State.STOPPING
        desk.say(GangStopped(at=3, job_id="j", epoch=1, saved=30))
        assert desk.controller.job("j").saved == 30
    assert desk.state("j") is (State.FINISHED if how == "finished" else State.CANCELLED)


def test_a_job_that_finishes_before_its_cancellation_comes_through_has_finished():
    desk = Desk()
    desk.submit("j")
    desk.say(CancelRequested(at=2, job_id="j"))
    desk.say(GangFinished(at=3, job_id="j", epoch=1))
    assert desk.state("j") is State.FINISHED


def test_three_failures_of_its_own_are_the_end():
    desk = Desk()
    desk.submit("j")
    for epoch, saved in ((1, 10), (2, 5), (3, 20)):
        assert desk.state("j") is State.STARTING
        assert desk.asked(StartGang)[-1].saved == max(0, *(s for e, s in ((1, 10), (2, 5)) if e < epoch), 0)
        desk.run("j", epoch, at=epoch)
        desk.say(GangFailed(at=epoch, job_id="j", epoch=epoch, saved=saved, reason="loss is NaN"))
    record = desk.controller.job("j")
    assert (record.state, record.saved, record.reason.code) == (State.FAILED, 20, "attempts")
    assert "loss is NaN" in record.reason.text


def test_a_device_at_fault_is_not_the_jobs_fault_but_goes_out_of_service_in_the_end():
    desk = Desk()
    desk.submit("j")
    for epoch in range(1, 5):
        device = desk.asked(StartGang)[-1].device_ids[0]
        desk.say(GangFailed(at=epoch, job_id="j", epoch=epoch, saved=0, reason="ECC", device=device))
    assert desk.controller.job("j").failures == 0
    assert desk.controller.ledger.inventory.out == {"a/V-0"}
    assert desk.asked(StartGang)[-1].device_ids == ("a/V-1",)
    desk.say(NodeJoined(at=9, node="a", devices=NODES["a"].devices))
    assert desk.controller.ledger.inventory.out == set()


def test_late_doubled_and_invented_answers_do_no_harm():
    desk = Desk()
    desk.submit("j")
    desk.run("j")
    desk.say(GangFailed(at=1, job_id="j", epoch=1, saved=10, reason="x"))
    before = desk.controller.jobs.copy()
    for event in (
        GangFinished(at=2, job_id="j", epoch=1),
        GangFailed(at=2, job_id="j", epoch=1, saved=10, reason="x"),
        GangStarted(at=2, job_id="j", epoch=7),
        GangProgressed(at=2, job_id="j", epoch=1, done=99, saved=99),
        GangStopped(at=2, job_id="nobody", epoch=1, saved=0),
        JobPlanned(at=2, job_id="j", planning=1, candidates=(candidate(4),)),
        JobPlanned(at=2, job_id="nobody", planning=1, candidates=(candidate(4),)),
        submitted("j", 2.0, work=5.0),
        CancelRequested(at=2, job_id="nobody"),
        TimerFired(at=2, timer_id="whatever"),
    ):
        assert desk.say(event) == []
    assert desk.controller.jobs == before


def test_progress_never_goes_back_and_never_beyond_the_work():
    desk = Desk()
    desk.submit("j")
    desk.run("j")
    for done, saved in ((50, 40), (30, 20), (500, 300)):
        desk.say(GangProgressed(at=1, job_id="j", epoch=1, done=done, saved=saved))
    record = desk.controller.job("j")
    assert (record.done, record.saved) == (100, 100)


def test_a_lost_node_requeues_its_gangs_with_what_they_saved():
    desk = Desk()
    desk.submit("j", 2)
    desk.run("j")
    desk.say(GangProgressed(at=5, job_id="j", epoch=1, done=50, saved=40))
    commands = desk.say(NodeLost(at=6, node="a"))
    assert PlanJob(job_id="j", planning=2, device_ids=("b/V-0", "b/V-1")) in commands
    start = desk.asked(StartGang)[-1]
    assert (start.epoch, start.device_ids, start.saved) == (2, ("b/V-0", "b/V-1"), 40)
    assert desk.say(NodeLost(at=6, node="a")) == []


def test_the_survivors_of_a_lost_node_are_stopped_before_their_devices_are_used_again():
    desk = Desk()
    desk.submit("j", 3)
    desk.run("j")
    desk.submit("k", 1)
    desk.say(NodeLost(at=6, node="a"))
    assert desk.asked(StopGang) == [StopGang(job_id="j", epoch=1, save=False, cause="lost")]
    assert desk.state("j") is State.STOPPING
    desk.say(GangStopped(at=7, job_id="j", epoch=1, saved=25))
    assert desk.state("j") is State.WAITING
    assert desk.controller.reason("j").code == "devices"
    desk.say(NodeJoined(at=8, node="a", devices=NODES["a"].devices))
    assert desk.state("j") is State.STARTING
    assert desk.asked(StartGang)[-1].saved == 25


def test_a_job_waits_for_devices_that_do_not_exist_until_they_join():
    desk = Desk()
    desk.submit("j", 5)
    assert desk.state("j") is State.WAITING
    more = Device(id="c/V-0", node="c", kind="V", memory=16e9, price=0.5)
    commands = desk.say(NodeJoined(at=3, node="c", devices=(more,)))
    assert desk.state("j") is State.STARTING
    plan = next(command for command in commands if isinstance(command, PlanJob))
    assert plan.device_ids == ("a/V-0", "a/V-1", "b/V-0", "b/V-1", "c/V-0")
    assert desk.say(NodeJoined(at=4, node="c", devices=(more,))) == []


def test_a_refusal_ends_the_job_unless_devices_are_away():
    reason = Infeasible(code="memory", text="too big", shortfall=1e9)
    desk = Desk()
    desk.say(submitted("j"))
    desk.say(JobRefused(at=0, job_id="j", planning=1, reason=reason))
    assert desk.state("j") is State.FAILED
    assert desk.controller.job("j").rejection is reason
    desk = Desk()
    desk.say(NodeLost(at=0, node="a"))
    desk.say(submitted("j"))
    desk.say(JobRefused(at=0, job_id="j", planning=1, reason=reason))
    assert (desk.state("j"), desk.controller.reason("j").code) == (State.WAITING, "memory")
    desk.say(NodeJoined(at=1, node="a", devices=NODES["a"].devices))
    desk.say(JobPlanned(at=1, job_id="j", planning=2, candidates=(candidate(4),)))
    assert desk.state("j") is State.STARTING


@pytest.mark.parametrize("code", ["input", "layers", "schedule", "replicas"])
def test_what_no_device_can_mend_ends_the_job_even_while_devices_are_away(code):
    reason = Infeasible(code=code, text="wrong in itself")
    desk = Desk()
    desk.say(NodeLost(at=0, node="a"))
    desk.say(submitted("j"))
    desk.say(JobRefused(at=0, job_id="j", planning=1, reason=reason))
    assert desk.state("j") is State.FAILED
    assert desk.controller.job("j").rejection is reason


@pytest.mark.parametrize("code", sorted(MENDABLE))
def test_a_waiting_job_ends_once_its_refusal_is_one_that_no_device_can_mend(code):
    desk = Desk()
    desk.say(NodeLost(at=0, node="a"))
    desk.say(submitted("j"))
    desk.say(JobRefused(at=0, job_id="j", planning=1, reason=Infeasible(code=code, text="lacks something")))
    assert (desk.state("j"), desk.controller.reason("j").code) == (State.WAITING, code)
    desk.say(NodeJoined(at=1, node="a", devices=NODES["a"].devices))
    desk.say(JobRefused(at=1, job_id="j", planning=2, reason=Infeasible(code="layers", text="too few")))
    assert desk.state("j") is State.FAILED


def test_hopeless_deadlines_and_budgets_are_refused_at_the_door():
    desk = Desk()
    desk.submit("late", deadline=99.0)
    rejection = desk.controller.job("late").rejection
    assert (rejection.code, rejection.earliest_finish) == ("deadline", 100.0)
    desk.submit("just", deadline=100.0)
    assert desk.state("just") is State.STARTING
    desk.say(submitted("poor", budget=49.0))
    desk.say(
        JobPlanned(at=0, job_id="poor", planning=1, candidates=(candidate(price=0.5), candidate(2, 1.5, price=1.0)))
    )
    assert desk.controller.job("poor").rejection.code == "budget"
    desk.say(submitted("thrifty", budget=50.0))
    desk.say(
        JobPlanned(at=0, job_id="thrifty", planning=1, candidates=(candidate(2, 1.5, price=1.0), candidate(price=0.5)))
    )
    assert desk.controller.job("thrifty").gang.candidate.num_devices == 1


def test_a_listing_repairs_both_sides():
    desk = Desk(start_grace=10.0, missing_grace=3.0)
    desk.submit("j", 2)
    desk.submit("k", 2)
    desk.run("k", at=1)
    assert desk.say(ClusterObserved(at=5, gangs=(("k", 1), ("ghost", 4)))) == [
        StopGang(job_id="ghost", epoch=4, save=False, cause="stale")
    ]
    assert desk.state("j") is State.STARTING  # still within its grace
    desk.say(ClusterObserved(at=11, gangs=()))
    assert (desk.state("j"), desk.state("k")) == (State.STARTING, State.RUNNING)  # their answers may be on the way
    desk.say(ClusterObserved(at=12, gangs=(("k", 1),)))
    desk.say(ClusterObserved(at=14, gangs=(("k", 1),)))
    assert desk.controller.job("j").epoch == 2  # taken as ended, and started again
    assert desk.controller.job("k").epoch == 1


def test_a_stop_whose_command_was_lost_is_said_again():
    desk = Desk(start_grace=10.0)
    desk.submit("j", 2)
    desk.run("j")
    desk.say(CancelRequested(at=1, job_id="j"))
    stop = StopGang(job_id="j", epoch=1, save=True, cause="cancelled")
    assert desk.say(ClusterObserved(at=5, gangs=(("j", 1),))) == []
    assert desk.say(ClusterObserved(at=11, gangs=(("j", 1),))) == [stop]
    assert desk.say(ClusterObserved(at=12, gangs=(("j", 1),))) == []


@dataclass
class Scripted:
    """A policy that does as the test says."""

    answer: object
    name: str = "scripted"

    def decide(self, view):
        return self.answer(view)


def raise_error(view):
    raise ZeroDivisionError("oops")


def start_all_twice(view):
    return Decision(starts=tuple(Start(job_id=j.job_id, option=j.options[0]) for j in view.queue for _ in range(2)))


def start_a_stranger(view):
    return Decision(starts=(Start(job_id="stranger", option=next(iter(view.queue)).options[0]),))


def give_foreign_option(view):
    jobs = list(view.queue)
    return Decision(starts=(Start(job_id=jobs[0].job_id, option=jobs[1].options[0]),))


def give_too_much(view):
    return Decision(starts=tuple(Start(job_id=job.job_id, option=job.options[0]) for job in view.queue))


def stop_a_stranger(view):
    return Decision(stops=("stranger",))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (raise_error, r"'scripted' raised ZeroDivisionError: oops"),
        (start_all_twice, "twice"),
        (start_a_stranger, "not queued"),
        (give_foreign_option, "option it does not have"),
        (give_too_much, "only"),
        (stop_a_stranger, "does not run"),
    ],
)
def test_a_policy_that_misbehaves_is_named_and_changes_nothing(answer, message):
    policy = Scripted(lambda view: Decision())
    desk = Desk(policy)
    desk.submit("x", 3)
    desk.submit("y", 3)
    before = desk.controller.jobs.copy()
    policy.answer = answer
    with pytest.raises(InvariantError, match=message) as caught:
        desk.submit("z", 3)
    assert any("JobPlanned" in line for line in caught.value.story)
    desk.controller.ledger.check()
    assert {job_id: desk.controller.jobs[job_id] for job_id in before} == before
    policy.answer = make_policy("fifo").decide
    desk.say(CancelRequested(at=1, job_id="z"))
    assert desk.state("x") is State.STARTING


def test_preemption_saves_and_requeues_at_the_old_place():
    def stop_first(view):
        return Decision(stops=tuple(job_id for job_id, job in view.running.items() if job.stoppable))

    policy = Scripted(make_policy("fifo").decide)
    desk = Desk(policy)
    desk.submit("x", 4)
    desk.run("x")
    policy.answer = stop_first
    desk.submit("y", 4, at=5.0)
    assert desk.asked(StopGang) == [StopGang(job_id="x", epoch=1, save=True, cause="preempted")]
    policy.answer = make_policy("fifo").decide
    desk.say(GangStopped(at=6, job_id="x", epoch=1, saved=5))
    record = desk.controller.job("x")
    assert (record.epoch, record.preemptions, desk.asked(StartGang)[-1].saved) == (2, 1, 5)


def test_forecast_tells_start_and_range_without_touching_anything():
    desk = Desk()
    slow = Candidate(demand=(("*/V", 4),), rate=1.0, rate_low=0.5)
    for name in ("x", "y"):
        desk.say(submitted(name, work=60.0))
        desk.say(JobPlanned(at=0, job_id=name, planning=1, candidates=(slow,)))
    before = desk.controller.jobs.copy()
    assert forecast(desk.controller, 0.0) == {"x": (0, 60, 120), "y": (60, 120, 240)}
    assert desk.controller.jobs == before
    desk.run("x")
    assert forecast(desk.controller, 30.0)["x"] == (0, 60, 90)


def test_promises_are_kept_beside_what_happened():
    desk = Desk(promises=True)
    desk.submit("x", 4)
    desk.submit("y", 4)
    promise = desk.controller.promises["y"]
    assert (promise.at, promise.start, promise.finish_low, promise.finish_high) == (0, 100, 200, 200)
    desk.say(GangFinished(at=50, job_id="x", epoch=1))
    assert desk.controller.promises["y"] is promise


def test_reasons_tell_what_a_job_waits_for():
    desk = Desk()
    desk.submit("x", 3)
    desk.submit("y", 2)
    desk.submit("z", 1)
    assert desk.controller.reason("x") is None
    assert (desk.controller.reason("y").code, desk.controller.reason("z").code) == ("busy", "order")
    assert "2 of */V (1 free)" in desk.controller.reason("y").text
    assert "'y'" in desk.controller.reason("z").text
    with pytest.raises(NotFoundError, match="no job 'w'"):
        desk.controller.reason("w")


def test_a_job_that_has_had_its_time_is_stopped_with_a_checkpoint_and_has_failed():
    desk = Desk()
    desk.submit("j", at=5.0, max_time=30.0)
    assert SetTimer(timer_id="max_time/1/j", at=35.0) in desk.asked(SetTimer)
    desk.run("j", at=6.0)
    desk.say(TimerFired(at=20.0, timer_id="max_time/1/j"))  # a stray one
    assert desk.state("j") is State.RUNNING
    desk.say(TimerFired(at=35.0, timer_id="max_time/1/j"))
    assert desk.asked(StopGang) == [StopGang(job_id="j", epoch=1, save=True, cause="max_time")]
    desk.say(GangStopped(at=36.0, job_id="j", epoch=1, saved=29))
    assert desk.state("j") is State.FAILED
    assert desk.controller.reason("j").code == "max_time"
    assert "30s with 29 of 100" in desk.controller.reason("j").text
    assert desk.controller.job("j").saved == 29


def test_work_that_is_done_before_the_stop_comes_through_is_done():
    desk = Desk()
    desk.submit("j", max_time=30.0)
    desk.say(TimerFired(at=30.0, timer_id="max_time/1/j"))
    desk.say(GangFinished(at=30.5, job_id="j", epoch=1))
    assert desk.state("j") is State.FINISHED


def test_max_time_counts_over_all_attempts_but_not_while_nobody_saw_the_gang():
    desk = Desk(start_grace=0.0, missing_grace=0.0)
    desk.submit("j", max_time=30.0)
    desk.run("j", at=1.0)
    desk.say(GangFailed(at=10.0, job_id="j", epoch=1, saved=5, reason="it broke"))
    assert SetTimer(timer_id="max_time/2/j", at=30.0) in desk.asked(SetTimer)
    desk.say(GangProgressed(at=15.0, job_id="j", epoch=2, done=12, saved=10))
    desk.say(ClusterObserved(at=1000.0, gangs=()))  # the driver was dead all night
    assert desk.controller.job("j").held_for == 15.0
    assert SetTimer(timer_id="max_time/3/j", at=1015.0) in desk.asked(SetTimer)
    desk.say(TimerFired(at=1015.0, timer_id="max_time/3/j"))
    desk.say(GangStopped(at=1016.0, job_id="j", epoch=3, saved=20))
    assert desk.state("j") is State.FAILED


def test_look_ahead_knows_of_time_limits():
    desk = Desk()
    desk.submit("limited", 4, max_time=30.0)
    desk.submit("behind", 4)
    assert forecast(desk.controller, 10.0) == {"behind": (30.0, 130.0, 130.0)}


def test_policies_see_a_gang_end_at_its_max_time_at_the_latest():
    desk = Desk()
    desk.submit("j", at=5.0, max_time=30.0)
    seen = desk.controller.ledger.running
    assert (seen["j"].end, seen["j"].finish) == (35.0, 105.0)
    desk.run("j", at=6.0)
    assert (seen["j"].end, seen["j"].finish) == (35.0, 106.0)
    desk.say(GangProgressed(at=10.0, job_id="j", epoch=1, done=20, saved=0, rate=10.0))
    assert (seen["j"].end, seen["j"].finish) == (18.0, 18.0)
    desk.say(GangProgressed(at=10.0, job_id="j", epoch=1, done=20, saved=0, rate=0.5))
    assert desk.controller.ledger.releases == [(35.0, "j")]


def test_nothing_is_backfilled_that_would_outlast_the_time_limit_of_what_runs():
    desk = Desk("backfill")
    desk.submit("limited", 3, max_time=30.0)
    desk.submit("head", 4)
    desk.submit("long", 1, rate=2.0)
    desk.submit("short", 1, rate=4.0)
    assert {job_id for job_id in desk.controller.jobs if desk.state(job_id) is State.STARTING} == {"limited", "short"}


def test_what_a_stopped_gang_has_saved_is_foretold_by_the_work_that_it_has_left():
    class Preempting:
        name = "preempting"

        def decide(self, view):
            free = dict(view.free)
            starts = [Start(job_id=job.job_id, option=job.options[0]) for job in view.queue if free["*/V"] == 4][:1]
            stops = [
                each.job_id for each in view.running.values() if each.stoppable and view.now >= 40.0 > each.started
            ]
            return Decision(starts=tuple(starts), stops=tuple(stops), wake_at=40.0)

    desk = Desk(Preempting())
    desk.submit("j")
    desk.submit("waits")
    foretold = forecast(desk.controller, 40.0)
    assert foretold == {"j": (0.0, 100.0, 100.0), "waits": (100.0, 200.0, 200.0)}


def test_a_job_that_has_just_come_back_is_not_given_the_reasons_of_a_round_that_did_not_see_it():
    desk = Desk(round_interval=60.0)
    desk.submit("runs", 4)
    desk.say(submitted("waits", 1.0))
    desk.say(JobPlanned(at=1, job_id="waits", planning=1, candidates=(candidate(4),)))
    desk.say(TimerFired(at=60.0, timer_id="round"))
    assert desk.controller.reason("waits").code not in ("round", "planning")
    desk.say(GangFailed(at=70.0, job_id="runs", epoch=1, saved=0, reason="it broke"))
    assert desk.controller.reason("runs").code == "round"


def test_the_table_of_transitions_is_closed():
    assert set(TRANSITIONS) == set(State)
    assert all(not TRANSITIONS[state] for state in FINAL)
    reached = {state for targets in TRANSITIONS.values() for state in targets} | {State.SUBMITTED}
    assert reached == set(State)
    assert "starting --> running: GangStarted" in format_transitions()
