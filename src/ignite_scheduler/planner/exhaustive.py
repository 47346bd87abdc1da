"""Every permitted choice, one by one: the reference that the search is held against.

It shares with the search only the check of the request and the list of families, and for groups of devices the rule by
which a stage gets its shares and memory actions. Times, memory and the step come from ``cost`` and ``pipeline``.
Factorial: for a few layers and devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

import numpy as np

from ignite_scheduler.cost import (
    Assignment,
    StageChoice,
    balanced_shares,
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
from ignite_scheduler.cost.stages import LayerClock, TimedStage
from ignite_scheduler.model import Bound, Device, Infeasible, Plan
from ignite_scheduler.pipeline import timeline
from ignite_scheduler.planner.groups.choose import acted_stage, value_of
from ignite_scheduler.planner.groups.costs import Costs, for_family, make_costs, permitted
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
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


def exhaustive_groups(request: Request) -> tuple[float, Assignment] | None:
    """The best chain of groups of all that the request permits, by looking at every one; None where nothing fits.

    All ordered divisions of all sets of devices into groups, all cuts, all families; shares and memory actions by
    the rules of :mod:`ignite_scheduler.planner.groups`. Of equal ones the first one met with the fewest devices.
    """
    problem = request.problem
    best: tuple[float, Assignment] | None = None
    for family in request.families:
        costs = _group_costs(request, family)
        for groups in _divisions(request, costs):
            shares = [_base_shares(costs, group) for group in groups]
            if not all(shares):
                continue
            for cuts in combinations(request.cuts, len(groups) - 1):
                if request.split and len(cuts) < len(request.cuts):
                    continue
                stages = _group_stages(request, costs, family, groups, shares, (0, *cuts, costs.num_layers))
                if stages is None:
                    continue
                sizes = microbatch_sizes(problem.job.batch.total, family.samples)
                assignment = Assignment(stages=stages, microbatches=sizes, schedule=family.schedule)
                value = value_of(problem, assignment)
                fewer = best is not None and len(assignment.devices) < len(best[1].devices)
                if best is None or value < best[0] - TIE or (value <= best[0] + TIE and fewer):
                    best = value, assignment
    return best


def _group_costs(request: Request, family: Family) -> Costs:
    problem, margin = request.problem, request.problem.memory_margin
    actions = permitted(request)
    costs = make_costs(problem.job, problem.profile, request.devices, family.samples, margin, actions)
    return for_family(costs, family.samples, family.last_samples)


def _divisions(request: Request, costs: Costs) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Sequences of groups of devices, by position: linked inside and with their neighbours, an allowed set in all."""
    cluster, devices = request.problem.cluster, request.devices
    linked = [[cluster.link(a, b) is not None and cluster.link(b, a) is not None for b in devices] for a in devices]
    order = sorted(range(len(devices)), key=lambda d: (devices[d].node, float(costs.whole[d, 1]), devices[d].id))

    def extended(chain: tuple[tuple[int, ...], ...], left: list[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if len(chain) >= request.min_stages and _may_hold(request, [d for group in chain for d in group]):
            yield chain
        for size in range(1, len(left) + 1 if len(chain) < request.max_stages else 1):
            for group in combinations(left, size) if request.replicas in (None, size) else ():
                together = group + (chain[-1] if chain else ())
                if all(linked[a][b] for a in group for b in together):
                    yield from extended((*chain, group), [d for d in left if d not in group])

    yield from extended((), order)


def _may_hold(request: Request, held: list[int]) -> bool:
    if not request.min_devices <= len(held) <= request.max_devices:
        return False
    kinds = Counter(request.devices[d].kind for d in held)
    return not request.any_of or any(kinds == Counter(dict(wanted)) for wanted in request.any_of)


def _base_shares(costs: Costs, group: tuple[int, ...]) -> tuple[int, ...]:
    """By the seconds of the whole model, one for each device before that; none where there are too few samples."""
    if len(group) > costs.samples:
        return ()
    more = [costs.whole[d, 1:].tolist().__getitem__ for d in group]
    found = balanced_shares(costs.samples - len(group), more)
    assert found is not None
    return tuple(share + 1 for share in found)


def _group_stages(
    request: Request,
    costs: Costs,
    family: Family,
    groups: tuple[tuple[int, ...], ...],
    shares: list[tuple[int, ...]],
    bounds: tuple[int, ...],
) -> tuple[StageChoice, ...] | None:
    """The stages with shares and actions; None where one does not fit or has no time."""
    stages = []
    for s, (group, base, (i, j)) in enumerate(zip(groups, shares, pairwise(bounds), strict=True)):
        held = family.num_microbatches
        if family.schedule == "1f1b":
            held = min(held, len(groups) - s)
        if any(i < costs.barrier[d, j] for d in group):
            return None
        names = tuple(request.devices[d].id for d in group)
        plain = StageChoice(layers=tuple(range(i, j)), devices=names, samples=base)
        fits = _fits_plainly(request, plain, held)
        stage = plain if fits else acted_stage(costs, np.array(group), np.array(base), i, j, held, names)
        if stage is None:
            return None
        stages.append(stage)
    return tuple(stages)


def _fits_plainly(request: Request, stage: StageChoice, held: int) -> bool:
    """Whether the stage fits without actions, and may do without them."""
    problem = request.problem
    if not (False in request.recompute and False in request.shard and False in request.offload):
        return False
    devices = [problem.cluster.device(name) for name in stage.devices]
    timed = TimedStage(problem.job, LayerClock(problem.job, problem.profile), stage, devices, held)
    factor = 1 + problem.memory_margin
    return all(timed.memory(s) * factor <= d.memory for s, d in zip(stage.samples, devices, strict=True))
