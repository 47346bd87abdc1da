"""First plans of straight chains over few kinds: the least fill under a cap, exactly, over counts of devices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.judge import Chain
from ignite_scheduler.planner.large.line import Line

MOST_STATES: Final = 12_000_000
"""Counts of devices by kind times layers that the table may have."""
HALVINGS: Final = 5
EASED: Final = (1.0, 1.02, 1.05)


@compiled
def least_counted(  # noqa: PLR0912
    line: Any, counts: Any, cap: float, most_stages: int, first: Any, kinds: Any
) -> int:
    """Write the chain of least fill whose stages take ``cap`` seconds at most, from the last stage on; its length."""
    size = line.weights.shape[0] - 1
    strides = np.ones(len(counts) + 1, np.int64)
    for k in range(len(counts)):
        strides[k + 1] = strides[k] * (counts[k] + 1)
    states = strides[len(counts)]
    least = np.full((states, size + 1), np.float32(np.inf), np.float32)
    choice = np.zeros((states, size + 1), np.int32)
    least[0, size] = 0.0
    best, end = np.inf, -1
    for v in range(states):
        used = 0
        for k in range(len(counts)):
            used += (v // strides[k]) % (counts[k] + 1)
        if least[v, 0] < best:
            best, end = least[v, 0], v
        if used >= most_stages:
            continue
        deep = line.num_microbatches if line.gpipe else min(line.num_microbatches, used + 1)
        for j in range(1, size + 1):
            if least[v, j] == np.inf:
                continue
            for k in range(len(counts)):
                if (v // strides[k]) % (counts[k] + 1) == counts[k]:
                    continue
                to = v + strides[k]
                for i in range(j - 1, -1, -1):
                    busy = line.seconds[k, line.samples, j] - line.seconds[k, line.samples, i] + line.overhead[k]
                    need = line.fixed[j] - line.fixed[i] + deep * line.samples * (line.kept[j] - line.kept[i])
                    if busy > cap or need > line.memory[k]:
                        break
                    value = np.float32(least[v, j] + busy)
                    if value < least[to, i]:
                        least[to, i], choice[to, i] = value, k * (size + 1) + j
    if end < 0:
        return 0
    stages, i = 0, 0
    while i < size:
        k, j = choice[end, i] // (size + 1), choice[end, i] % (size + 1)
        first[stages], kinds[stages] = i, k
        stages += 1
        end -= strides[k]
        i = j
    return stages


def counted_chains(ground: Ground, line: Line, low: float, high: float) -> list[Chain]:
    """Chains under the least cap between ``low`` and ``high`` that some chain keeps, and a little above it."""
    counts, size = ground.world.kind_counts, ground.rows.num_layers
    if float(np.prod(counts + 1.0)) * (size + 1) > MOST_STATES:
        return []
    most = min(ground.request.max_stages, size)
    first, kinds = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        if least_counted(line, counts, middle, most, first, kinds):
            high = middle
        else:
            low = middle
    found = []
    for factor in EASED:
        stages = least_counted(line, counts, high * factor, most, first, kinds)
        if stages:
            found.append(_placed(ground, first[:stages].tolist(), kinds[:stages].tolist()))
    return found


def _placed(ground: Ground, first: list[int], kinds: list[int]) -> Chain:
    """The chain on real devices, neighbours of one kind from one block where there is one."""
    free: list[list[int]] = [[] for _ in ground.world.kinds]
    order = sorted(range(len(ground.ids)), key=lambda device: (ground.world.block[device], device), reverse=True)
    for device in order:
        free[ground.world.kind[device]].append(device)
    return Chain(tuple(first), tuple((free[kind].pop(),) for kind in kinds))
