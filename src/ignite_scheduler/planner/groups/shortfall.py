"""Why no chain of groups fits: the least bytes that are missing, or what binds where memory would not cure it.

Theory of operation
-------------------
What a stage lacks on a group is least with every action that saves bytes and is permitted: optimizer state shared out,
activations offloaded, and of all permitted ways to recompute the one that keeps least. Then every replica needs
``fixed + slope · share`` with one slope for all of them. The total above their limits is a sum of convex functions of
the shares, so that dealing each sample where it adds least is exact. What a chain lacks is the sum over its stages, of
which the least is found from the end over (stages, multiset of devices, first group, first layer).

1F1B holds at most as many microbatches as GPipe with the same samples, so that GPipe is looked at only where it is
demanded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.cost.memory import NOT_OFFLOADED
from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.costs import Costs, for_family
from ignite_scheduler.planner.groups.field import in_flight
from ignite_scheduler.planner.groups.layout import make_layout
from ignite_scheduler.planner.groups.memory import run_bytes
from ignite_scheduler.planner.groups.search import Instance, make_instance
from ignite_scheduler.planner.groups.stage import CHEAPEST, EACH, kept_bytes
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.request import Request


class Shortfall(NamedTuple):
    """The least total of bytes above the limits, and the family of the chain that lacks so little.

    Infinite and None where no chain is permitted whatever the memory, or none lacks less than was asked for.
    """

    bytes: float
    family: Family | None


class Loads(NamedTuple):
    """Bytes of runs of layers, [end, first].

    ``slope`` [row, offloaded, end, first] are bytes a sample of a replica's share for the microbatches in flight of a
    row, at least; ``parameters`` and ``space`` do not depend on the share.
    """

    parameters: Floats
    space: Floats
    slope: Floats


def shortfall(request: Request, below: float = math.inf) -> Shortfall:
    """The least that a permitted chain of groups lacks, if that is less than ``below``; 0 where one fits."""
    return least_lack(make_instance(request.problem, request), below)


def least_lack(instance: Instance, below: float = math.inf) -> Shortfall:
    """As :func:`shortfall`. O(families · (4^devices · stages · layers + 3^devices · stages · layers²))."""
    families = instance.request.families
    found = Shortfall(below, None)
    for position in _order(families, instance.request.max_stages):
        lacks = _family_lack(instance, families[position], found.bytes)
        if lacks < found.bytes:
            found = Shortfall(lacks, families[position])
        if found.bytes == 0:
            break
    return found if found.family is not None else Shortfall(math.inf, None)


def binding(request: Request) -> str:
    """What rules out every chain whatever the memory: ``devices``, ``links``, ``offload`` or ``times``.

    Of several the last one in this order, without which there still is none when those before it are given.
    """
    instance = make_instance(request.problem, request)
    if not instance.layout.allowed.any():
        return "devices"
    instance = instance._replace(costs=instance.costs._replace(memory=np.full_like(instance.costs.memory, np.inf)))
    for name, eased in _eased(instance):
        if least_lack(eased).family is not None:
            return name
    return "devices"


def _eased(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """The instance without one limit after the other, each named."""
    classes = instance.layout.classes
    linked = replace(classes, latency=np.zeros_like(classes.latency), per_byte=np.zeros_like(classes.per_byte))
    instance = instance._replace(layout=make_layout(instance.request, linked, instance.costs))
    yield "links", instance
    instance = instance._replace(costs=instance.costs._replace(host=np.ones_like(instance.costs.host)))
    yield "offload", instance
    yield "times", instance._replace(costs=instance.costs._replace(barrier=np.zeros_like(instance.costs.barrier)))


def _order(families: Sequence[Family], max_stages: int) -> list[int]:
    """Families by the samples in flight at most, those left out that hold more than another with the same samples."""
    lean = {family.samples for family in families if family.schedule == "1f1b"}
    kept = [p for p, family in enumerate(families) if family.schedule == "1f1b" or family.samples not in lean]
    return sorted(kept, key=lambda p: (in_flight(families[p], max_stages) * families[p].samples, p))


def _family_lack(instance: Instance, family: Family, below: float) -> float:
    """The least that a chain of the family lacks; infinite where that is not less than ``below``."""
    request, layout = instance.request, instance.layout
    costs = for_family(instance.costs, family.samples, family.last_samples)
    held = [in_flight(family, n) for n in range(1, request.max_stages + 1)]
    rows = sorted(set(held))
    may_cut = np.zeros(costs.num_layers + 1, dtype=np.bool_)
    may_cut[[0, *request.cuts, costs.num_layers]] = True
    offloaded, groups = _offloaded(costs, layout.groups.members), layout.groups
    lack = _lacks(
        costs, groups.members, groups.size, offloaded, _loads(costs, rows), np.array(rows), may_cut, below
    )  # fmt: skip
    row = np.searchsorted(rows, held)
    return float(
        _least(layout.pairs, layout.usage, layout.allowed, layout.held, may_cut, lack, row, request.min_stages, below)
    )


def _offloaded(costs: Costs, members: Any) -> Any:
    """[group]: whether activations may be in host memory and every member has a figure for the way there."""
    hosted = np.append(costs.host, 1.0)[members].min(axis=1, initial=np.inf) > 0  # −1 stands behind the last member
    return np.ascontiguousarray(hosted & costs.offload[1])


def _loads(costs: Costs, rows: Sequence[int]) -> Loads:
    """Bytes of every run of layers, recomputed so that least is kept."""
    parameters, kept, peak, space = run_bytes(costs)
    keep, again = bool(costs.recompute[0]), bool(costs.recompute[1])
    ways = [(kept, peak)] if keep else []
    if again:
        ways += [(costs.entering.T, kept + peak), _single_layers(costs, CHEAPEST if keep else EACH)]
    slope = [
        [
            np.minimum.reduce([resident * held + extra for held, extra in ways])
            for resident in (k, min(k, NOT_OFFLOADED))
        ]
        for k in rows
    ]
    return Loads(*map(np.ascontiguousarray, (parameters, space, np.array(slope))))


@compiled
def _single_layers(costs: Any, recomputed: int) -> Any:
    """[end, first] of kept and momentary bytes a sample where single layers are recomputed: all, or all that save."""
    size = costs.num_layers
    kept, extra = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size + 1))
    chosen = np.zeros(size, np.bool_)
    for index in range(size):
        own = costs.activations[index + 1] - costs.activations[index]
        chosen[index] = recomputed == EACH or own > costs.reads[index]
    for j in range(1, size + 1):
        for i in range(j):
            kept[j, i], extra[j, i] = kept_bytes(costs, i, j, chosen, recomputed)
    return kept, extra


@compiled
def group_lack(memory: Any, size: int, samples: int, fixed: float, each: float, rest: Any, below: float) -> float:
    """The least total above the limits of replicas that share out the samples, at least one for each of them.

    Parameters
    ----------
    memory
        [replica]: limits.
    fixed, each
        Bytes of every replica, and for each sample of its share.
    rest
        Scratch: [replica] bytes that are left beside whole samples.
    below
        What is not less than this may be given too small, but not smaller than this.
    """
    left = samples - size
    total: float = 0.0
    for r in range(size):
        room = memory[r] - fixed
        total += max(0.0, each - room)
        if total >= below:
            return total
        rest[r] = 0.0
        if room >= each > 0:
            whole = samples if room >= each * samples else int(room / each)
            left -= whole - 1
            rest[r] = max(0.0, room - whole * each)
    if each == 0 or left <= 0:
        return total
    total += float(left * each)
    for _ in range(min(left, size)):  # where most is left, one more sample adds least
        most = 0
        for r in range(size):
            if rest[r] > rest[most]:
                most = r
        total -= min(each, rest[most])
        rest[most] = 0.0
    return total


@compiled
def _lacks(costs: Any, members: Any, sizes: Any, offloaded: Any, loads: Any, rows: Any, may_cut: Any,
           below: float) -> Any:  # fmt: skip
    """[group, row, end, first]: what a stage lacks; infinite where it cannot be, or lacks ``below`` or more."""
    lack = np.full((len(sizes), len(rows), costs.num_layers + 1, costs.num_layers + 1), np.inf)
    rest, memory = np.zeros(members.shape[1]), np.zeros(members.shape[1])
    for g in range(len(sizes)):
        size = sizes[g]
        if size > costs.samples:
            continue
        for r in range(size):
            memory[r] = costs.memory[members[g, r]]
        state = costs.working + (costs.state / size if costs.shard[1] else costs.state)
        for row in range(len(rows)):
            if rows[row] > NOT_OFFLOADED and not offloaded[g] and not costs.offload[0]:
                continue
            slope = loads.slope[row, 1 if offloaded[g] else 0]
            for j in range(1, costs.num_layers + 1):
                first = 0 if may_cut[j] else j
                for r in range(size):
                    first = max(first, costs.barrier[members[g, r], j])
                for i in range(first, j):
                    if not may_cut[i]:
                        continue
                    fixed = (loads.parameters[j, i] * state + costs.scale * loads.space[j, i]) * costs.factor
                    each = costs.scale * slope[j, i] * costs.factor
                    value = group_lack(memory, size, costs.samples, fixed, each, rest, below)
                    if value < below:
                        lack[g, row, j, i] = value
    return lack


@compiled
def _least(  # noqa: PLR0912
    pairs: Any, usage: Any, allowed: Any, held: Any, may_cut: Any, lack: Any, row: Any, min_stages: int, below: float
) -> float:
    """The least that a permitted chain lacks, infinite where that is not less than ``below``."""
    stages, size = len(row), len(may_cut) - 1
    suffix = np.full((stages, len(pairs.group), size + 1), np.inf)  # of the layers from some on, by (stages, pair)
    behind = np.empty(size + 1)
    least = np.inf
    for v in range(1, len(held)):
        for p in range(pairs.start[v], pairs.start[v + 1]):
            g = pairs.group[p]
            rest = v - usage[g]
            for t in range(min(stages, held[rest] + 1)):
                if (rest == 0) != (t == 0):
                    continue
                behind[:] = np.inf
                if rest == 0:
                    behind[size] = 0.0
                for q in range(pairs.start[rest], pairs.start[rest + 1]):
                    if pairs.link[g, pairs.group[q]] >= 0:
                        for j in range(1, size):
                            behind[j] = min(behind[j], suffix[t - 1, q, j])
                for j in range(1, size + 1):
                    if behind[j] == np.inf:
                        continue
                    for i in range(j):
                        value = lack[g, row[t], j, i] + behind[j]
                        if value < below and value < suffix[t, p, i]:
                            suffix[t, p, i] = value
                if allowed[v] and t + 1 >= min_stages and suffix[t, p, 0] < below:
                    least = below = suffix[t, p, 0]
    return least
