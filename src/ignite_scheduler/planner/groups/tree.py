"""Branch and bound over suffixes of a chain of groups, compiled.

As :mod:`ignite_scheduler.planner.tree` for single devices: a node is a suffix, its children put one more group with a
run of layers in front. A suffix takes X if all microbatches stand before it at time 0; the tables know the least way
*in* of the first microbatch to it, and of *both* ways. Every plan that ends in this suffix takes at least X and both
ways, and at least the way in and the latest end of an all-reduce and update of the suffix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.exact import extra_of, place, step_end
from ignite_scheduler.planner.kernel import suffix_step
from ignite_scheduler.planner.tables import pace_of, turns_pace
from ignite_scheduler.planner.tree import TIE

WORK_ACTIONS = 256
"""Timing one pipeline counts 1, and 1 more for each that many actions."""


@compiled
def search(  # noqa: PLR0912, PLR0915
    field: Any, trial: Any, front_in: Any, front_both: Any, target: float, best_groups: Any, best_first: Any,
    budget: int,
) -> Any:  # fmt: skip
    """Look for chains below ``target`` until none is left or ``budget`` pipelines are timed.

    ``front_in`` and ``front_both`` are from :func:`.tables.front_tables`. The best chain is written into
    ``best_groups`` and ``best_first`` from the end.

    Returns
    -------
    value, number of stages (0: nothing below the target), pipelines timed, whether the search is complete
    """
    m, size, depths = field.num_microbatches, field.num_layers, len(field.ends)
    even, shrinking, gpipe = field.even, field.shrinking, field.gpipe
    full_m = m if even else m - 1
    turning = shrinking and not gpipe
    room = trial.room
    slots = field.max_stages + 2
    left = np.zeros(slots, np.int64)
    at_pair, at_first = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    exact, fills, rates, extras = np.zeros(slots), np.zeros(slots), np.zeros(slots), np.zeros(slots)
    actions, ways = np.zeros(slots), np.zeros(slots)
    least_rate = np.inf
    for rate in field.rate:
        least_rate = min(least_rate, rate)
    whole = len(field.held) - 1
    best_value, best_n, timed, n = target, 0, 0, 0
    left[0], at_pair[0], at_first[0], rates[0] = whole, field.pair_start[whole], -2, field.base_rate
    while n >= 0:
        if at_pair[n] == field.pair_start[left[n] + 1] or n == field.max_stages:
            n -= 1
            continue
        e = field.pair_group[at_pair[n]]
        j = size if n == 0 else room.first[n - 1]
        i, row = at_first[n], field.row[n + 1]
        if i == -2:  # the first look at the group here
            i = j - 1
            if n > 0 and field.link[e, room.classes[n - 1]] < 0:
                i = -1
        if i < 0 or i < field.lowest[e, row, j]:
            at_pair[n] += 1
            at_first[n] = -2
            continue
        at_first[n] = i - 1
        if not field.may_cut[i] or field.status[e, row, j, i] < 0:
            continue
        used = whole - left[n] + field.usage[e]
        pair, t = field.pair_index[used, e], min(n, depths - 1)
        both = front_both[t, pair, i]
        if both == np.inf:
            continue
        times = field.figures[e, j, i] if field.status[e, row, j, i] == 0 else field.special[field.status[e, row, j, i]]
        f, b, f_last, b_last = times[0], times[1], times[2], times[3]
        fill, busy = f + b_last, (m - 1) * (f + b) + f_last + b_last
        tail = max(both, front_in[t, pair, i] + times[5] + times[6])
        rate = rates[n] + field.rate[e]
        extra = extras[n]
        rate_bound = rate + (least_rate if i > 0 else 0.0)
        limit = (best_value - TIE - extra) / rate_bound if rate_bound > 0 else np.inf
        if busy + tail > limit:
            continue
        link = 0.0
        if n > 0:
            k = field.link[e, room.classes[n - 1]]
            link = field.hops[k, 0, j] + field.hops[k, 2, j]
            ways[n - 1] = field.hops[k, 0, j] + field.hops[k, 1, j]
        behind = fills[n] + link + fill
        if fill + link + exact[n] + tail > limit:
            continue
        pace = pace_of(m, n + 1, even, shrinking, gpipe, f, b, f_last)
        if behind + both + pace > limit:
            continue
        actions[n] = f + b
        if turning:
            most = max(f, b) if even else b
            cycle = f + b
            for q in range(n - 1, -1, -1):
                cycle += ways[q] + actions[q]
                pace = max(pace, turns_pace(full_m, n + 1, n + 1 - q, cycle, most))
            if behind + both + pace > limit:
                continue
        place(field, trial, n, e, i, j)
        timed += 1 + (field.order_start[n + 2] - field.order_start[n + 1]) // WORK_ACTIONS
        step = suffix_step(field, room, n + 1, False)
        bound = step + tail
        if i == 0:
            bound = step_end(field, trial, n + 1)
            extra = extra_of(field, trial, n + 1)
        else:
            for q in range(n + 1):
                bound = max(bound, front_in[t, pair, i] + room.free[q] + trial.ring[q] + room.finish[q])
        value = rate_bound * bound + extra
        if value >= best_value - TIE:
            continue
        if i == 0:
            best_value, best_n = value, n + 1
            for q in range(best_n):
                best_groups[q], best_first[q] = room.classes[q], room.first[q]
            continue
        if timed >= budget:
            break
        left[n + 1] = left[n] - field.usage[e]
        exact[n + 1], fills[n + 1], rates[n + 1], extras[n + 1] = step, behind, rate, extras[n] + trial.extra[n]
        n += 1
        at_pair[n], at_first[n] = field.pair_start[left[n]], -2
    return best_value, best_n, timed, n < 0
