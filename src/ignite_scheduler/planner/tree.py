"""Branch and bound over suffixes of the pipeline: the exact search, compiled.

Theory of operation
-------------------
A node is a suffix: the last n stages, with the devices and the layers of each. Its children put one more stage in
front. For a node two things are known: the exact step time X of the suffix if all microbatches stood before it at time
0, and from the cost-to-go tables the least fill H of all layers in front. Every plan that ends in this suffix takes at
least X + H, since the first microbatch reaches the suffix no earlier than the forward part of H and the last gradient
has its backward part still to go. Children are cut off by cheap bounds first (busy time of the new stage, fill), then
by X + H, where X comes from the exact kernel.

Ties within 1e-9 are decided by fewer devices, then a lower price, then smaller ids; a node that cannot win any of these
is cut off too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import crossing_bytes, make_room, set_link, set_stage, step_end, suffix_step
from ignite_scheduler.planner.tables import stage_seconds

TIE = 1e-9
"""Objectives that differ by less are equal."""

WORK_ACTIONS = 256
"""Timing one pipeline counts 1, and 1 more for each that many actions."""


@compiled
def ids_of(numbers: Any, n: int, classes: Any, used: Any, out: Any) -> None:
    """Ranks of the devices in order of stages (``classes`` from the end): each class hands out its members in order."""
    used[:] = 0
    for s in range(n):
        c = classes[n - 1 - s]
        out[s] = numbers.member_rank[c, used[c]]
        used[c] += 1


@compiled
def _ids_cannot_improve(numbers: Any, n: int, total: int, classes: Any, best_ids: Any, held: Any, used: Any) -> bool:
    """Whether no completion to ``total`` stages has ids below the incumbent's.

    The front takes the smallest ranks that the suffix leaves; if even then the ids are not below, no completion is.
    """
    held[:] = 0
    used[:] = 0
    for q in range(n):
        held[classes[q]] += 1
    for s in range(total):
        if s < total - n:
            c = -1
            for k in range(len(numbers.counts)):
                if used[k] + held[k] < numbers.counts[k] and (
                    c < 0 or numbers.member_rank[k, used[k]] < numbers.member_rank[c, used[c]]
                ):
                    c = k
            if c < 0:
                return False
        else:
            c = classes[total - 1 - s]
        rank = numbers.member_rank[c, used[c]]
        used[c] += 1
        if rank != best_ids[s]:
            return bool(rank > best_ids[s])
    return True


@compiled
def search(
    numbers: Any, total_table: Any, best_value: float, best_n: int, best_classes: Any, best_first: Any, budget: int
) -> Any:
    """Improve the incumbent until nothing better is left or ``budget`` pipelines are timed.

    ``best_classes`` and ``best_first`` [q] hold the incumbent from the end and are overwritten; ``best_n`` = 0: none.

    Returns
    -------
    value, number of stages, pipelines timed, whether the search is complete
    """
    num_classes = len(numbers.counts)
    size = numbers.max_stages + 2
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = room.classes, room.first
    used = np.zeros(size, np.int64)
    exact = np.zeros(size)
    rates = np.zeros(size)
    extras = np.zeros(size)
    prices = np.zeros(size)
    at_class = np.zeros(size, np.int64)
    at_first = np.zeros(size, np.int64)
    crossing = np.zeros(size)
    held = np.zeros(num_classes, np.int64)
    handed = np.zeros(num_classes, np.int64)
    best_ids = np.zeros(size, np.int64)
    best_price = 0.0
    for q in range(best_n):
        best_price += numbers.price[best_classes[q]]
    ids_of(numbers, best_n, best_classes, handed, best_ids)
    least_rate = numbers.rate.min()
    least_price = numbers.price.min()
    timed = 0
    n = 0
    rates[0] = numbers.base_rate
    at_first[0] = -2
    while n >= 0:
        e = at_class[n]
        if e == num_classes or n == numbers.max_stages:
            n -= 1
            continue
        j = numbers.num_layers if n == 0 else first[n - 1]
        i = at_first[n]
        if i == -2:  # the first look at class e here
            i = j - 1
            taken = (used[n] // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e]
            if n > 0 and not taken:
                d = classes[n - 1]
                taken = numbers.latency[e, d] == np.inf or numbers.latency[d, e] == np.inf
                if not taken:
                    set_link(numbers, room, n - 1, e, d, crossing[n - 1])
            if taken:
                i = -1
        if i < numbers.first_fit[e, n + 1, j] or i < 0:
            at_class[n] += 1
            at_first[n] = -2
            continue
        at_first[n] = i - 1
        if not numbers.may_cut[i]:
            continue
        fill, busy = stage_seconds(numbers, e, i, j)
        rate = rates[n] + numbers.rate[e]
        extra = extras[n] + numbers.extra[e] * busy
        rate_bound = rate + (least_rate if i > 0 else 0.0)
        extra_bound = extra + numbers.extra_front[i]
        limit = (best_value + TIE - extra_bound) / rate_bound if rate_bound > 0 else np.inf
        front = total_table[used[n] + numbers.strides[e], e, i]
        if front == np.inf or front + busy > limit:
            continue
        if n > 0:
            fill += room.link_forward[n - 1, 0] + room.link_backward[n - 1, 1] + exact[n]
        if fill + front > limit:
            continue
        set_stage(numbers, room, n, e, i, j)
        timed += 1 + (numbers.order_start[n + 2] - numbers.order_start[n + 1]) // WORK_ACTIONS
        step = suffix_step(numbers, room, n + 1, False)
        bound = step + front
        if i == 0:
            bound = step_end(numbers, room, n + 1)
            for q in range(n + 1):
                extra_bound += numbers.extra[classes[q]] * (room.ready[q] - room.free[q])
        else:
            for q in range(n + 1):
                bound = max(bound, room.free[q] + room.finish[q])
        value = rate_bound * bound + extra_bound
        if value > best_value + TIE:
            continue
        if value >= best_value - TIE:
            # at best a tie: only fewer devices, a lower price or smaller ids are worth it
            total = n + 1 + (1 if i > 0 else 0)
            price = prices[n] + numbers.price[e] + (least_price if i > 0 else 0.0)
            if total > best_n:
                continue
            if total == best_n:
                slack = TIE * max(1.0, best_price)
                if price > best_price + slack:
                    continue
                if price >= best_price - slack and _ids_cannot_improve(
                    numbers, n + 1, best_n, classes, best_ids, held, handed
                ):
                    continue
        if i == 0:
            best_value = min(value, best_value)
            best_n = n + 1
            best_price = prices[n] + numbers.price[e]
            best_classes[:best_n] = classes[:best_n]
            best_first[:best_n] = first[:best_n]
            ids_of(numbers, best_n, best_classes, handed, best_ids)
            continue
        if timed >= budget:
            break
        crossing[n] = crossing_bytes(numbers, first, n + 1, i)
        used[n + 1] = used[n] + numbers.strides[e]
        exact[n + 1] = step
        rates[n + 1] = rate
        extras[n + 1] = extra
        prices[n + 1] = prices[n] + numbers.price[e]
        n += 1
        at_class[n] = 0
        at_first[n] = -2
    return best_value, best_n, timed, n < 0
