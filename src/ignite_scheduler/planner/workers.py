"""Virtual workers: groups of unlike devices, each a pipeline of its own, with data parallelism between them.

Theory of operation
-------------------
1. *Divisions*: the devices are dealt to V = 2, 3, … workers: by node, by kind, across nodes, and balanced by speed.
2. *Shares*: each worker gets a part of every microbatch in proportion to its speed; samples then move from the worker
   that ends last to the one that ends first while that helps.
3. *Chains*: each worker is planned by the exact straight search on its devices with its part; equal questions are asked
   once. A worker may leave devices of its group idle. Chains with the same cuts in all workers are tried beside them
   (:mod:`.aligned`).
4. *Local search*: a device moves to another worker or two are exchanged, and the chains are made anew. Then the best
   choices of several divisions are changed one thing at a time (:mod:`.reshaping`), since the all-reduce between
   workers, which the chains do not see, depends on who holds which layers.

Every figure that is compared is that of :func:`ignite_scheduler.cost.evaluate`. Nothing is proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ignite_scheduler.cost import (
    Assignment,
    StageChoice,
    last_shares,
    layer_seconds,
    microbatch_sizes,
    resolved_precision,
)
from ignite_scheduler.model import Batch, Device, Infeasible, Resources
from ignite_scheduler.planner.aligned import aligned, lined_up
from ignite_scheduler.planner.build import assignment_of
from ignite_scheduler.planner.dealing import Worker, divisions, neighbours, shares_by
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.peers.view import View, see
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.reshaping import reshaped
from ignite_scheduler.planner.setup import prepare
from ignite_scheduler.planner.solve import first_plan, solve, table_work
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.weighed import missing_link, value_of_choice

MOST_WORK: Final = 80_000
"""Pipelines timed at most, whatever the problem allows."""

CHAIN_WORK: Final = 2_000
"""Pipelines timed for the chain of one worker."""

EVALUATED: Final = 100
"""What an evaluated plan counts for: it takes as long as timing so many pipelines in compiled code."""

COUNTS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of workers that are tried."""

REBALANCED: Final = 4
"""Samples that move between workers at most, from each division."""

BEST_FAMILIES: Final = 2
"""Schedules and microbatch sizes that all divisions are tried with, the best on a first division."""

POLISHED: Final = 6
"""Divisions whose best choices are changed one thing at a time."""

HOPEFUL: Final = 1.25
"""Choices that take longer than this many times the best known one are not changed further: it was never enough."""

METHOD: Final = "virtual workers: divisions of the devices by local search, each worker's chain by the straight search"


class Division(NamedTuple):
    """Devices of each worker by id, and its samples of every full microbatch."""

    workers: tuple[Worker, ...]
    shares: tuple[int, ...]


class Chain(NamedTuple):
    """The pipeline of one worker: stages as (first layer, end, device id), and its step without other workers."""

    stages: tuple[tuple[int, int, str], ...]
    step: float


class Tried(NamedTuple):
    """A division with one family, and the choice that came out."""

    value: float
    division: Division
    family: Family
    assignment: Assignment


def search(problem: Problem, request: Request, incumbent: Assignment | None = None) -> Found:
    """The best choice of virtual workers met that is better than the incumbent; ``best`` None where there is none.

    Notes
    -----
    Work is counted and at most :data:`MOST_WORK` or the problem's, so that the result is repeatable. Where the job
    demands memory actions or numbers of replicas, workers are not looked at. The bound is 0.
    """
    demanded = not all(False in values for values in (request.recompute, request.shard, request.offload))
    able = "workers" in problem.abilities and problem.job.pipeline.replicas == "auto" and not demanded
    devices = _devices(request) if able else ()
    if len(devices) < 2:
        return Found(best=None, method="virtual workers are not looked at: the request leaves none")
    state = _Search(problem, request, devices, min(MOST_WORK, problem.work))
    if incumbent is not None:
        state.to_beat = value_of_choice(problem, incumbent)
    for count in COUNTS:
        if count <= len(devices):
            state.divide(count)
    state.improve()
    state.polish()
    met = sorted((entry for entry in state.met if entry.value < math.inf), key=lambda entry: entry.value)
    best = state.best
    return Found(
        best=None if best is None else best.assignment,
        value=math.inf if best is None else best.value,
        method=METHOD,
        others=tuple(dict.fromkeys(entry.assignment for entry in met[:4])),
        work=state.spent,
    )


