"""Cost-to-go tables over (devices used, first device, layer): what the layers in front must at least add.

States
------
Pipelines are built from the end. A state is the multiset of device classes used so far, the class of the first of
them, and the number of layers that still stand in front. Multisets are mixed-radix numbers: adding a device of class c
adds ``strides[c]``, so that one sweep downwards fills the table. The number of stages so far tells how many
microbatches the next stage keeps in flight (1F1B), so memory needs no dimension of its own.

The *fill* of a stage is forward of the first plus backward of the last microbatch, that of a link the same: every
step takes at least the sum of all fills.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled


@compiled
def stage_seconds(numbers: Any, c: int, first: int, end: int) -> Any:
    """Fill and busy seconds a step of the layers ``first`` … ``end`` − 1 on class c."""
    f_full = numbers.forward[c, 0, end] - numbers.forward[c, 0, first] + numbers.overhead[c]
    b_full = numbers.backward[c, 0, end] - numbers.backward[c, 0, first] + numbers.overhead[c]
    f_last = numbers.forward[c, 1, end] - numbers.forward[c, 1, first] + numbers.overhead[c]
    b_last = numbers.backward[c, 1, end] - numbers.backward[c, 1, first] + numbers.overhead[c]
    return f_full + b_last, (numbers.num_microbatches - 1) * (f_full + b_full) + f_last + b_last


@compiled
def front_tables(numbers: Any, work_cap: float, step_cap: float) -> Any:
    """Least fill of everything in front, by state.

    Parameters
    ----------
    work_cap
        Stages that are busy longer in a step are left out.
    step_cap
        Stages and links with which no step can end by then are left out.

    Returns
    -------
    stage, total
        [multiset, class, layer]. ``total[v, c, j]``: least fill of the layers before j and of the link to them, where the
        multiset v is used and a stage of class c begins at layer j. ``stage[v, c, j]``: the same where that stage of
        class c is still to be placed and ends at j, its own fill included. Infinite where no permitted plan exists.
    """
    num_classes = len(numbers.counts)
    shape = (len(numbers.num_used), num_classes, numbers.num_layers + 1)
    stage = np.full(shape, np.inf)
    total = np.full(shape, np.inf)
    for v in range(len(numbers.num_used) - 1, 0, -1):
        if numbers.num_used[v] > numbers.max_stages:
            continue
        for d in range(num_classes):
            if (v // numbers.strides[d]) % (numbers.counts[d] + 1) == 0:
                continue
            if numbers.allowed[v]:
                total[v, d, 0] = 0.0
            if numbers.num_used[v] < numbers.max_stages:
                for e in range(num_classes):
                    if (v // numbers.strides[e]) % (numbers.counts[e] + 1) < numbers.counts[e]:
                        _link_rows(numbers, stage[v + numbers.strides[e], e], total[v, d], e, d, step_cap)
            _stage_rows(numbers, stage[v, d], total[v, d], d, numbers.num_used[v], work_cap, step_cap)
    return stage, total


@compiled
def _link_rows(numbers: Any, stage: Any, total: Any, e: int, d: int, step_cap: float) -> None:
    """Lower ``total`` by the choice of class e in front of class d."""
    there_fixed, back_fixed = numbers.latency[e, d], numbers.latency[d, e]
    if there_fixed == np.inf or back_fixed == np.inf:
        return
    last = numbers.num_microbatches - 1
    full_size, last_size = numbers.sizes[0], numbers.sizes[1]
    for j in range(1, numbers.num_layers):
        if not numbers.may_cut[j]:
            continue
        there = there_fixed + full_size * numbers.once_bytes[j] * numbers.per_byte[e, d]
        back = back_fixed + last_size * numbers.once_bytes[j] * numbers.per_byte[d, e]
        value = there + back + stage[j]
        if value >= total[j]:
            continue
        # a link is a serial resource: the other microbatches must pass it too
        queue = last * (back_fixed + full_size * numbers.once_bytes[j] * numbers.per_byte[d, e])
        if last > 0:
            last_there = there_fixed + last_size * numbers.once_bytes[j] * numbers.per_byte[e, d]
            queue = max(queue, (last - 1) * there + last_there)
        if value + queue <= step_cap:
            total[j] = value


@compiled
def _stage_rows(numbers: Any, stage: Any, total: Any, d: int, n: int, work_cap: float, step_cap: float) -> None:
    """Fill ``stage`` for class d as the n-th stage from the end."""
    ends_last = n == 1
    for j in range(1, numbers.num_layers + 1):
        if ends_last != (j == numbers.num_layers) or not (ends_last or numbers.may_cut[j]):
            continue
        best = np.inf
        for i in range(j - 1, numbers.first_fit[d, n, j] - 1, -1):
            if not numbers.may_cut[i]:
                continue
            fill, busy = stage_seconds(numbers, d, i, j)
            if busy > work_cap:
                break
            value = fill + total[i]
            if value < best and busy + total[i] <= step_cap:
                best = value
        stage[j] = best


@compiled
def least_fill_plan(
    numbers: Any, stage: Any, total: Any, work_cap: float, step_cap: float, classes: Any, first: Any
) -> int:
    """Write the pipeline of least fill from the end into ``classes`` and ``first``; its number of stages, 0 if none."""
    num_classes = len(numbers.counts)
    v, n, j = 0, 0, numbers.num_layers
    while j > 0:
        best = np.inf
        chosen = -1
        for e in range(num_classes):
            if (v // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e]:
                continue
            link = 0.0
            if n > 0:
                d = classes[n - 1]
                there, back = numbers.latency[e, d], numbers.latency[d, e]
                if there == np.inf or back == np.inf:
                    continue
                link = (
                    there
                    + back
                    + numbers.sizes[0] * numbers.once_bytes[j] * numbers.per_byte[e, d]
                    + numbers.sizes[1] * numbers.once_bytes[j] * numbers.per_byte[d, e]
                )
            value = link + stage[v + numbers.strides[e], e, j]
            if value < best:
                best, chosen = value, e
        if chosen < 0:
            return 0
        v += numbers.strides[chosen]
        best = np.inf
        start = -1
        for i in range(j - 1, numbers.first_fit[chosen, n + 1, j] - 1, -1):
            if not numbers.may_cut[i]:
                continue
            fill, busy = stage_seconds(numbers, chosen, i, j)
            if busy > work_cap:
                break
            value = fill + total[v, chosen, i]
            if value < best and busy + total[v, chosen, i] <= step_cap:
                best, start = value, i
        if start < 0:
            return 0
        classes[n], first[n] = chosen, start
        n += 1
        j = start
    return n


@compiled
def least_overflow(numbers: Any, need: Any, memory: Any) -> float:
    """Least total of bytes above the memory limits, summed over the devices of a permitted plan.

    ``need[n, i, j]`` are bytes of the layers i…j−1 as the n-th stage from the end; ``memory[class]`` the limits. Infinite where
    no permitted plan exists even with unlimited memory.
    """
    num_classes = len(numbers.counts)
    shape = (len(numbers.num_used), num_classes, numbers.num_layers + 1)
    stage = np.full(shape, np.inf)
    total = np.full(shape, np.inf)
    for v in range(len(numbers.num_used) - 1, 0, -1):
        n = numbers.num_used[v]
        if n > numbers.max_stages:
            continue
        for d in range(num_classes):
            if (v // numbers.strides[d]) % (numbers.counts[d] + 1) == 0:
                continue
            if numbers.allowed[v]:
                total[v, d, 0] = 0.0
            for e in range(num_classes):
                free = (v // numbers.strides[e]) % (numbers.counts[e] + 1) < numbers.counts[e]
                if free and n < numbers.max_stages and max(numbers.latency[e, d], numbers.latency[d, e]) < np.inf:
                    for j in range(1, numbers.num_layers):
                        if numbers.may_cut[j]:
                            total[v, d, j] = min(total[v, d, j], stage[v + numbers.strides[e], e, j])
            for j in range(1, numbers.num_layers + 1):
                if (n == 1) != (j == numbers.num_layers):
                    continue
                for i in range(j - 1, numbers.first_fit[d, n, j] - 1, -1):
                    if numbers.may_cut[i]:
                        over = max(0.0, need[n, i, j] - memory[d])
                        stage[v, d, j] = min(stage[v, d, j], over + total[v, d, i])
    least = np.inf
    for c in range(num_classes):
        least = min(least, stage[numbers.strides[c], c, numbers.num_layers])
    return least
