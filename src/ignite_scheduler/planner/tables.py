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

from ignite_scheduler.planner.compiled import compiled, inlined
from ignite_scheduler.planner.kernel import pass_seconds


@inlined
def stage_seconds(numbers: Any, c: int, first: int, end: int) -> Any:
    """Fill and busy seconds a step of the layers ``first`` … ``end`` − 1 on class c."""
    f_full, b_full = pass_seconds(numbers, c, 0, first, end)
    f_last, b_last = pass_seconds(numbers, c, 1, first, end)
    return f_full + b_last, (numbers.num_microbatches - 1) * (f_full + b_full) + f_last + b_last


@inlined
def stage_pace(numbers: Any, c: int, first: int, end: int, n: int) -> float:
    """Seconds beyond the fill of the whole pipeline that a step takes at least because of one stage.

    The stage is the n-th from the end, on class c. Under 1F1B it does K = min(M, n) forwards before its first
    backward, which waits for the first microbatch to go to the end and back; then come M backwards and the M − K
    other forwards. With the way of the first microbatch there and of the last gradient back this is the fill and
    (M−1)·b + (M−K)·f. Read from the end: the last forward comes after M−1 forwards and M − K backwards, and then the
    last microbatch goes to the end and back. GPipe does all forwards, and then all backwards: fill and (M−1)·(f + b).
    """
    f, b = pass_seconds(numbers, c, 0, first, end)
    f_last, _ = pass_seconds(numbers, c, 1, first, end)
    return pace_of(
        numbers.num_microbatches,
        n,
        numbers.even,
        numbers.shrinking,
        numbers.gpipe,
        f,
        b,
        f_last,
    )


@inlined
def pace_of(m: int, n: int, even: bool, shrinking: bool, gpipe: bool, f: float, b: float, f_last: float) -> float:
    """:func:`stage_pace` from the seconds of a full forward and backward and of the last forward."""
    held = min(m, n)
    pace = 0.0
    if m == 1 or not shrinking:
        pace = 0.0
    elif gpipe:
        pace = (m - 1) * (f + b if even else b)
    elif even:
        pace = max((m - 1) * b + (m - held) * f, (m - 1) * f + (m - held) * b)
    else:
        pace = (m - 1) * b + ((m - held - 1) * f + f_last if m > held else 0.0)
    return pace


