"""A rule-based machine drives control with random, late, doubled and invented events; all laws hold after each."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ignite_scheduler.control import FINAL, Controller, Options, State
from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    CancelRequested,
    ClusterObserved,
    Event,
    GangFailed,
    GangFinished,
    GangProgressed,
    GangStarted,
    GangStopped,
    JobPlanned,
    JobRefused,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    TimerFired,
)
from ignite_scheduler.model import Infeasible, QueueTerms
from ignite_scheduler.policy import (
    Candidate,
    Decision,
    Start,
    View,
    candidates_of_rates,
    figures_of_kinds,
    make_policy,
)
from ignite_scheduler.policy.view import fits, take
from queue_jobs import cluster

CLUSTER = cluster({"a": {"F": 2}, "b": {"F": 1, "S": 2}, "c": {"S": 1}})
NODES = {node.name: node for node in CLUSTER.nodes}
KINDS = figures_of_kinds(CLUSTER)


class Preempting:
    """Starts what it can, last come first, and stops the job that has run longest: for the sake of the test."""

    name = "preempting"

    def decide(self, view: View) -> Decision:
        free = dict(view.free)
        starts = []
        for job in reversed(list(view.queue)):
            for option in job.options:
                if fits(option.needs, free):
                    take(option.needs, free)
                    starts.append(Start(job_id=job.job_id, option=option))
                    break
        old = [job.job_id for job in view.running.values() if job.stoppable and job.started + 20 < view.now]
        return Decision(starts=tuple(starts), stops=tuple(old[:1]), wake_at=view.now + 30)


def machine_policy(name: str) -> object:
    return Preempting() if name == "preempting" else make_policy(name)


class ControlMachine(RuleBasedStateMachine):
    """The world as a list of things that may be said to the controller, some of them wrong, late or twice."""

    @initialize(policy=st.sampled_from(["fifo", "backfill", "ignite", "preempting"]), promises=st.booleans())
    def begin(self, policy: str, promises: bool) -> None:
        options = Options(promises=promises, start_grace=5.0, missing_grace=2.0)
        self.fresh = lambda: Controller(CLUSTER, machine_policy(policy), options)
        self.controller = self.fresh()
        self.now = 0.0
        self.journal: list[tuple[Event, list[Command]]] = []
        self.gangs: dict[tuple[str, int], StartGang] = {}
        self.dead: dict[tuple[str, int], set[str]] = {}
        self.plans: list[PlanJob] = []
        self.timers: dict[str, float] = {}
        self.saved: dict[str, float] = {}
        self.num_jobs = 0

    def say(self, event: Event) -> None:
        commands = self.controller.handle(event)
        self.journal.append((event, commands))
        for command in commands:
            match command:
                case StartGang():
                    busy = {each for gang in self.gangs.values() for each in gang.device_ids}
                    assert busy.isdisjoint(command.device_ids), "a device was given to two gangs"
                    assert all(job_id != command.job_id for job_id, _ in self.gangs), "a job was started twice"
                    assert len(command.device_ids) == command.candidate.num_devices
                    record = self.controller.job(command.job_id)
                    limit = record.spec.terms.max_time
                    assert limit is None or record.held_for < limit, "a job that has had its time was started"
                    assert command.saved >= self.saved.get(command.job_id, 0.0)
                    self.saved[command.job_id] = command.saved
                    self.gangs[command.job_id, command.epoch] = command
                case PlanJob():
                    self.plans.append(command)
                case SetTimer():
                    self.timers[command.timer_id] = command.at
                case StopGang():
                    if command.cause == "stale":
                        self.gangs.pop((command.job_id, command.epoch), None)

    def settle(self) -> None:
        while self.timers and min(self.timers.values()) <= self.now:
            timer = min(self.timers, key=lambda each: (self.timers[each], each))
            del self.timers[timer]
            self.say(TimerFired(at=self.now, timer_id=timer))

    def pick(self, data: st.DataObject) -> tuple[str, int]:
        """Mostly a gang that runs, sometimes one that never was or is over."""
        known = [
            *self.gangs,
            *(
                (command.job_id, command.epoch)
                for _, cs in self.journal
                for command in cs
                if isinstance(command, StartGang)
            ),
        ]
        return data.draw(st.sampled_from([*known, ("nobody", 1), ("job0", 99)]))

    @rule(dt=st.integers(0, 20))
    def pass_time(self, dt: int) -> None:
        self.settle()
        self.now += dt
        self.settle()

    @rule(
        work=st.integers(1, 100),
        deadline=st.none() | st.integers(1, 300),
        max_time=st.none() | st.integers(1, 60),
        priority=st.integers(0, 2),
        preemptible=st.booleans(),
        twice=st.booleans(),
    )
    def submit(
        self, work: int, deadline: int | None, max_time: int | None, priority: int, preemptible: bool, twice: bool
    ) -> None:
        terms = QueueTerms(deadline=deadline, max_time=max_time, priority=priority, preemptible=preemptible)
        event = JobSubmitted(at=self.now, job_id=f"job{self.num_jobs}", work=work, terms=terms, startup=1.0)
        self.num_jobs += 1
        self.say(event)
        if twice:
            self.say(event)

    @precondition(lambda self: self.plans)
    @rule(
        data=st.data(),
        rates=st.dictionaries(
            st.sampled_from([(("F", 1),), (("F", 2),), (("S", 1),), (("S", 3),), (("F", 1), ("S", 1)), (("F", 9),)]),
            st.integers(1, 10),
            min_size=1,
        ),
        keep=st.booleans(),
    )
    def answer_plan(self, data: st.DataObject, rates: dict[tuple[tuple[str, int], ...], int], keep: bool) -> None:
        command = data.draw(st.sampled_from(self.plans))
        if not keep:
            self.plans.remove(command)
        found: tuple[Candidate, ...] = candidates_of_rates(rates, KINDS)
        if found:
            self.say(JobPlanned(at=self.now, job_id=command.job_id, planning=command.planning, candidates=found))
        else:
            reason = Infeasible(code="devices", text="none")
            self.say(JobRefused(at=self.now, job_id=command.job_id, planning=command.planning, reason=reason))

    @rule(data=st.data())
    def start_gang(self, data: st.DataObject) -> None:
        job_id, epoch = self.pick(data)
        self.say(GangStarted(at=self.now, job_id=job_id, epoch=epoch))

    @rule(data=st.data(), done=st.integers(0, 120), saved=st.integers(0, 120), rate=st.none() | st.integers(1, 5))
    def progress(self, data: st.DataObject, done: int, saved: int, rate: int | None) -> None:
        job_id, epoch = self.pick(data)
        self.say(GangProgressed(at=self.now, job_id=job_id, epoch=epoch, done=done, saved=saved, rate=rate))

    @rule(
        data=st.data(),
        how=st.sampled_from(["finished", "stopped", "failed", "device"]),
        saved=st.integers(0, 120),
        twice=st.booleans(),
    )
    def end_gang(self, data: st.DataObject, how: str, saved: int, twice: bool) -> None:
        job_id, epoch = self.pick(data)
        gang = self.gangs.get((job_id, epoch))
        event: Event
        if how == "finished":
            event = GangFinished(at=self.now, job_id=job_id, epoch=epoch)
        elif how == "stopped":
            event = GangStopped(at=self.now, job_id=job_id, epoch=epoch, saved=saved)
        else:
            device = gang.device_ids[0] if gang is not None and how == "device" else None
            event = GangFailed(at=self.now, job_id=job_id, epoch=epoch, saved=saved, reason="it broke", device=device)
        self.gangs.pop((job_id, epoch), None)
        self.say(event)
        if twice:
            self.say(event)

    @rule(number=st.integers(0, 30))
    def cancel(self, number: int) -> None:
        self.say(CancelRequested(at=self.now, job_id=f"job{number}"))

    def bury(self, devices: set[str]) -> None:
        """The processes on lost devices are dead, even if the devices come back; a gang without processes is gone."""
        for key, gang in list(self.gangs.items()):
            self.dead[key] = self.dead.get(key, set()) | devices
            if self.dead[key].issuperset(gang.device_ids):
                del self.gangs[key]

    @rule(name=st.sampled_from([*NODES, "elsewhere"]))
    def lose_node(self, name: str) -> None:
        self.bury({device.id for device in NODES[name].devices} if name in NODES else set())
        self.say(NodeLost(at=self.now, node=name))

    @rule(name=st.sampled_from([*NODES]), some=st.booleans())
    def join_node(self, name: str, some: bool) -> None:
        devices = NODES[name].devices[: 1 if some else None]
        kept = {device.id for device in devices}
        gone = {device.id for device in NODES[name].devices} - kept
        self.bury(gone)
        self.say(NodeJoined(at=self.now, node=name, devices=devices))

    @rule(forget=st.booleans(), ghost=st.booleans())
    def observe(self, forget: bool, ghost: bool) -> None:
        listed = list(self.gangs)
        if forget and listed:
            self.gangs.pop(listed.pop())
        self.say(ClusterObserved(at=self.now, gangs=(*listed, *([("ghost", 1)] if ghost else []))))
        if ghost:
            assert any(isinstance(c, StopGang) and c.cause == "stale" for c in self.journal[-1][1])

    @invariant()
    def books_are_right(self) -> None:
        if not hasattr(self, "controller"):
            return
        self.controller.ledger.check()
        for job_id, record in self.controller.jobs.items():
            if record.state in (State.QUEUED, State.WAITING, State.SUBMITTED, State.FAILED, State.CANCELLED):
                assert self.controller.reason(job_id) is not None
            assert record.state in FINAL or record.ended_at is None

    def teardown(self) -> None:
        if not hasattr(self, "controller"):
            return
        replayed = self.fresh()
        for event, commands in self.journal:
            assert replayed.handle(event) == commands, "a replay gave other commands"
        assert replayed.jobs == self.controller.jobs
        self.drain()

    def drain(self) -> None:
        """All nodes come back and the world behaves from now on: every job comes to an end."""
        for name, node in NODES.items():
            self.say(NodeJoined(at=self.now, node=name, devices=node.devices))
        for _ in range(400):
            self.now += 10
            while self.plans:
                command = self.plans.pop(0)
                rates = {(("F", 1),): Fraction(1), (("S", 1),): Fraction(1)}
                found = candidates_of_rates(rates, KINDS)  # type: ignore[arg-type]
                self.say(JobPlanned(at=self.now, job_id=command.job_id, planning=command.planning, candidates=found))
            self.settle()
            for job_id, epoch in list(self.gangs):
                del self.gangs[job_id, epoch]
                self.say(GangFinished(at=self.now, job_id=job_id, epoch=epoch))
            self.say(ClusterObserved(at=self.now, gangs=tuple(self.gangs)))
            self.settle()
            if all(record.state in FINAL for record in self.controller.jobs.values()):
                return
        raise AssertionError({job_id: record.state for job_id, record in self.controller.jobs.items()})


ControlMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TestControlMachine = ControlMachine.TestCase