def _devices(request: Request) -> tuple[Device, ...]:
    """The devices dealt out, by id: all that can hold every layer, the fastest as the request limits them."""
    able = sorted((d for d in request.devices if _work(request.problem, d) < math.inf), key=lambda d: d.id)
    able.sort(key=lambda device: _work(request.problem, device))
    if request.any_of:
        for wanted in request.any_of:
            found = [[d for d in able if d.kind == kind][:count] for kind, count in sorted(wanted.items())]
            if sum(map(len, found)) == sum(wanted.values()):
                return tuple(sorted((d for part in found for d in part), key=lambda device: device.id))
        return ()
    return tuple(sorted(able[: request.max_devices], key=lambda device: device.id))


def _work(problem: Problem, device: Device) -> float:
    """Seconds of one sample through all layers; infinite where the device has no times for one of them."""
    precision = resolved_precision(problem.job, problem.profile)
    total = 0.0
    for index in range(len(problem.profile.layers)):
        entry = layer_seconds(problem.profile, index, device, 1, precision)
        total += math.inf if entry is None else entry.forward + entry.backward
    return total


@dataclass(slots=True)
class _Search:
    """One search: what it was asked, what it knows of chains, and the best so far."""

    problem: Problem
    request: Request
    devices: tuple[Device, ...]
    budget: int
    to_beat: float = math.inf
    best: Tried | None = None
    met: list[Tried] = field(default_factory=list)
    spent: int = 0
    chains: dict[tuple[tuple[str, ...], int, int, Family], Chain | None] = field(default_factory=dict)
    views: dict[Family, View] = field(default_factory=dict)
    speeds: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.speeds = {d.id: 1.0 / max(_work(self.problem, d), 1e-300) for d in self.devices}

    @property
    def limit(self) -> float:
        """What a choice must be below to matter."""
        return self.to_beat if self.best is None else min(self.best.value, self.to_beat)

    def divide(self, count: int) -> None:
        """Try all divisions into so many workers: the first with every family, the others with the best of these."""
        sizes = {self.problem.job.batch.total, *(1 << power for power in range(31))}
        fixed = self.problem.job.batch.micro is not None
        open_families = [f for f in self.request.families if f.samples >= count and (fixed or f.samples in sizes)]
        ways = divisions(self.devices, self.speeds, count)
        if not open_families or not ways:
            return
        tried = [entry for family in open_families if (entry := self.balanced(ways[-1], family)) is not None]
        tried.sort(key=lambda entry: entry.value)
        families = [entry.family for entry in tried[:BEST_FAMILIES]] or open_families[:BEST_FAMILIES]
        for workers in ways[:-1]:
            for family in families:
                self.balanced(workers, family)

    def balanced(self, workers: tuple[Worker, ...], family: Family) -> Tried | None:
        """The division with shares by speed, or where these find nothing by memory."""
        speeds = [sum(self.speeds[device.id] for device in worker) for worker in workers]
        memory = [sum(device.memory for device in worker) for worker in workers]
        by_speed = Division(workers, shares_by(speeds, family.samples))
        self.aligned(by_speed, family)
        found = self._from(by_speed, family)
        if found is None and max(memory) < math.inf and min(memory) > 0:
            found = self._from(Division(workers, shares_by(memory, family.samples)), family)
        return found

    def _from(self, division: Division, family: Family) -> Tried | None:
        """The division, then with samples moved from the worker that ends last to the one that ends first."""
        best: Tried | None = None
        for _ in range(1 + REBALANCED):
            tried = self.tried(division, family)
            if tried is None or (best is not None and tried.value >= best.value):
                break
            best = tried
            steps = [self.chain(worker, w, division, family) for w, worker in enumerate(division.workers)]
            ends = [chain.step for chain in steps if chain is not None]
            last = max(range(len(ends)), key=lambda w: (ends[w], -w))
            first = min(range(len(ends)), key=lambda w: (ends[w], w))
            if division.shares[last] == 1 or first == last:
                break
            moved = [share - (w == last) + (w == first) for w, share in enumerate(division.shares)]
            division = division._replace(shares=tuple(moved))
        return best

    def tried(self, division: Division, family: Family) -> Tried | None:
        """The choice of a division, remembered if it is the best; None where a worker has no chain or it cannot win.

        A step is no shorter than that of each worker alone.
        """
        chains = []
        for w, worker in enumerate(division.workers):
            chain = self.chain(worker, w, division, family)
            if chain is None or (self.problem.objective == "time" and chain.step >= self.limit):
                return None
            chains.append(chain)
        stages = [
            StageChoice(
                layers=tuple(range(first, end)),
                devices=(device,),
                samples=(share,),
                inputs=() if at == 0 else None,
            )
            for chain, share in zip(chains, division.shares, strict=True)
            for at, (first, end, device) in enumerate(chain.stages)
        ]
        sizes = microbatch_sizes(self.problem.job.batch.total, family.samples)
        return self.weighed(
            Assignment(stages=tuple(stages), microbatches=sizes, schedule=family.schedule), division, family
        )

    def aligned(self, division: Division, family: Family) -> None:
        """Try chains with the same cuts in all workers, see :mod:`.aligned`."""
        if self.problem.job.pipeline.split != "auto" or self.request.any_of:
            return
        most = min(self.request.max_stages, *(len(worker) for worker in division.workers))
        for count in range(self.request.min_stages, most + 1):
            for lines in lined_up(division.workers, self.speeds, count):
                assignment = aligned(self.view(family), lines, division.shares)
                if assignment is not None:
                    self.weighed(assignment, division, family)

    def view(self, family: Family) -> View:
        """Seconds and bytes of a family, by device and share."""
        if family not in self.views:
            model = next((view.model for view in self.views.values()), None)
            self.views[family] = see(self.request, self.devices, family, model)
        return self.views[family]

    def weighed(self, assignment: Assignment, division: Division, family: Family) -> Tried | None:
        """The choice with its value, remembered if it is the best; None without budget or where links are missing."""
        if self.spent >= self.budget or missing_link(self.problem.cluster, assignment) is not None:
            return None
        self.spent += EVALUATED
        entry = Tried(value_of_choice(self.problem, assignment), division, family, assignment)
        self.met.append(entry)
        if entry.value < self.limit - TIE:
            self.best = entry
        return entry

    def chain(self, worker: Worker, place: int, division: Division, family: Family) -> Chain | None:
        """The best chain found on a worker's devices for its part of every microbatch."""
        share = division.shares[place]
        last = last_shares(division.shares, family.last_samples)[place]
        key = (tuple(device.id for device in worker), share, last, family)
        if key not in self.chains:
            if self.spent >= self.budget:
                return None
            self.chains[key] = self._solved(worker, share, last, family)
        return self.chains[key]

    def _solved(self, worker: Worker, share: int, last: int, family: Family) -> Chain | None:
        job = self.problem.job
        total = share * (family.num_microbatches - 1) + last
        setup = prepare(
            replace(
                self.problem,
                job=replace(
                    job,
                    batch=Batch(total=max(total, 1), micro=share),
                    resources=Resources(any_of=_exactly(worker) if self.request.any_of else ()),
                    pipeline=replace(
                        job.pipeline, schedule=family.schedule, replicas=1, recompute=False, shard=False, offload=False
                    ),
                ),
                devices=tuple(device.id for device in worker),
                objective="time",
            )
        )
        if isinstance(setup, Infeasible) or setup.classes.wide:
            return None
        own = setup.families[0]
        numbers = setup.numbers(own, setup.arrays(own))
        choice, bound = first_plan(numbers)
        self.spent += 1 + table_work(numbers)
        if bound == math.inf:
            return None
        outcome = solve(numbers, choice, bound, CHAIN_WORK)
        self.spent += outcome.work
        if not outcome.choice.classes:
            return None
        made = assignment_of(setup, outcome.choice, own)
        stages = tuple((stage.layers[0], stage.layers[-1] + 1, stage.devices[0]) for stage in made.stages)
        return Chain(stages, outcome.choice.value)

    def improve(self) -> None:
        """Move devices between workers and exchange them while that helps and the budget lasts."""
        better = True
        while better and self.spent < self.budget:
            better = False
            start = self.best
            if start is None:
                return
            for workers in neighbours(start.division.workers):
                tried = self.balanced(workers, start.family)
                if tried is not None and self.best is tried:
                    better = True
                    break

    def polish(self) -> None:
        """Change the best choices of several divisions, one thing at a time, while that helps and the budget lasts."""
        firsts: dict[tuple[Worker, ...], Tried] = {}
        for entry in sorted(self.met, key=lambda entry: entry.value):
            if entry.value < min(math.inf, HOPEFUL * self.limit):
                firsts.setdefault(entry.division.workers, entry)
        job = self.problem.job.pipeline
        whole = job.stages == "auto" and not self.request.any_of
        for start in list(firsts.values())[:POLISHED]:
            current: Tried | None = start
            while current is not None:
                current = self._better(current, cuts=job.split == "auto", stages=whole)

    def _better(self, start: Tried, *, cuts: bool, stages: bool) -> Tried | None:
        """A choice next to ``start`` that is better; None where none is met."""
        held = set(start.assignment.devices)
        idle = [device.id for device in self.devices if device.id not in held]
        for assignment in reshaped(start.assignment, idle, cuts=cuts, stages=stages):
            tried = self.weighed(assignment, start.division, start.family)
            if tried is not None and tried.value < start.value - TIE:
                return tried
        return None


def _exactly(worker: Worker) -> tuple[dict[str, int], ...]:
    counts: dict[str, int] = {}
    for device in worker:
        counts[device.kind] = counts.get(device.kind, 0) + 1
    return (counts,)
