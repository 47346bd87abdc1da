"""Driver 1: a heap of things to come feeds the controller, and its commands put new things into the heap.

Theory of operation
-------------------
The heap holds (time, priority, serial). Of one instant, reports about gangs come first, then nodes, then submissions,
and timers last: a round of decisions sees all that happened in its instant. Answers that take no time (plans, starts
without start-up) do not pass through the heap but are handled at once, in order. The controller is the same as in the
live loop; nothing here decides.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ignite_scheduler.control import FINAL, Controller, Options
from ignite_scheduler.control.admission import run_seconds
from ignite_scheduler.control.commands import Command, PlanJob, SetTimer, StartGang, StopGang
from ignite_scheduler.control.events import (
    Event,
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
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.workload import TableJob, WorkloadJob, mix_text
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan
from ignite_scheduler.policy import (
    Candidate,
    Decision,
    Policy,
    View,
    candidates_of_plans,
    candidates_of_rates,
    figures_of_kinds,
)
from ignite_scheduler.simulation.report import PolicyResult, summarise
from ignite_scheduler.simulation.world import NodeFault, World

Planner = Callable[[Job, Cluster, tuple[str, ...]], Sequence[Plan] | Infeasible]
"""Plans of a job over devices of the cluster (ids), to choose from: never empty, or why there are none."""

PROMISED_BY_DEFAULT: Final = 500
"""Jobs up to which promises are made unless asked otherwise: each promise simulates the whole queue."""

_REPORT, _NODE, _SUBMISSION, _TIMER = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds that jobs pay beside their work; None = what a calibration says, without one none."""

    startup: float | None = None
    """At each start."""
    startup_range: tuple[float, float] | None = None
    """Its early and its late end, for promises; None = not known."""
    restart: float | None = None
    """Further at a start that continues saved work."""
    checkpoint: float | None = None
    """For a checkpoint."""


def simulate(
    workload: Sequence[WorkloadJob],
    cluster: Cluster,
    policy: Policy,
    *,
    seed: int = 0,
    planner: Planner | None = None,
    costs: Costs | Mapping[str, Costs] | None = None,
    faults: Iterable[NodeFault] = (),
    noise: float = 0.0,
    promises: bool | None = None,
    options: Options | None = None,
) -> PolicyResult:
    """What the policy makes of the workload on the cluster.

    Parameters
    ----------
    workload
        Jobs with their times of submission, in any order.
    seed
        Of the noise. Without noise nothing is random; the same arguments always give the same result (times of the
        decisions apart).
    planner
        Makes the plans of pipeline jobs; may be None if there are none. Asked again when the set of devices changes.
    costs
        Charged to every job, or by the job's name; none by default.
    faults
        Nodes that are lost and come back.
    noise
        Standard deviation of log(true rate ÷ predicted rate), drawn once a job.
    promises
        Foretell start and finish at submission; None = if there are no more than :data:`PROMISED_BY_DEFAULT` jobs.
    options
        Of the controller; its ``promises`` are overruled by the argument above.

    Raises
    ------
    InputError
        Two jobs of one name, a pipeline job without planner or without a number of steps.
    InvariantError
        The policy misbehaved (the message says how), or a law of ours is broken.
    """
    if promises is None:
        promises = len(workload) <= PROMISED_BY_DEFAULT
    timed = _TimedPolicy(policy)
    controller = Controller(cluster, timed, replace(options or Options(), promises=promises))
    driver = _Driver(controller, timed, workload, planner, costs or {}, World(seed=seed, noise=noise))
    for fault in faults:
        driver.plan_fault(fault)
    began = time.process_time()
    driver.run()
    return summarise(
        policy=policy.name,
        cluster=cluster,
        controller=controller,
        segments=driver.world.segments,
        alone=driver.alone,
        job_seconds=driver.job_seconds,
        decision_seconds=timed.seconds,
        cpu_seconds=time.process_time() - began,
    )


