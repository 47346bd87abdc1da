"""Plans over more devices than tables of multisets can hold: devices in a fixed order, each used or skipped.

A few orders are tried (fast devices first or last, by node, by memory). For each, a table over (device, layer) gives
the pipeline of least fill under a cap on the busiest stage, for ever lower caps; the best of them go through the same
local search on the exact step time. Nothing is proven but the quick bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.climb import climb
from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Ints, Numbers, make_room, value_of
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import NOTHING, Choice
from ignite_scheduler.planner.tables import link_seconds, stage_seconds

CAPS = 20
"""Caps on the busiest stage for each order."""

CLIMBED = 3
"""First plans that local search starts from."""


@compiled
def line_plan(numbers: Any, line: Any, skip: int, work_cap: float, classes: Any, first: Any) -> int:  # noqa: PLR0912
    """Write the pipeline of least fill over the devices of ``line`` (classes, from the end) into ``classes`` and
    ``first``; its number of stages, 0 if there is none.

    A stage on the p-th device is taken to be the p + 1-th from the end: that is exact unless devices before it are
    skipped, and then counts too many microbatches in flight, never too few. At most ``skip`` devices are skipped in a
    row.
    """
    num_layers, count = numbers.num_layers, len(line)
    least = np.full((count, num_layers + 1), np.inf)  # stage on device p begins at layer i
    from_device = np.full((count, num_layers + 1), -1, np.int64)
    from_end = np.zeros((count, num_layers + 1), np.int64)
    for p in range(count):
        c = line[p]
        n = min(p + 1, numbers.max_stages)
        for before in range(max(-1, p - 1 - skip), p):
            if before < 0:
                if p > skip:
                    continue
            elif numbers.latency[c, line[before]] == np.inf or numbers.latency[line[before], c] == np.inf:
                continue
            for end in range(1, num_layers + 1):
                if (before < 0) != (end == num_layers):
                    continue
                behind = 0.0
                if before >= 0:
                    if least[before, end] == np.inf:
                        continue
                    there, _ = link_seconds(numbers, c, line[before], end, numbers.sizes[0])
                    _, back = link_seconds(numbers, c, line[before], end, numbers.sizes[1])
                    if numbers.num_microbatches * max(there, back) > work_cap:
                        continue
                    behind = least[before, end] + there + back
                for i in range(end - 1, numbers.first_fit[c, n, end] - 1, -1):
                    if not numbers.may_cut[i]:
                        continue
                    fill, busy = stage_seconds(numbers, c, i, end)
                    if busy > work_cap:
                        break
                    if behind + fill < least[p, i]:
                        least[p, i] = behind + fill
                        from_device[p, i] = before
                        from_end[p, i] = end
    best = -1
    for p in range(count):
        if least[p, 0] < np.inf and (best < 0 or least[p, 0] < least[best, 0]):
            best = p
    if best < 0:
        return 0
    taken = 0
    i = 0
    p = best
    while p >= 0:
        classes[taken], first[taken] = line[p], i
        taken += 1
        p, i = from_device[p, i], from_end[p, i]
    for q in range(taken // 2):
        other = taken - 1 - q
        classes[q], classes[other] = classes[other], classes[q]
        first[q], first[other] = first[other], first[q]
    return taken


def line_first_plan(setup: Setup, numbers: Numbers, budget: int) -> tuple[Choice, int]:
    """A plan over a large cluster and the work spent; ``NOTHING`` where none was found."""
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    size = max(int(numbers.counts.sum()), numbers.max_stages) + 2
    classes, first = np.zeros(size, np.int64), np.zeros(size, np.int64)
    candidates: set[Choice] = set()
    for line in _orders(setup, numbers):
        total = numbers.forward[:, :, -1] + numbers.backward[:, :, -1]
        high = float((numbers.num_microbatches * total).max()) * 1.01
        low = high / 10_000
        for cap in np.geomspace(high, low, CAPS):
            n = line_plan(numbers, line, 8, float(cap), classes, first)
            if n == 0:
                break
            if n <= numbers.max_stages:
                value = value_of(numbers, room, n, classes, first)
                if value < np.inf:
                    candidates.add(_choice(value, n, classes, first))
    best, spent = NOTHING, 0
    for candidate in sorted(candidates)[:CLIMBED]:
        n = len(candidate.classes)
        classes[:n], first[:n] = candidate.classes, candidate.first
        n, value, timed = climb(numbers, room, n, classes, first, candidate.value, budget // (8 * CLIMBED))
        spent += int(timed) * (1 + n * numbers.num_microbatches // 128)
        if value < best.value:
            best = _choice(value, n, classes, first)
    return best, spent


def _orders(setup: Setup, numbers: Numbers) -> list[Ints]:
    """Orders of all devices (by class, from the end of the pipeline)."""
    work = numbers.forward[:, 0, -1] + numbers.backward[:, 0, -1]
    nodes = [device.node for device in setup.classes.devices]
    memory = [device.memory for device in setup.classes.devices]
    every = [c for c, count in enumerate(numbers.counts) for _ in range(count)]
    keys: list[Any] = [
        lambda c: (work[c], nodes[c], c),
        lambda c: (-work[c], nodes[c], c),
        lambda c: (nodes[c], work[c], c),
        lambda c: (nodes[c], -work[c], c),
        lambda c: (memory[c], nodes[c], c),
    ]
    return [np.array(sorted(every, key=key), dtype=np.int64) for key in keys]


def _choice(value: float, n: int, classes: Ints, first: Ints) -> Choice:
    return Choice(float(value), tuple(int(c) for c in classes[:n]), tuple(int(i) for i in first[:n]))
