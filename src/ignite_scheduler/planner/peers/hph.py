"""HPH: devices of one kind form a stage, the pipeline runs across kinds, data parallelism inside."""

from __future__ import annotations

from itertools import permutations
from typing import Final

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import best_cut, run_costs, runs
from ignite_scheduler.planner.peers.placing import chain, equal_shares
from ignite_scheduler.planner.peers.view import View

MOST_ORDERED: Final = 6
"""Groups of which every order is looked at; more go from the fastest to the slowest."""

Group = tuple[Device, ...]


def hph(view: View) -> tuple[Assignment, ...]:
    """One stage for each kind of device, cut for the least slowest stage, in the order of least estimated step.

    References
    ----------
    Y. Duan et al., "HPH: Hybrid Parallelism on Heterogeneous Clusters for Accelerating Large-scale DNNs Training",
    CLUSTER 2022. Deviations: devices are alike if all blocks take the same time on both; replicas have equal shares;
    the cut is by a dynamic program that balances the stages, the transfer of their input and 1 ÷ M of their all-reduce
    included; the step of an order is estimated as fill + (M − 1) · slowest stage; memory is not looked at; a group
    keeps no more devices than a microbatch has samples.
    """
    groups = _groups(view)[: min(view.num_blocks, view.request.max_stages)]
    orders = permutations(groups) if len(groups) <= MOST_ORDERED else iter([tuple(groups)])
    best: tuple[float, tuple[int, ...], tuple[Group, ...]] | None = None
    for order in orders:
        arrives = 2 * view.slowest_wire.seconds(view.cuts)[:, None]
        costs = [_slowest(view, group) + arrives + view.reduce(group) / view.num_microbatches for group in order]
        cut = best_cut(costs)
        if cut is None:
            continue
        ran = runs(cut.bounds)
        fill = sum(float(cost[i, j]) for cost, (i, j) in zip(costs, ran, strict=True))
        step = fill + (view.num_microbatches - 1) * cut.value
        if best is None or step < best[0]:
            best = step, cut.bounds, order
    return () if best is None else (chain(view, best[1], best[2]),)


def _groups(view: View) -> list[Group]:
    """Devices by kind, the fastest kind first."""
    found: dict[bytes, list[Device]] = {}
    for device in view.by_speed:
        found.setdefault(view.seconds(device).total.tobytes(), []).append(device)
    return [tuple(group[: view.most_replicas]) for group in found.values()]


def _slowest(view: View, group: Group) -> Floats:
    shares = equal_shares(view.samples, len(group))
    found: Floats = np.max([run_costs(view.seconds(d, u).total) for d, u in zip(group, shares, strict=True)], axis=0)
    return found