@inlined
def round_trips(numbers: Any, n: int) -> int:
    """How often a microbatch of the n-th stage from the end must go to the end and back, one after the other.

    Under 1F1B the forward of microbatch k + K comes after the backward of microbatch k, K = min(M, n): the trips of
    the microbatches 0, K, 2K, … follow each other. A smaller last microbatch is not counted.
    """
    m = numbers.num_microbatches
    if numbers.gpipe or not numbers.shrinking:
        return 1
    counted = m if numbers.even else max(1, m - 1)
    held = min(m, n)
    return int((counted + held - 1) // held)


@inlined
def cycle_pace(numbers: Any, n: int, length: int, cycle: float, most: float) -> float:
    """Seconds beyond the fill of the whole pipeline because neighbouring stages wait for each other under 1F1B.

    The n-th stage from the end and the ``length`` − 1 stages behind it take ``cycle`` seconds for a forward and a
    backward of each and the links between them, there and back; ``most`` is the longer action of the first of them.
    After the first microbatch has gone to the end and back (the fill), the backward of k lets the forward of k + n in,
    which goes down to the last of these stages; there it lets the backward of k + ``length`` out. So each turn through
    them brings ``length`` gradients: ⌈(M − n) ÷ length⌉ turns, then single backwards (or, read from the end, forwards).
    """
    m = numbers.num_microbatches if numbers.even else numbers.num_microbatches - 1
    return 0.0 if numbers.gpipe or not numbers.shrinking else turns_pace(m, n, length, cycle, most)


@inlined
def turns_pace(m: int, n: int, length: int, cycle: float, most: float) -> float:
    """:func:`cycle_pace` for m microbatches of full size."""
    turns = max(0, m - n + length - 1) // length
    return turns * cycle + (m - 1 - turns * length) * most if m > n else 0.0


@inlined
def link_pace(numbers: Any, there: float, back: float) -> float:
    """Seconds beyond the fill of the whole pipeline because one link carries all microbatches, one after the other."""
    m = numbers.num_microbatches
    if m == 1 or not numbers.shrinking:
        return 0.0
    if not numbers.even:
        return float((m - 1) * back)
    return float((m - 1) * (there + back if numbers.gpipe else max(there, back)))


@inlined
def link_seconds(numbers: Any, e: int, d: int, j: int, size: float) -> Any:
    """Seconds there and back over the cut in front of layer j, from class e to class d, for ``size`` samples."""
    num_bytes = size * numbers.once_bytes[j]
    return (
        numbers.latency[e, d] + num_bytes * numbers.per_byte[e, d],
        numbers.latency[d, e] + num_bytes * numbers.per_byte[d, e],
    )


@compiled
def behind_tables(numbers: Any, work_cap: float) -> Any:  # noqa: PLR0912
    """Least fill of everything behind, by state.

    Returns
    -------
    behind
        [multiset, class, layer]. ``behind[v, c, j]``: least fill of the layers from j on and of the link to them,
        where a stage of class c ends at j and v is used, it included. Infinite where no permitted plan exists.
    """
    num_classes = len(numbers.counts)
    shape = (len(numbers.num_used), num_classes, numbers.num_layers + 1)
    behind = np.full(shape, np.inf)
    suffix = np.full(shape, np.inf)
    for v in range(1, len(numbers.num_used)):
        n = numbers.num_used[v]
        if n > numbers.max_stages:
            continue
        for c in range(num_classes):
            if (v // numbers.strides[c]) % (numbers.counts[c] + 1) == 0:
                continue
            w = v - numbers.strides[c]
            if n == 1:
                behind[v, c, numbers.num_layers] = 0.0
            for d in range(num_classes):
                if (w // numbers.strides[d]) % (numbers.counts[d] + 1) == 0 or not linked(numbers, c, d):
                    continue
                for j in range(1, numbers.num_layers):
                    if numbers.may_cut[j] and suffix[w, d, j] < np.inf:
                        there, _ = link_seconds(numbers, c, d, j, numbers.sizes[0])
                        _, back = link_seconds(numbers, c, d, j, numbers.sizes[1])
                        behind[v, c, j] = min(behind[v, c, j], there + back + suffix[w, d, j])
            for j in range(1, numbers.num_layers + 1):
                if behind[v, c, j] == np.inf:
                    continue
                for i in range(j if numbers.loose else j - 1, numbers.first_fit[c, n, j] - 1, -1):
                    if not numbers.may_cut[i]:
                        continue
                    fill, busy = stage_seconds(numbers, c, i, j)
                    if busy > work_cap:
                        break
                    suffix[v, c, i] = min(suffix[v, c, i], fill + behind[v, c, j])
    return behind


@inlined
def linked(numbers: Any, a: int, b: int) -> bool:
    return bool(numbers.latency[a, b] < np.inf and numbers.latency[b, a] < np.inf)


@compiled
def front_tables(numbers: Any, behind: Any, floor: float, work_cap: float, step_cap: float) -> Any:
    """Least fill of everything in front, by state.

    Parameters
    ----------
    behind
        What :func:`behind_tables` returned; of length 0: nothing is known of what lies behind.
    floor
        The fill behind every stage is at least this much: the tables hold for suffixes with no less.
    work_cap
        Stages that are busy longer in a step are left out.
    step_cap
        Stages and links with which no step can end by then are left out.

    Returns
    -------
    stage, total
        [multiset, class, layer]. ``total[v, c, j]``: least fill of the layers before j and of the link to them, where
        the multiset v is used and a stage of class c begins at layer j. ``stage[v, c, j]``: the same where that stage
        of class c is still to be placed and ends at j, its own fill included. Infinite where no permitted plan exists.
    """
    num_classes = len(numbers.counts)
    shape = (len(numbers.num_used), num_classes, numbers.num_layers + 1)
    stage = np.full(shape, np.inf)
    total = np.full(shape, np.inf)
    nothing = np.zeros(numbers.num_layers + 1)
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
                    if (v // numbers.strides[e]) % (numbers.counts[e] + 1) < numbers.counts[e] and linked(
                        numbers, e, d
                    ):
                        _link_rows(numbers, stage[v + numbers.strides[e], e], total[v, d], e, d, floor, step_cap)
            rest = behind[v, d] if len(behind) > 0 else nothing
            _stage_rows(numbers, stage[v, d], total[v, d], rest, d, numbers.num_used[v], floor, work_cap, step_cap)
    return stage, total


@compiled
def _link_rows(numbers: Any, stage: Any, total: Any, e: int, d: int, floor: float, step_cap: float) -> None:
    """Lower ``total`` by the choice of class e in front of class d."""
    last = numbers.num_microbatches - 1
    for j in range(1, numbers.num_layers):
        if not numbers.may_cut[j] or stage[j] == np.inf:
            continue
        there, back = link_seconds(numbers, e, d, j, numbers.sizes[0])
        there_last, back_last = link_seconds(numbers, e, d, j, numbers.sizes[1])
        value = there + back_last + stage[j]
        if value >= total[j]:
            continue
        # a link is a serial resource: the other microbatches must pass it too
        queue = last * back
        if last > 0:
            queue = max(queue, (last - 1) * there + there_last)
        if value + queue <= step_cap and value + floor + link_pace(numbers, there, back) <= step_cap:
            total[j] = value


@compiled
def _stage_rows(
    numbers: Any, stage: Any, total: Any, behind: Any, d: int, n: int, floor: float, work_cap: float, step_cap: float
) -> None:
    """Fill ``stage`` for class d as the n-th stage from the end."""
    ends_last = n == 1
    for j in range(1, numbers.num_layers + 1):
        if ends_last != (j == numbers.num_layers) or not (ends_last or numbers.may_cut[j]):
            continue
        rest = max(behind[j], 0.0 if ends_last else floor)
        trips = round_trips(numbers, n)
        if trips * rest > step_cap:
            continue
        best = np.inf
        for i in range(j if numbers.loose else j - 1, numbers.first_fit[d, n, j] - 1, -1):
            if not numbers.may_cut[i]:
                continue
            fill, busy = stage_seconds(numbers, d, i, j)
            if busy > work_cap:
                break
            value = fill + total[i]
            if (
                value < best
                and busy + total[i] <= step_cap
                and value + rest + stage_pace(numbers, d, i, j, n) <= step_cap
                and total[i] + trips * (fill + rest) <= step_cap
            ):
                best = value
        stage[j] = best


@compiled
def least_fill_plan(numbers: Any, stage: Any, total: Any, work_cap: float, classes: Any, first: Any) -> int:
    """Write the pipeline of least fill from the end into ``classes`` and ``first``; its number of stages, 0 if none.

    ``stage`` and ``total`` are from :func:`front_tables` under the same ``work_cap`` and no other limits, or narrowed
    by :func:`ignite_scheduler.planner.narrowing.narrow`.
    """
    v, n, j = 0, 0, numbers.num_layers
    while j > 0:
        best = np.inf
        chosen = -1
        for e in range(len(numbers.counts)):
            if (v // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e]:
                continue
            value = stage[v + numbers.strides[e], e, j]
            if n > 0 and value < np.inf:
                if not linked(numbers, e, classes[n - 1]):
                    continue
                there, _ = link_seconds(numbers, e, classes[n - 1], j, numbers.sizes[0])
                _, back = link_seconds(numbers, e, classes[n - 1], j, numbers.sizes[1])
                value += there + back
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
            off = abs(fill + total[v, chosen, i] - stage[v, chosen, j])  # 0: the stage that the entry stands for
            if off < best:
                best, start = off, i
        if start < 0:
            return 0
        classes[n], first[n] = chosen, start
        n += 1
        j = start
    return n


@compiled
def least_overflow(numbers: Any, need: Any, memory: Any) -> float:  # noqa: PLR0912
    """Least total of bytes above the memory limits, summed over the devices of a permitted plan.

    ``need[n, i, j]`` are bytes of the layers i…j−1 as the n-th stage from the end; ``memory[class]`` the limits.
    Infinite where no permitted plan exists even with unlimited memory.
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
