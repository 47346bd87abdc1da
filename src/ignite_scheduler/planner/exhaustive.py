"""Every permitted choice, one by one: the reference that the search is held against.

It shares with the search only the check of the request and the list of families. Times, memory and the step come from
``cost`` and ``pipeline``. Factorial: for a few layers and devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

from ignite_scheduler.cost import (
    Assignment,
    byte_scale,
    energy_per_step,
    evaluate,
    layer_seconds,
    memory_factors,
    microbatch_sizes,
    price_per_second,
    resolved_precision,
    stage_durations,
    stage_memory,
    straight,
)
from ignite_scheduler.model import Bound, Device, Infeasible, Plan
from ignite_scheduler.pipeline import timeline
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.tree import TIE


class Key(NamedTuple):
    """What decides between two choices, in this order; values within 1e-9 are equal."""

    value: float
    num_devices: int
    price: float
    ids: tuple[str, ...]

    def beats(self, other: Key) -> bool:
        if abs(self.value - other.value) > TIE:
            return self.value < other.value
        return self[1:] < other[1:]


def exhaustive(problem: Problem) -> Plan | Infeasible:
    """The best plan of all permitted ones, or why there is none, by looking at every one.

    Raises
    ------
    InputError, NotFoundError
        As :func:`ignite_scheduler.planner.plan`.
    """
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return setup
    best: tuple[Key, Assignment] | None = None
    shortfall = math.inf
    for family in setup.families:
        for assignment in _assignments(setup, family):
            over = _overflow(problem, assignment, family)
            shortfall = min(shortfall, over)
            if over > 0:
                continue
            key = judge(setup, assignment)
            if best is None or key.beats(best[0]):
                best = key, assignment
    if best is None:
        if shortfall < math.inf:
            return Infeasible(code="memory", text="nothing fits", shortfall=shortfall)
        return Infeasible(code="links", text="no permitted chain of devices has links")
    return _plan(problem, best[1])


def _assignments(setup: Setup, family: Family) -> Iterator[Assignment]:
    """All choices of the family that have links and times, whatever their memory."""
    cluster = setup.problem.cluster
    class_of = {device: c for c, members in enumerate(setup.classes.members) for device in members}
    microbatches = microbatch_sizes(setup.problem.job.batch.total, family.samples)
    inner = [j for j in range(1, setup.model.num_layers) if setup.permit.may_cut[j]]
    for stages in range(1, setup.permit.max_stages + 1):
        for devices in permutations(sorted(class_of), stages):
            if not setup.permit.allowed[sum(int(setup.classes.strides[class_of[device]]) for device in devices)]:
                continue
            nouns = [cluster.device(device) for device in devices]
            if any(cluster.link(a, b) is None or cluster.link(b, a) is None for a, b in pairwise(nouns)):
                continue
            for cuts in combinations(inner, stages - 1):
                split = tuple(b - a for a, b in pairwise((0, *cuts, setup.model.num_layers)))
                if _timed(setup.problem, nouns, split):
                    yield straight(split=split, devices=devices, microbatches=microbatches, schedule=family.schedule)


def _timed(problem: Problem, devices: list[Device], split: tuple[int, ...]) -> bool:
    first, profile = 0, problem.profile
    precision = resolved_precision(problem.job, profile)
    for device, count in zip(devices, split, strict=True):
        if any(layer_seconds(profile, i, device, 1, precision) is None for i in range(first, first + count)):
            return False
        first += count
    return True


def _overflow(problem: Problem, assignment: Assignment, family: Family) -> float:
    """Bytes above the limits, summed over the stages."""
    job, profile = problem.job, problem.profile
    factors, scale = memory_factors(job, profile), byte_scale(job, profile)
    over, first, stages = 0.0, 0, len(assignment.split)
    for s, (count, name) in enumerate(zip(assignment.split, assignment.devices, strict=True)):
        held = family.num_microbatches
        if family.schedule == "1f1b":
            held = min(held, stages - s)
        need = stage_memory(profile, first, first + count, factors, in_flight=held, samples=family.samples, scale=scale)
        over += max(0.0, need * (1 + problem.memory_margin) - problem.cluster.device(name).memory)
        first += count
    return over


def judge(setup: Setup, assignment: Assignment) -> Key:
    """What a choice is worth by the full timeline, shared wires included."""
    problem = setup.problem
    devices = [problem.cluster.device(name) for name in assignment.devices]
    timed = timeline(*stage_durations(problem.job, problem.profile, problem.cluster, assignment))
    step = float(timed.step)
    price = price_per_second(devices)
    value = step
    if problem.objective == "cost":
        assert price is not None
        value = price * step
    elif problem.objective == "energy":
        busy = [0.0] * len(devices)
        for interval in timed.intervals:
            busy[interval.row] += float(interval.end - interval.start)
        for stage, (start, end) in enumerate(timed.finishes):
            busy[stage] += float(end - start)
        energy = energy_per_step(devices, busy, step)
        assert energy is not None
        value = energy
    known = all(device.price is not None for device in setup.classes.devices)
    return Key(value, len(devices), price if known and price is not None else 0.0, assignment.devices)


def _plan(problem: Problem, assignment: Assignment) -> Plan:
    bare = evaluate(problem.job, problem.profile, problem.cluster, assignment, memory_margin=problem.memory_margin)
    return evaluate(
        problem.job,
        problem.profile,
        problem.cluster,
        assignment,
        memory_margin=problem.memory_margin,
        bound=Bound(step=bare.predicted.step, gap=0.0, method="every choice looked at", optimal=True),
    )
