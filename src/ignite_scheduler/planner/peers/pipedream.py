"""PipeDream's partitioner: hierarchical dynamic program over layers and workers, with replicated stages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.peers.cutting import run_costs
from ignite_scheduler.planner.peers.placing import filled
from ignite_scheduler.planner.peers.view import View, Wire

Stages = tuple[tuple[int, int, int], ...]
"""First block, end and replicas of each stage."""


def pipedream(view: View) -> tuple[Assignment, ...]:
    """The pipeline of least time per microbatch of its slowest stage or link, each stage replicated as needed.

    With T^0(i→j) = Σ seconds and, for m workers of a level whose links have bandwidth B,

        T(i→j, m) = max(inner(i→j), 2(m−1)/m · |w(i→j)| ÷ B) ÷ m
        A(i→j, m) = min(T(i→j, m), min over s, m' of max(A(i→s, m−m'), 2a_s ÷ B, T(s→j, m')))

    where *inner* is A of the level below (workers in one node) with all its workers.

    References
    ----------
    D. Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.1.
    Deviations: two levels (node, cluster) where all nodes have equally many devices, else one; workers of mean speed
    and the slowest link of each level; replicas take equal shares of every microbatch instead of microbatches in turn;
    memory is not looked at, as in the paper's formula; workers are filled on a few orders of unlike devices
    (:func:`~ignite_scheduler.planner.peers.placing.lines`) and the best is kept.
    """
    stages = _hierarchical(view)
    if stages is None:
        stages = _flat(view, view.most_replicas)
    if stages is None:
        return ()
    bounds = [stage[0] for stage in stages] + [view.num_blocks]
    return filled(view, bounds, [stage[2] for stage in stages])


def _hierarchical(view: View) -> Stages | None:
    """Stages over nodes of equally many devices; None where there are not several, or too many replicas come out."""
    sizes = {len(node) for node in view.nodes}
    if len(sizes) != 1 or len(view.nodes) < 2 or max(sizes) < 2:
        return None
    each = max(sizes)
    inside = _slowest_of([view.slowest(node) for node in view.nodes])
    most = view.most_replicas
    inner = Level(run_costs(view.mean().total), run_costs(view.parameters), view.cuts, inside.bandwidth)
    inner_best = all_runs(inner, each, most)
    outer = inner._replace(seconds=inner_best.value[each], bandwidth=view.slowest_wire.bandwidth)
    found = whole(outer, len(view.nodes), most)
    if found is None:
        return None
    stages = tuple(
        (first, end, replicas * count)
        for first, end, replicas in found
        for first, end, count in inner_best.stages(first, end, each)
    )
    return stages if max(stage[2] for stage in stages) <= most else None


def _flat(view: View, most: int) -> Stages | None:
    level = Level(run_costs(view.mean().total), run_costs(view.parameters), view.cuts, view.slowest_wire.bandwidth)
    for workers in range(len(view.devices), 0, -1):  # fewer where the blocks and replicas do not take all
        found = whole(level, workers, most)
        if found is not None:
            return found
    return None


def _slowest_of(wires: list[Wire]) -> Wire:
    return Wire(max(wire.latency for wire in wires), min(wire.bandwidth for wire in wires))


class Level(NamedTuple):
    """One level: seconds [i, j] of one worker, parameter bytes [i, j], bytes over cuts, bandwidth."""

    seconds: Floats
    weights: Floats
    cuts: Floats
    bandwidth: float

    def replicated(self, workers: int) -> Floats:
        """T(i→j, m): time a microbatch of one stage on m workers."""
        synchronised = (
            2 * (workers - 1) / workers * self.weights / self.bandwidth
            if workers > 1 and self.bandwidth < np.inf
            else 0.0
        )
        found: Floats = np.maximum(self.seconds, synchronised) / workers
        return found


class Runs(NamedTuple):
    """A(i→j, m) for all runs, and where its last stage begins and how many workers it has (−1: one stage)."""

    value: list[Floats]
    split: list[Ints]
    last: list[Ints]

    def stages(self, first: int, end: int, workers: int) -> Stages:
        """The stages behind A(first→end, workers)."""
        split = int(self.split[workers][first, end])
        if split < 0:
            return ((first, end, workers),)
        count = int(self.last[workers][first, end])
        return (*self.stages(first, split, workers - count), (split, end, count))


def all_runs(level: Level, workers: int, most: int) -> Runs:
    """A for every run of blocks and 1 … ``workers`` workers. O(workers² · blocks³)."""
    size = len(level.cuts)
    links = 2 * level.cuts / level.bandwidth
    single = [np.full((size, size), np.inf)] + [
        level.replicated(m) if m <= most else np.full((size, size), np.inf) for m in range(1, workers + 1)
    ]
    found = Runs([single[0]], [np.full((size, size), -1)], [np.zeros((size, size), dtype=np.int64)])
    for m in range(1, workers + 1):
        value = single[m].copy()
        split, last = np.full((size, size), -1), np.full((size, size), m)
        for count in range(1, m):
            before, after = np.maximum(found.value[m - count], links), single[count]
            for i in range(size - 2):
                joined = np.maximum(before[i][:, None], after)  # [s, j]
                least = joined.min(axis=0)
                better = least < value[i]
                value[i, better] = least[better]
                split[i, better] = joined.argmin(axis=0)[better]
                last[i, better] = count
        found.value.append(value)
        found.split.append(split)
        found.last.append(last)
    return found


def whole(level: Level, workers: int, most: int) -> Stages | None:
    """Stages of A(0→B, workers); None if no pipeline uses exactly so many. O(workers² · blocks²)."""
    size = len(level.cuts)
    links = 2 * level.cuts / level.bandwidth
    value = np.full((workers + 1, size), np.inf)
    came = np.zeros((workers + 1, size, 2), dtype=np.int64)
    single = {m: level.replicated(m) for m in range(1, min(workers, most) + 1)}
    for m in range(1, workers + 1):
        if m in single:
            value[m], came[m] = single[m][0], (0, m)
        for count in range(1, min(m - 1, most) + 1):
            joined = np.maximum(np.maximum(value[m - count], links)[:, None], single[count])
            least = joined.min(axis=0)
            better = least < value[m]
            value[m, better] = least[better]
            came[m, better, 0] = joined.argmin(axis=0)[better]
            came[m, better, 1] = count
    if not np.isfinite(value[workers, -1]):
        return None
    stages: list[tuple[int, int, int]] = []
    end, left = size - 1, workers
    while end > 0:
        first, count = int(came[left, end, 0]), int(came[left, end, 1])
        stages.append((first, end, count))
        end, left = first, left - count
    return tuple(reversed(stages))
