"""Alpa's inter-operator program: stages on submeshes, Σ tᵢ + (M − 1) · max tᵢ over an enumerated maximum."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import run_costs
from ignite_scheduler.planner.peers.placing import relaid
from ignite_scheduler.planner.peers.view import View

MOST_STAGES: Final = 16
"""Stages of a plan at most, except where all devices must have one each."""

MOST_PACES: Final = 48
"""Values of the largest stage time that are tried, evenly spaced among all that occur."""


class Pipeline(NamedTuple):
    """Stages as (first block, end, devices), and the program's value."""

    value: float
    stages: tuple[tuple[int, int, int], ...]


def alpa(view: View) -> tuple[Assignment, ...]:
    """The pipeline of least Σ tᵢ + (M − 1) · max tᵢ whose submeshes cover all devices.

    A submesh is 1, 2, 4, … devices of one node, or several whole nodes; tᵢ is the time of the stage's blocks on it,
    its devices working in parallel on the samples, plus the transfer of its input and 1 ÷ M of its all-reduce. A stage
    that is the s-th from the end holds s microbatches.

    References
    ----------
    L. Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning", OSDI 2022,
    section 5. Deviations: inside a stage data parallelism only, instead of the cheapest sharding of every operator;
    devices of mean speed and of the least memory, links the slowest; a mesh node is as many devices as divide all
    nodes; the largest stage time is tried at :data:`MOST_PACES` values instead of all; where nothing fits the memory,
    the plan without that limit is handed on. Submeshes are laid onto nodes from the largest to the smallest, as the
    paper does, then with other orders of the devices in their places.
    """
    found = _search(view, min(device.memory for device in view.devices)) or _search(view, math.inf)
    if found is None:
        return ()
    bounds = [stage[0] for stage in found.stages] + [view.num_blocks]
    return relaid(view, bounds, _laid(view, [stage[2] for stage in found.stages]))


def _shapes(view: View) -> tuple[int, ...]:
    """Sizes of submeshes: powers of two inside a mesh node, then whole nodes."""
    unit = math.gcd(*(len(node) for node in view.nodes))
    powers = [1 << power for power in range(unit.bit_length()) if 1 << power <= unit]
    nodes = [unit * count for count in range(1, len(view.devices) // unit + 1)]
    return tuple(sorted({size for size in (*powers, *nodes) if size <= view.most_replicas}))


def _search(view: View, memory: float) -> Pipeline | None:
    total = len(view.devices)
    wire = view.slowest_wire
    transfer = 2 * wire.seconds(view.cuts)
    line = tuple(device for node in view.nodes for device in node)
    seconds = {
        size: run_costs(view.mean(size).total) + transfer[:, None] + view.reduce(line[:size]) / view.num_microbatches
        for size in _shapes(view)
    }
    stages = min(total, view.num_blocks, view.request.max_stages, max(MOST_STAGES, total // max(seconds)))
    fits: list[dict[int, Floats]] = [{}]
    for s in range(1, stages + 1):
        limited = {size: view.need(s, -(-view.samples // size)) <= memory for size in seconds}
        fits.append({size: np.where(limited[size], seconds[size], np.inf) for size in seconds})
    every = np.unique(np.concatenate([cost[np.isfinite(cost)] for cost in seconds.values()]))
    picked = every[np.unique(np.linspace(0, len(every) - 1, MOST_PACES).round().astype(np.int64))]
    best: Pipeline | None = None
    for pace in picked.tolist():
        if best is not None and view.num_microbatches * pace >= best.value:
            break  # larger paces cannot do better
        found = _covered(fits, total, float(pace), view.num_microbatches)
        if found is not None and (best is None or found.value < best.value):
            best = found
    return best


def _covered(fits: list[dict[int, Floats]], devices: int, pace: float, num_microbatches: int) -> Pipeline | None:
    """The least Σ tᵢ with every tᵢ ≤ ``pace`` that covers all devices, by stages from the end."""
    size = len(next(iter(fits[1].values())))
    least = np.full((len(fits), devices + 1, size), np.inf)  # [stages, devices, first block]
    least[0, 0, -1] = 0.0
    came = np.zeros((*least.shape, 2), dtype=np.int64)
    for s in range(1, len(fits)):
        for count, cost in fits[s].items():
            allowed = np.where(cost <= pace, cost, np.inf)
            for used in range(count, devices + 1):
                behind = least[s - 1, used - count]
                if not np.isfinite(behind).any():
                    continue
                joined = allowed + behind[None, :]
                value = joined.min(axis=1)
                better = value < least[s, used]
                least[s, used, better] = value[better]
                came[s, used, better, 0] = joined.argmin(axis=1)[better]
                came[s, used, better, 1] = count
    ends = least[:, devices, 0]
    s = int(ends.argmin())
    if not np.isfinite(ends[s]):
        return None
    first, used, stages = 0, devices, []
    while s > 0:
        end, count = (int(value) for value in came[s, used, first])
        stages.append((first, end, count))
        first, used, s = end, used - count, s - 1
    worst = max(float(fits[len(stages) - at][count][i, j]) for at, (i, j, count) in enumerate(stages))
    return Pipeline(float(ends.min()) + (num_microbatches - 1) * worst, tuple(stages))


def _laid(view: View, sizes: list[int]) -> list[tuple[Device, ...]]:
    """Devices of each stage: the largest submeshes first, along the nodes in order."""
    line = [device for node in view.nodes for device in node]
    groups: dict[int, tuple[Device, ...]] = {}
    at = 0
    for stage in sorted(range(len(sizes)), key=lambda s: (-sizes[s], s)):
        groups[stage] = tuple(line[at : at + sizes[stage]])
        at += sizes[stage]
    return [groups[stage] for stage in range(len(sizes))]
