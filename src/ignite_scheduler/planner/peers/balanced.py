"""Peers that balance one figure of the layers over all devices: numbers, parameters, FLOPs, simulated time."""

from __future__ import annotations

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.pipeline import Durations, Edge, make_schedule, timeline
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import best_cut, run_costs, runs
from ignite_scheduler.planner.peers.placing import permuted
from ignite_scheduler.planner.peers.view import View

MOST_MOVES = 64
"""Cuts that AutoPipe simulates."""


def equal_layers(view: View) -> tuple[Assignment, ...]:
    """Equal numbers of layers on all devices.

    References: DeepSpeed's documentation of ``PipelineModule``, ``partition_method="uniform"``.
    Deviation: placed on unlike devices in the best order of all.
    """
    stages = len(view.chain_devices)
    each, more = divmod(view.num_blocks, stages)
    sizes = [each + (s < more) for s in range(stages)]
    return permuted(view, [0, *np.cumsum(sizes).tolist()])


def equal_parameters(view: View) -> tuple[Assignment, ...]:
    """The cut of the least largest number of parameters in a stage, over all devices.

    References: DeepSpeed's documentation of ``PipelineModule``, ``partition_method="parameters"``.
    Deviation: bytes instead of numbers, which is the same in one precision; placed in the best order of all.
    """
    found = best_cut([run_costs(view.parameters)] * len(view.chain_devices))
    assert found is not None
    return permuted(view, found.bounds)


def gpipe(view: View) -> tuple[Assignment, ...]:
    """The cut of least variance of the cells' estimated cost, over all devices.

    The cost of a cell is its forward FLOPs; where a layer has none, its seconds on a device of mean speed.

    References
    ----------
    Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019,
    section 2.2. Deviations: the sum of squares is least, which is the same for a fixed number of cells; activations
    are kept and not computed again, which would only make its step longer; placed in the best order of all.
    """
    flops = [layer.forward_flops for layer in view.request.problem.profile.layers]
    known = [value for value in flops if value is not None]
    if len(known) == len(flops) and sum(known) > 0:
        cost: Floats = np.concatenate(([0.0], np.cumsum(known)))[view.starts]
    else:
        cost = view.mean().total
    scaled = run_costs(cost / max(float(cost[-1]), np.finfo(float).tiny))
    found = best_cut([scaled**2] * len(view.chain_devices), "sum")
    assert found is not None
    return permuted(view, found.bounds)


def autopipe(view: View) -> tuple[Assignment, ...]:
    """The min-max cut, then blocks moved off the master stage while the simulated step gets shorter.

    The *master stage* is the one that the critical path stays on: the last of those with the largest busy time. From
    the best cut so far its first block goes to the stage before or its last block to the stage behind, and the stages
    before it are balanced anew.

    References
    ----------
    W. Liu et al., "AutoPipe: A Fast Pipeline Parallelism Approach with Balanced Partitioning and Micro-batch Slicing",
    CLUSTER 2022, section III-B. Deviations: blocks are the profile's layers; microbatches are not sliced; the
    simulation is our timeline of equal devices of mean speed with the slowest link; placed in the best order of all.
    """
    cost = run_costs(view.mean().total)
    stages = len(view.chain_devices)
    start = best_cut([cost] * stages)
    assert start is not None
    best, step = start.bounds, _simulated(view, start.bounds)
    seen, waiting = {best}, [best]
    while waiting and len(seen) < MOST_MOVES:
        bounds = waiting.pop(0)
        for moved in _moves(view, bounds, cost):
            if moved in seen:
                continue
            seen.add(moved)
            value = _simulated(view, moved)
            if value < step:
                best, step = moved, value
                waiting.append(moved)
    return permuted(view, best)


def _moves(view: View, bounds: tuple[int, ...], cost: Floats) -> list[tuple[int, ...]]:
    busy = [cost[first, end] for first, end in runs(bounds)]
    master = max(range(len(busy)), key=lambda s: (busy[s], s))
    first, end = bounds[master], bounds[master + 1]
    found = []
    if end - first > 1 and master > 0:
        found.append((*bounds[:master], first + 1, *bounds[master + 1 :]))
    if end - first > 1 and master < len(busy) - 1:
        found.append((*bounds[: master + 1], end - 1, *bounds[master + 2 :]))
    balanced = []
    for moved in found:  # the stages before the master are balanced over what is left to them
        at = moved[master]
        before = best_cut([cost[: at + 1, : at + 1]] * master) if master else None
        if before is not None:
            balanced.append((*before.bounds[:-1], *moved[master:]))
    return [*found, *balanced]


def _simulated(view: View, bounds: tuple[int, ...]) -> float:
    """Step of a straight pipeline over equal devices of mean speed with the slowest link."""
    seconds, count = view.mean(), view.num_microbatches
    links = view.slowest_wire.seconds(view.cuts[list(bounds[1:-1])])
    durations = Durations(
        forward=tuple((float(seconds.forward[b] - seconds.forward[a]),) * count for a, b in runs(bounds)),
        backward=tuple((float(seconds.backward[b] - seconds.backward[a]),) * count for a, b in runs(bounds)),
        edges=tuple(
            Edge(
                source=s,
                target=s + 1,
                forward=(float(link),) * count,
                backward=(float(link),) * count,
                forward_wire=(s, s + 1),
                backward_wire=(s + 1, s),
            )
            for s, link in enumerate(links)
        ),
        finish=(0.0,) * (len(bounds) - 1),
    )
    return float(timeline(make_schedule(view.family.schedule, len(bounds) - 1, count), durations).step)
