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

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import (
    NEVER,
    Floats,
    Ints,
    Numbers,
    crossing_bytes,
    make_room,
    pass_seconds,
    response,
    set_link,
    set_stage,
    step_end,
    suffix_step,
    tensor_reads,
)
from ignite_scheduler.planner.lanes import make_lanes, outer_responses
from ignite_scheduler.planner.tables import link_seconds, pace_of, stage_seconds, turns_pace

TIE = 1e-9
"""Objectives that differ by less are equal."""

MAX_LOOKED = 1024
"""Remembered suffixes of a state that a new one is compared with."""

WORK_ACTIONS = 256
"""Timing one pipeline counts 1, and 1 more for each that many actions."""

OUTER_ACTIONS = 64
"""Responses of a suffix count 2, and 1 more for each that many actions."""

MEMORY_BYTES = 400_000_000
MEMORY_MICROBATCHES = 64
"""Suffixes are compared by their responses up to this many microbatches."""


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


class Memory(NamedTuple):
    """Suffixes met so far, by state (multiset, class, layer): linked lists of records in one row of numbers.

    A record is what :func:`response` or :func:`outer_responses` wrote and the tensors' bytes read behind, as many
    numbers for all suffixes of a state, and then the place of the next record, −1 for none. ``head[state]`` is the
    place of the first; ``length[0]`` how much of ``records`` is in use.
    """

    head: Ints
    records: Floats
    length: Ints


def make_memory(numbers: Numbers, *, wanted: bool) -> Memory:
    """Room to remember suffixes; none where comparing responses does not suffice or would cost too much."""
    m = numbers.num_microbatches
    ends = numbers.extra.any() or numbers.update.any() or numbers.closing.any()
    plain = len(numbers.tied_bytes) == 0 and not ends
    size = (4 if numbers.gpipe and numbers.even else m * m + 1) + len(numbers.tensors)
    room = MEMORY_BYTES // 8 if plain and size <= MEMORY_MICROBATCHES**2 and wanted else 0
    states = len(numbers.num_used) * len(numbers.counts) * (numbers.num_layers + 1)
    return Memory(head=np.full(states, -1, dtype=np.int64), records=np.empty(room), length=np.zeros(1, dtype=np.int64))


@compiled
def _dominated(memory: Any, state: int, new: Any, size: int, slack: float) -> bool:
    """Whether a suffix met before in the same state answers every arrival no later than ``slack`` times the new one."""
    head, records = memory.head, memory.records
    at = head[state]
    previous = -1
    looked = 0
    while at >= 0 and looked < MAX_LOOKED:
        looked += 1
        k = size - 1  # from the end: beside the place of the next record, which is read anyway
        while k >= 0 and records[at + k] <= new[k] * slack:
            k -= 1
        if k < 0:
            if previous >= 0:  # what dominates once dominates again: to the front
                records[previous + size] = records[at + size]
                records[at + size] = head[state]
                head[state] = at
            return True
        previous = at
        at = int(records[at + size])
    return False


@compiled
def _keep(memory: Any, state: int, new: Any, size: int) -> None:
    """Remember a suffix while there is room."""
    at = memory.length[0]
    if at + size < len(memory.records):
        memory.length[0] += size + 1
        memory.records[at : at + size] = new[:size]
        memory.records[at + size] = memory.head[state]
        memory.head[state] = at


