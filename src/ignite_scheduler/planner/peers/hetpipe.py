"""HetPipe's virtual workers: unlike devices form pipelines side by side that share the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import best_cut, run_costs
from ignite_scheduler.planner.peers.placing import choice, equal_shares, layers_of
from ignite_scheduler.planner.peers.view import View

MOST_ORDERED: Final = 8
"""Devices of a virtual worker whose every order is looked at."""

Worker = tuple[Device, ...]


def hetpipe(view: View) -> tuple[Assignment, ...]:
    """Virtual workers by each of the three allocation policies, each cut for its least slowest stage.

    *Node partition*: a worker is a node. *Equal distribution*: a worker has one device of every node. *Hybrid
    distribution*: the fastest node is paired with the slowest, the next with the next, and each pair's devices are
    dealt to two workers, half of either node each.

    References
    ----------
    J. H. Park et al., "HetPipe: Enabling Large DNN Training on (Whimpy) Heterogeneous GPU Clusters through Integration
    of Pipelined Model Parallelism and Data Parallelism", USENIX ATC 2020, sections 4, 7 and 8.1. Deviations: nodes of
    unequal size leave the last workers shorter; a dynamic program over sets of devices finds the order and the cut
    that the paper's integer program does (above :data:`MOST_ORDERED` devices, from the fastest to the slowest);
    microbatches in flight are those of 1F1B; workers take equal parts of every microbatch and meet in an all-reduce at
    the end of each step, instead of a parameter server with bounded staleness.
    """
    problem = view.request.problem
    several = "workers" in problem.abilities and problem.job.pipeline.replicas == "auto"
    found = []
    for workers in dict.fromkeys(_policies(view)):
        if len(workers) == 1 or (several and len(workers) <= view.samples):
            made = _assigned(view, workers)
            if made is not None:
                found.append(made)
    return tuple(found)


def _policies(view: View) -> list[tuple[Worker, ...]]:
    nodes = sorted(view.nodes, key=lambda node: (_work(view, node), node[0].id))
    equal = [tuple(node[place] for node in nodes if place < len(node)) for place in range(max(map(len, nodes)))]
    hybrid: list[Worker] = []
    low, high = 0, len(nodes) - 1
    while low < high:
        fast, slow = nodes[low], nodes[high]
        hybrid += [worker for part in (0, 1) if (worker := (*fast[part::2], *slow[part::2]))]
        low, high = low + 1, high - 1
    if low == high:
        hybrid.append(nodes[low])
    return [tuple(nodes), tuple(equal), tuple(hybrid)]


def _work(view: View, node: Sequence[Device]) -> float:
    return sum(float(view.seconds(device).total[-1]) for device in node) / len(node)


def _assigned(view: View, workers: Sequence[Worker]) -> Assignment | None:
    """All workers side by side; None if one of them has no plan even without memory limits."""
    stages = []
    for worker, part in zip(workers, equal_shares(view.samples, len(workers)), strict=True):
        found = ordered_cut(view, worker, part, limited=True) or ordered_cut(view, worker, part, limited=False)
        if found is None:
            return None
        for at, (first, end, device) in enumerate(found):
            stages.append(
                StageChoice(
                    layers=layers_of(view, first, end),
                    devices=(device.id,),
                    samples=(part,),
                    inputs=() if at == 0 and len(workers) > 1 else None,
                )
            )
    return choice(view, stages)


def ordered_cut(
    view: View, devices: Sequence[Device], samples: int, *, limited: bool
) -> tuple[tuple[int, int, Device], ...] | None:
    """Stages (first block, end, device) of least slowest stage, transfers included, on all of the devices.

    The order is free up to :data:`MOST_ORDERED` devices. Where there are fewer blocks than devices, the fastest take
    part. ``state[set, first device]`` is the least largest stage of blocks i… on the set, for every i.
    """
    kept = sorted(devices, key=lambda device: (float(view.seconds(device).total[-1]), device.id))[: view.num_blocks]
    count, size = len(kept), view.num_blocks + 1
    costs = [run_costs(view.seconds(device, samples).total) for device in kept]
    needs = [view.need(k, samples) for k in range(1, count + 1)] if limited else []

    def on(d: int, from_end: int) -> Floats:
        if not limited or kept[d].memory == math.inf:
            return costs[d]
        return np.where(needs[from_end - 1] <= kept[d].memory, costs[d], np.inf)

    if count > MOST_ORDERED:
        cut = best_cut([on(d, count - d) for d in range(count)])
        return None if cut is None else tuple(zip(cut.bounds, cut.bounds[1:], kept, strict=False))
    per_sample = view.cuts / view.samples * samples
    arrives = [[2 * view.link(a, b).seconds(per_sample) if a is not b else per_sample for b in kept] for a in kept]
    state: dict[tuple[int, int], Floats] = {}
    came: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for members in range(1, 1 << count):
        number = members.bit_count()
        for d in range(count):
            if not members >> d & 1:
                continue
            rest = members ^ 1 << d
            least, how = np.full(size, np.inf), [(0, -1)] * size
            for e in range(count) if rest else (-1,):
                if rest and not rest >> e & 1:
                    continue
                if rest:
                    cost = np.maximum(on(d, number), np.maximum(state[rest, e], 0.0)[None, :])
                    cost = np.maximum(cost, on(d, number) + arrives[d][e][None, :])
                    value, end = cost.min(axis=1), cost.argmin(axis=1)
                else:
                    value, end = on(d, number)[:, -1], np.full(size, size - 1)
                for i in np.flatnonzero(value < least):
                    least[i], how[i] = value[i], (int(end[i]), e)
            state[members, d], came[members, d] = least, how
    every = (1 << count) - 1
    d = min(range(count), key=lambda d: (state[every, d][0], d))
    if not np.isfinite(state[every, d][0]):
        return None
    stages, members, first = [], every, 0
    while members:
        end, e = came[members, d][first]
        stages.append((first, end, kept[d]))
        members, d, first = members ^ 1 << d, e, end
    return tuple(stages)
