"""DAPPLE's planner: stages one by one in front of the rest, by the latency around a pivot stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.peers.placing import relaid
from ignite_scheduler.planner.peers.view import View

MOST_STAGES: Final = 16
"""Stages of a plan at most."""


class Part(NamedTuple):
    """One stage, or the transfer between two: seconds a microbatch forward and backward, and of its all-reduce."""

    forward: Floats
    backward: Floats
    reduce: Floats


class Prefix(NamedTuple):
    """Stages that hold the first blocks, with their devices; ``value`` with all other blocks as one stage."""

    value: float
    bounds: tuple[int, ...]
    groups: tuple[tuple[Device, ...], ...]
    parts: tuple[Part, ...]


def dapple(view: View) -> tuple[Assignment, ...]:
    """The pipeline of least estimated latency, stages and devices chosen from the front.

    ``best[j, m]`` holds the first j blocks on m devices such that the whole, with all other blocks as one stage on
    all other devices, takes the least. It grows by every next stage on every number of devices, taken from the nodes
    in three ways: from untouched nodes first, from used nodes first, or evenly from all.

    References
    ----------
    S. Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021, section 4.
    Deviations: one best prefix for each (j, m) instead of one for each occupation of the nodes; devices of mean speed,
    replicas with equal shares; transfers over the slowest link between the two groups; placed as planned, then with
    other orders of the devices in their places.
    """
    best: dict[tuple[int, int], Prefix] = {(0, 0): Prefix(np.inf, (0,), (), ())}
    found: list[Prefix] = []
    total = len(view.devices)
    for j in range(view.num_blocks):
        for m in range(total):
            start = best.pop((j, m), None)
            if start is None:
                continue
            whole = _whole(view, start)
            if whole is not None:
                found.append(whole)
            if len(start.groups) + 1 < min(MOST_STAGES, view.request.max_stages):
                _grow(view, start, best)
    if not found:
        return ()
    plan = min(found, key=lambda prefix: prefix.value)
    return relaid(view, plan.bounds, plan.groups)


def _whole(view: View, start: Prefix) -> Prefix | None:
    """The prefix with all other blocks on the other devices, or on as many of them as a stage may have."""
    rest = _rest(view, start.groups)
    rest = rest[: view.most_replicas] if view.most_replicas > 1 else rest[:1]
    ends = np.array([view.num_blocks])
    parts = (*start.parts, *_stage(view, start, rest, ends))
    value = float(_latency(parts, view.num_microbatches)[0])
    return start._replace(value=value, bounds=(*start.bounds, view.num_blocks), groups=(*start.groups, rest))


def _grow(view: View, start: Prefix, best: dict[tuple[int, int], Prefix]) -> None:
    """Put every next stage behind the prefix where that is the best of its kind so far."""
    first, used = start.bounds[-1], sum(map(len, start.groups))
    ends = np.arange(first + 1, view.num_blocks)
    if not len(ends):
        return
    for count in range(1, min(len(view.devices) - used - 1, view.most_replicas) + 1):
        for group in dict.fromkeys(_ways(view, start.groups, count)):
            parts = (*start.parts, *_stage(view, start, group, ends))
            after = Prefix(0.0, (first,), (*start.groups, group), parts)
            rest = _rest(view, after.groups)[: view.most_replicas]
            values = _latency((*parts, *_last(view, group, rest, ends)), view.num_microbatches)
            for at, (end, value) in enumerate(zip(ends.tolist(), values.tolist(), strict=True)):
                held = best.get((end, used + count))
                if held is None or value < held.value:
                    own = (*start.parts, *(_at(part, at) for part in parts[len(start.parts) :]))
                    best[end, used + count] = Prefix(value, (*start.bounds, end), after.groups, own)


def _at(part: Part, index: int) -> Part:
    return Part(*(figure[index : index + 1] for figure in part))


def _stage(view: View, start: Prefix, group: tuple[Device, ...], ends: Ints) -> tuple[Part, ...]:
    """The stage of blocks from the prefix's end to each of ``ends``, and the transfer to it from the stage before."""
    first = np.full(len(ends), start.bounds[-1])
    stage = _held(view, group, first, ends)
    return (_transfer(view, start.groups[-1], group, first), stage) if start.groups else (stage,)


def _last(view: View, before: tuple[Device, ...], rest: tuple[Device, ...], firsts: Ints) -> tuple[Part, ...]:
    """The transfer to one stage of all blocks from each of ``firsts``, and that stage."""
    return _transfer(view, before, rest, firsts), _held(view, rest, firsts, np.full(len(firsts), view.num_blocks))


def _held(view: View, group: tuple[Device, ...], first: Ints, ends: Ints) -> Part:
    seconds = view.mean(len(group))
    return Part(
        seconds.forward[ends] - seconds.forward[first],
        seconds.backward[ends] - seconds.backward[first],
        view.ring(group).seconds(view.parameters[ends] - view.parameters[first]),
    )


def _transfer(view: View, before: tuple[Device, ...], after: tuple[Device, ...], cut: Ints) -> Part:
    shares = min(len(before), len(after))  # so many links carry the tensor together
    seconds = view.between(before, after).seconds(view.cuts[cut] / shares)
    return Part(seconds, seconds, np.zeros(len(seconds)))


def _latency(parts: Sequence[Part], num_microbatches: int) -> Floats:
    """Warm-up, steady and ending phase around the pivot: the stage or transfer with the least idle time."""
    length = len(parts[-1].forward)
    figures = np.empty((3, len(parts), length))
    for s, part in enumerate(parts):
        figures[0, s], figures[1, s], figures[2, s] = part
    forward, backward, reduce = figures
    busy = forward + backward
    steady = (num_microbatches - 1) * busy
    upto = np.cumsum(busy, axis=0)  # of parts up to and with s
    pivot = np.full(busy.shape[1], len(parts) - 1)
    every = np.arange(busy.shape[1])
    for s in range(len(parts) - 2, -1, -1):
        between = upto[pivot - 1, every] - upto[s]
        pivot = np.where(steady[s] > steady[pivot, every] + between, s, pivot)
    warm = np.cumsum(forward, axis=0)[pivot, every]
    back = np.cumsum(backward, axis=0)
    at = back[pivot, every]
    before = back - backward  # of parts before s
    # after the pivot's last backward a part in front of it still has the backwards down to itself to do, a part behind
    # it is done earlier by those up to itself
    ending = (reduce + at - before).max(axis=0)
    found: Floats = warm + steady[pivot, every] + ending
    return found


def _rest(view: View, groups: Sequence[tuple[Device, ...]]) -> tuple[Device, ...]:
    taken = {device.id for group in groups for device in group}
    return tuple(device for node in view.nodes for device in node if device.id not in taken)


def _ways(view: View, groups: Sequence[tuple[Device, ...]], count: int) -> list[tuple[Device, ...]]:
    """So many free devices: from untouched nodes first, from used nodes first, evenly from all nodes in turn."""
    free = {device.id for device in _rest(view, groups)}
    nodes = [[device for device in node if device.id in free] for node in view.nodes]
    touched = [len(left) < len(node) for left, node in zip(nodes, view.nodes, strict=True)]
    order = range(len(nodes))
    fresh = [device for n in sorted(order, key=lambda n: (touched[n], n)) for device in nodes[n]]
    append = [device for n in sorted(order, key=lambda n: (not touched[n], n)) for device in nodes[n]]
    longest = max(map(len, nodes))
    scatter = [node[place] for place in range(longest) for node in nodes if place < len(node)]
    return [tuple(line[:count]) for line in (fresh, append, scatter)]
