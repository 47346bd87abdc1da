"""First plans: devices stand in a line, and stages take runs of it. A table gives the chain of least fill under a cap.

The seconds of a stage are taken as if its devices shared samples in fractions and the all-reduce were part of the work
of the step. That is near enough to start from; figures come from :mod:`.chain`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Ints


class Line(NamedTuple):
    """Units of devices in a row, from the end of the pipeline, and what layers cost on them.

    Parameters
    ----------
    kind, node
        [unit]: of its devices; a unit holds ``unit_size`` of them.
    seconds
        [kind, samples, layer]: prefix sums of a forward and a backward; ``overhead`` [kind] on top.
    memory
        [kind]: bytes; ``fixed`` and ``kept`` [layer] are prefix sums of bytes of layers, the latter for a sample.
    spread
        Bytes of layers that the replicas of a stage share among them (prefix sums).
    weights
        [layer]: prefix sums of bytes to reduce.
    near, far
        Seconds a byte of the all-reduce within a node and between nodes.
    link
        [layer]: seconds over the cut in front, there and back, for the whole microbatch.
    sizes
        Numbers of units that a stage may take.
    """

    kind: Ints
    node: Ints
    unit_size: int
    samples: int
    num_microbatches: int
    gpipe: bool
    seconds: Floats
    overhead: Floats
    memory: Floats
    fixed: Floats
    spread: Floats
    kept: Floats
    weights: Floats
    near: float
    far: float
    link: Floats
    sizes: Ints


@compiled
def least_fill(line: Any, cap: float, most_stages: int, first: Any, offset: Any) -> int:
    """Write the chain of least fill whose stages take ``cap`` seconds a microbatch at most; its number of stages.

    ``first`` [stage] are layers and ``offset`` [stage, 2] the units taken from the line, from the last stage on; 0 if
    there is no such chain.
    """
    count, size = len(line.kind), line.weights.shape[0] - 1
    least = np.full((count + 1, size + 1), np.inf)
    depth = np.zeros((count + 1, size + 1), np.int64)
    taken = np.zeros((count + 1, size + 1), np.int64)
    came = np.zeros((count + 1, size + 1), np.int64)
    least[0, size] = 0.0
    for p in range(count):
        for r in line.sizes:
            if p + r > count or r * line.unit_size > line.samples:
                break
            _extend(line, cap, most_stages, p, r, least, depth, taken, came)
        for j in range(size + 1):  # leave the unit out
            if least[p, j] < least[p + 1, j]:
                least[p + 1, j], depth[p + 1, j] = least[p, j], depth[p, j]
                taken[p + 1, j], came[p + 1, j] = 0, j
    if least[count, 0] == np.inf:
        return 0
    stages = int(depth[count, 0])
    p, i, s = count, 0, stages
    while s > 0:
        r = int(taken[p, i])
        if r == 0:
            p -= 1
            continue
        s -= 1
        first[s] = i
        offset[s, 0], offset[s, 1] = p - r, p
        p, i = p - r, int(came[p, i])
    return stages


@compiled
def _extend(  # noqa: PLR0912
    line: Any, cap: float, most_stages: int, p: int, r: int, least: Any, depth: Any, taken: Any, came: Any
) -> None:
    """Put a stage of the r units from p on in front of every chain on the units before."""
    size = line.weights.shape[0] - 1
    kinds = len(line.memory)
    held = np.zeros(kinds)
    share = np.zeros(kinds, np.int64)
    devices, far = r * line.unit_size, False
    for q in range(p, p + r):
        held[line.kind[q]] += line.unit_size
        far = far or line.node[q] != line.node[p]
    speed = 0.0
    for k in range(kinds):
        if held[k] > 0:
            whole = max(line.seconds[k, line.samples, size] + line.overhead[k], 1e-12)
            if whole >= np.inf:
                return
            speed += held[k] / whole
    for k in range(kinds):
        if held[k] > 0:
            part = line.samples / speed / max(line.seconds[k, line.samples, size] + line.overhead[k], 1e-12)
            share[k] = min(line.samples, max(1, round(part)))
    active = np.flatnonzero(held)
    ring = 2 * (devices - 1) / devices * (line.far if far else line.near) / line.num_microbatches
    for j in range(1, size + 1):
        if least[p, j] == np.inf or depth[p, j] >= most_stages:
            continue
        deep = line.num_microbatches if line.gpipe else min(line.num_microbatches, depth[p, j] + 1)
        behind = least[p, j] + (line.link[j] / devices if j < size else 0.0)
        for i in range(j - 1, -1, -1):
            busy = 0.0
            fits = True
            state = line.fixed[j] - line.fixed[i] + (line.spread[j] - line.spread[i]) / devices
            for c in active:
                busy = max(busy, line.seconds[c, share[c], j] - line.seconds[c, share[c], i] + line.overhead[c])
                if state + deep * share[c] * (line.kept[j] - line.kept[i]) > line.memory[c]:
                    fits = False
            if not fits or busy + ring * (line.weights[j] - line.weights[i]) > cap:
                break
            if behind + busy < least[p + r, i]:
                least[p + r, i] = behind + busy
                depth[p + r, i] = depth[p, j] + 1
                taken[p + r, i], came[p + r, i] = r, j