@dataclass(slots=True)
class _TimedPolicy:
    """The policy, with the CPU time of its decisions; decisions within a forecast are not counted."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)
    armed: bool = False

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, view: View) -> Decision:
        if not self.armed:
            return self.policy.decide(view)
        self.armed = False
        began = time.thread_time()
        decision = self.policy.decide(view)
        self.seconds.append(time.thread_time() - began)
        return decision


class _Driver:
    """The heap and the loop."""

    def __init__(
        self,
        controller: Controller,
        timed: _TimedPolicy,
        workload: Sequence[WorkloadJob],
        planner: Planner | None,
        costs: Costs | Mapping[str, Costs],
        world: World,
    ) -> None:
        self.controller = controller
        self.timed = timed
        self.planner = planner
        self.world = world
        self.jobs = {job.name: job for job in workload}
        self.kinds = figures_of_kinds(controller.cluster)
        self.heap: list[tuple[float, int, int, Event]] = []
        self.serial = 0
        self.now = 0.0
        self.job_seconds = 0.0
        """Integral over time of the number of jobs that are submitted and have not ended."""
        self.inside: set[str] = set()
        self.alone: dict[str, tuple[float, int]] = {}
        if len(self.jobs) != len(workload):
            raise InputError("two jobs of the workload have one name; rename one")
        for job in workload:
            own = costs if isinstance(costs, Costs) else costs.get(job.name, Costs())
            self.push(_SUBMISSION, _submission(job, own))

    def push(self, priority: int, event: Event) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (event.at, priority, self.serial, event))

    def plan_fault(self, fault: NodeFault) -> None:
        devices = next((node.devices for node in self.controller.cluster.nodes if node.name == fault.node), None)
        if devices is None:
            names = ", ".join(node.name for node in self.controller.cluster.nodes)
            raise InputError(f"no node {fault.node!r} that could be lost; there are: {names}")
        self.push(_NODE, NodeLost(at=fault.at, node=fault.node))
        if fault.back is not None:
            self.push(_NODE, NodeJoined(at=fault.back, node=fault.node, devices=devices))

    def run(self) -> None:
        heap = self.heap
        while heap:
            at, _, _, event = heapq.heappop(heap)
            self.job_seconds += len(self.inside) * (at - self.now)
            self.now = at
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Handle an event and all that follows from it at once."""
        todo = deque(self.before(event))
        while todo:
            event = todo.popleft()
            self.timed.armed = True
            for command in self.controller.handle(event):
                todo.extend(self.carry_out(command))
            self.inside -= self.over(event)

    def over(self, event: Event) -> set[str]:
        """Ids of the jobs that the event may have ended and that have ended."""
        about = getattr(event, "job_id", None)
        touched = self.inside if isinstance(event, NodeLost) else set() if about is None else {about}
        return {job_id for job_id in touched if self.controller.jobs[job_id].state in FINAL}

    def before(self, event: Event) -> tuple[Event, ...]:
        """What the controller hears, in the world's words: nothing of a gang that is gone, progress before a loss."""
        match event:
            case GangFinished() | GangStopped():
                if not self.world.is_current(event.job_id, event.epoch):
                    return ()
                self.world.end(event.job_id, event.at)
            case NodeLost():
                return (*self._lose(event), event)
            case JobSubmitted():
                self.inside.add(event.job_id)
            case _:
                pass
        return (event,)

    def _lose(self, event: NodeLost) -> list[Event]:
        """What was known of the node's gangs before it went; those that live on it wholly are over."""
        lost = {
            device.id for node in self.controller.cluster.nodes if node.name == event.node for device in node.devices
        }
        reports: list[Event] = []
        for gang in self.world.on_devices(lost):
            command = gang.command
            done, saved = gang.progress(event.at)
            reports.append(
                GangProgressed(at=event.at, job_id=command.job_id, epoch=command.epoch, done=done, saved=saved)
            )
            if lost.issuperset(command.device_ids):
                self.world.end(command.job_id, event.at)
        return reports

    def carry_out(self, command: Command) -> tuple[Event, ...]:
        """Do as told; what is answered at once is returned, what takes time goes into the heap."""
        at = self.now
        match command:
            case StartGang():
                return self._start(command)
            case SetTimer():
                self.push(_TIMER, TimerFired(at=command.at, timer_id=command.timer_id))
            case PlanJob():
                return (self._plan(command),)
            case StopGang():
                return self._stop(command, at)
        return ()

    def _start(self, command: StartGang) -> tuple[Event, ...]:
        spec = self.controller.jobs[command.job_id].spec
        gang = self.world.start(command, spec, self.now)
        self.push(_REPORT, GangFinished(at=gang.finish, job_id=command.job_id, epoch=command.epoch))
        started = GangStarted(at=gang.ready, job_id=command.job_id, epoch=command.epoch)
        if gang.ready > self.now:
            self.push(_REPORT, started)
            return ()
        return (started,)

    def _stop(self, command: StopGang, at: float) -> tuple[Event, ...]:
        if not self.world.is_current(command.job_id, command.epoch):
            return ()
        gang = self.world.gangs[command.job_id]
        done, saved = gang.progress(at)
        if not command.save:
            self.world.end(command.job_id, at)
            return (GangStopped(at=at, job_id=command.job_id, epoch=command.epoch, saved=saved),)
        over = at + gang.spec.checkpoint_cost
        self.push(_REPORT, GangStopped(at=over, job_id=command.job_id, epoch=command.epoch, saved=done))
        return ()

    def _plan(self, command: PlanJob) -> Event:
        job = self.jobs[command.job_id].job
        found = self._candidates(job, command.device_ids)
        if isinstance(found, Infeasible):
            return JobRefused(at=self.now, job_id=command.job_id, planning=command.planning, reason=found)
        if command.job_id not in self.alone:
            spec = self.controller.jobs[command.job_id].spec
            self.alone[command.job_id] = min(
                (run_seconds(spec, spec.work, each.rate), each.num_devices) for each in found
            )
        return JobPlanned(at=self.now, job_id=command.job_id, planning=command.planning, candidates=found)

    def _candidates(self, job: Job | TableJob, device_ids: tuple[str, ...]) -> tuple[Candidate, ...] | Infeasible:
        if isinstance(job, TableJob):
            found = candidates_of_rates(job.rates, self.kinds)
            return found or _no_such_devices(job)
        if self.planner is None:
            raise InputError(f"job {job.name!r} needs a planner, since its rates are not given")
        plans = self.planner(job, self.controller.cluster, device_ids)
        if isinstance(plans, Infeasible):
            return plans
        return candidates_of_plans(plans, self.controller.cluster, self.controller.pools)


def _no_such_devices(job: TableJob) -> Infeasible:
    wanted = " or ".join(mix_text(mix) for mix in job.rates)
    return Infeasible(
        code="devices",
        text=f"the cluster does not have the devices for any rate of job {job.name!r}: {wanted}",
        cures=("more devices of these kinds", "rates on the kinds that there are"),
    )


def _submission(job: WorkloadJob, costs: Costs) -> JobSubmitted:
    if isinstance(job.job, TableJob):
        work, terms, every = job.job.total, job.job.queue, None
    elif job.job.steps is None:
        raise InputError(f"job {job.name!r} cannot be simulated: its length is given in epochs; give 'steps'")
    else:
        work, terms, every = float(job.job.steps), job.job.queue, job.job.checkpoint.every
    return JobSubmitted(
        at=job.submit,
        job_id=job.name,
        work=work,
        terms=terms,
        startup=costs.startup or 0.0,
        startup_range=costs.startup_range,
        restart=costs.restart or 0.0,
        checkpoint_every=every,
        checkpoint_cost=costs.checkpoint or 0.0,
    )