@compiled
def _least_front(numbers: Any, used: int, d: int, i: int, n: int) -> Any:
    """What every pipeline with class d at layer i as the n-th stage from the end has in front: least seconds between
    arrivals, from a gradient that leaves to the arrival that it lets in, and between gradients that leave."""
    spacing, turn, gap = np.inf, np.inf, np.inf
    for e in range(len(numbers.counts)):
        if (used // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e]:
            continue
        there, back = np.inf, np.inf
        for m in range(2):
            there_m, back_m = link_seconds(numbers, e, d, i, numbers.sizes[m])
            there, back = min(there, there_m), min(back, back_m)
        if max(there, back) == np.inf:
            continue
        spacing, gap = min(spacing, there), min(gap, back)
        fill, _ = stage_seconds(numbers, e, i if numbers.loose else i - 1, i)
        turn = min(turn, there + back + (fill if numbers.even else 0.0))
    if spacing == np.inf:
        return 0.0, 0.0, 0.0
    if numbers.gpipe:
        return spacing, NEVER, gap
    return spacing, turn, gap


def search(
    numbers: Any,
    floors: Any,
    totals: Any,
    extents: Any,
    memory: Memory,
    best_value: float,
    best_n: int,
    best_classes: Any,
    best_first: Any,
    slack: float,
    budget: int,
) -> Any:
    """Improve the incumbent until nothing better is left or ``budget`` pipelines are timed.

    ``floors`` and ``totals`` are the tables of the fill in front, ``extents`` the one by the end of the first stage (of
    length 0: not made); ``memory`` is empty or takes suffixes for dominance.
    A ``slack`` above 1 also drops suffixes that are better by less: then nothing is proven.
    ``best_classes`` and ``best_first`` [q] hold the incumbent from the end and are overwritten; ``best_n`` = 0: none.

    Returns
    -------
    value, number of stages, pipelines timed, whether the search is complete
    """
    # without memory much less has to be compiled
    kept = memory if len(memory.records) > 0 else None
    return _search(numbers, floors, totals, extents, kept, best_value, best_n, best_classes, best_first, slack, budget)


@compiled
def _search(  # noqa: PLR0912, PLR0915
    numbers: Any,
    floors: Any,
    totals: Any,
    extents: Any,
    memory: Any,
    best_value: float,
    best_n: int,
    best_classes: Any,
    best_first: Any,
    slack: float,
    budget: int,
) -> Any:
    """:func:`search`, with None for an empty memory."""
    num_classes = len(numbers.counts)
    size = numbers.max_stages + 2
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = room.classes, room.first
    strides, counts, may_cut, first_fit = numbers.strides, numbers.counts, numbers.may_cut, numbers.first_fit
    own_rate, own_extra, extra_front = numbers.rate, numbers.extra, numbers.extra_front
    even, shrinking, gpipe = numbers.even, numbers.shrinking, numbers.gpipe
    m = numbers.num_microbatches
    full_m = m if even else m - 1
    turning = shrinking and not gpipe
    actions = np.zeros(size)
    ways = np.zeros(size)
    links = np.zeros(size)
    used = np.zeros(size, np.int64)
    exact = np.zeros(size)
    rates = np.zeros(size)
    extras = np.zeros(size)
    fills = np.zeros(size)
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
    equal_gpipe = numbers.gpipe and numbers.even  # step = fill + (M − 1)·(largest forward + largest backward)
    most_f = np.zeros(size)
    most_b = np.zeros(size)
    answer = np.zeros(max(3, m * m, 2 * size * m) + 1 + len(numbers.tensors))
    lanes = make_lanes(numbers.max_stages, m)
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
            i = j if numbers.loose else j - 1
            taken = (used[n] // strides[e]) % (counts[e] + 1) == counts[e]
            if n > 0 and not taken:
                d = classes[n - 1]
                taken = numbers.latency[e, d] == np.inf or numbers.latency[d, e] == np.inf
                if not taken:
                    set_link(numbers, room, n - 1, e, d, crossing[n - 1])
                    ways[n - 1] = room.link_forward[n - 1, 0] + room.link_backward[n - 1, 0]
                    links[n - 1] = room.link_forward[n - 1, 0] + room.link_backward[n - 1, 1]
            if taken:
                i = -1
        if i < first_fit[e, n + 1, j] or i < 0:
            at_class[n] += 1
            at_first[n] = -2
            continue
        at_first[n] = i - 1
        if not may_cut[i]:
            continue
        f, b = pass_seconds(numbers, e, 0, i, j)
        f_last, b_last = pass_seconds(numbers, e, 1, i, j)
        fill, busy = f + b_last, (m - 1) * (f + b) + f_last + b_last
        rate = rates[n] + own_rate[e]
        extra = extras[n] + own_extra[e] * busy
        rate_bound = rate + (least_rate if i > 0 else 0.0)
        extra_bound = extra + extra_front[i]
        limit = (best_value + TIE - extra_bound) / rate_bound if rate_bound > 0 else np.inf
        link = links[n - 1] if n > 0 else 0.0
        behind = fills[n] + link + fill
        level = 0
        while level + 1 < len(floors) and floors[level + 1] <= behind:
            level += 1
        front = totals[level, used[n] + strides[e], e, i]
        if front == np.inf or front + busy > limit or front + fill + link + exact[n] > limit:
            continue
        pace = pace_of(m, n + 1, even, shrinking, gpipe, f, b, f_last)
        if behind + front + pace > limit:
            continue
        if len(extents) > 0:
            front = extents[used[n] + strides[e], e, i, j]
            if front + max(busy, fill + link + exact[n], behind + pace) > limit:
                continue
        actions[n] = f + b
        if turning:
            most = max(f, b) if even else b
            cycle = f + b
            for q in range(n - 1, -1, -1):
                cycle += ways[q] + actions[q]
                pace = max(pace, turns_pace(full_m, n + 1, n + 1 - q, cycle, most))
            if behind + front + pace > limit:
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
        if memory is not None:
            if equal_gpipe:
                most_f[n + 1] = max(most_f[n], room.forward[n, 0], room.link_forward[n - 1, 0] if n > 0 else 0.0)
                most_b[n + 1] = max(most_b[n], room.backward[n, 0], room.link_backward[n - 1, 0] if n > 0 else 0.0)
                answer[0], answer[1], answer[2] = behind, most_f[n + 1], most_b[n + 1]
                length = 3
            else:
                outer = not numbers.gpipe and m > n + 1
                spacing, turn, gap = _least_front(numbers, used[n] + numbers.strides[e], e, i, n + 1)
                if outer:
                    length = outer_responses(numbers, room, lanes, n + 1, True, spacing, turn, gap, answer)
                    timed += 2 + (numbers.order_start[n + 2] - numbers.order_start[n + 1]) // OUTER_ACTIONS
                else:
                    length = response(numbers, room, n + 1, True, spacing, turn, gap, answer)
                    timed += m // 4
            answer[length] = crossing[n]
            for t in range(len(numbers.tensors)):
                if numbers.tensors[t, 0] < i:
                    length += 1
                    answer[length] = tensor_reads(numbers, first, n + 1, t)
            state = ((used[n] + numbers.strides[e]) * num_classes + e) * (numbers.num_layers + 1) + i
            if _dominated(memory, state, answer, length + 1, slack):
                continue
            if memory.length[0] + length + 1 < len(memory.records):
                if not equal_gpipe and outer:
                    outer_responses(numbers, room, lanes, n + 1, False, 0.0, 0.0, 0.0, answer)
                elif not equal_gpipe:
                    response(numbers, room, n + 1, False, 0.0, 0.0, 0.0, answer)
                _keep(memory, state, answer, length + 1)
        used[n + 1] = used[n] + numbers.strides[e]
        exact[n + 1] = step
        fills[n + 1] = behind
        rates[n + 1] = rate
        extras[n + 1] = extra
        prices[n + 1] = prices[n] + numbers.price[e]
        n += 1
        at_class[n] = 0
        at_first[n] = -2
    return best_value, best_n, timed, n < 0
