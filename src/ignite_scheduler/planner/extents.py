"""Cost-to-go tables by the whole extent of a stage, so that two neighbours are held against each other.

Under 1F1B neighbouring stages wait for each other (:func:`ignite_scheduler.planner.tables.cycle_pace`): two long stages
with a slow link between them pace the pipeline more than each alone. The tables of :mod:`.tables` know where a stage
begins, not where it ends; these know both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import pass_seconds
from ignite_scheduler.planner.tables import (
    cycle_pace,
    link_pace,
    link_seconds,
    linked,
    round_trips,
    stage_pace,
    stage_seconds,
)


@compiled
def extent_tables(numbers: Any, behind: Any, step_cap: float) -> Any:
    """Least fill of everything in front, by state and by the end of the suffix's first stage.

    Parameters
    ----------
    behind
        What :func:`ignite_scheduler.planner.tables.behind_tables` returned.
    step_cap
        Stages, links and neighbours with which no step can end by then are left out.

    Returns
    -------
    front
        [multiset, class, first, end]: least fill of the layers before ``first`` and of the link to them, where a stage
        of the class holds ``first`` … ``end`` − 1 and the multiset is used, that device included. Infinite where no
        permitted plan exists. As large as the layers squared.
    """
    num_classes, size = len(numbers.counts), numbers.num_layers
    front = np.full((len(numbers.num_used), num_classes, size, size + 1), np.inf)
    values = np.empty(num_classes * size)
    limits = np.empty(num_classes * size)
    for v in range(len(numbers.num_used) - 1, 0, -1):
        n = numbers.num_used[v]
        if n > numbers.max_stages:
            continue
        for d in range(num_classes):
            if (v // numbers.strides[d]) % (numbers.counts[d] + 1) == 0:
                continue
            if numbers.allowed[v]:
                front[v, d, 0, :] = 0.0
            for i in range(1, size if n < numbers.max_stages else 1):
                if not numbers.may_cut[i]:
                    continue
                found = _neighbours(numbers, front, behind, v, d, i, step_cap, values, limits)
                if found > 0:
                    _extents(numbers, front[v, d, i], behind[v, d], d, i, n, found, values, limits)
    return front


@compiled
def _extents(
    numbers: Any, front: Any, behind: Any, d: int, i: int, n: int, found: int, values: Any, limits: Any
) -> None:
    """Fill ``front`` [end] for class d from layer i on, n-th from the end: the first neighbour within its limit."""
    turns = cycle_pace(numbers, n + 1, 2, 1.0, 0.0)
    for j in range(i if numbers.loose else i + 1, numbers.num_layers + 1):
        if (n == 1) != (j == numbers.num_layers) or i < numbers.first_fit[d, n, j] or behind[j] == np.inf:
            continue
        fill, _ = stage_seconds(numbers, d, i, j)
        f, b = pass_seconds(numbers, d, 0, i, j)
        need = fill + behind[j] + turns * (f + b)
        for at in range(found):
            if need <= limits[at]:
                front[j] = values[at]
                break


@compiled
def _neighbours(
    numbers: Any, front: Any, behind: Any, v: int, d: int, i: int, step_cap: float, values: Any, limits: Any
) -> int:
    """List the stages in front of a stage of class d at layer i by the fill that they and all before them add.

    ``values`` takes that fill, in order; ``limits`` what the step leaves for the fill behind and the share of the stage
    of class d in the turns of both. Returns their number.
    """
    n = numbers.num_used[v] + 1
    last = numbers.num_microbatches - 1
    trips = round_trips(numbers, n)
    found = 0
    for e in range(len(numbers.counts)):
        if (v // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e] or not linked(numbers, e, d):
            continue
        u = v + numbers.strides[e]
        rest = behind[u, e, i]
        there, back = link_seconds(numbers, e, d, i, numbers.sizes[0])
        there_last, back_last = link_seconds(numbers, e, d, i, numbers.sizes[1])
        link = there + back_last
        queue = max(last * back, (last - 1) * there + there_last if last > 0 else 0.0)
        queue = max(queue, link_pace(numbers, there, back) + rest - link)
        for h in range(i if numbers.loose else i - 1, numbers.first_fit[e, n, i] - 1, -1):
            ahead = front[u, e, h, i]
            if ahead == np.inf:
                continue
            fill, busy = stage_seconds(numbers, e, h, i)
            value = ahead + fill
            if (
                busy + ahead > step_cap
                or value + rest + stage_pace(numbers, e, h, i, n) > step_cap
                or ahead + trips * (fill + rest) > step_cap
                or value + link + queue > step_cap
            ):
                continue
            f, b = pass_seconds(numbers, e, 0, h, i)
            most = max(f, b) if numbers.even else b
            value += link
            limit = step_cap - value - cycle_pace(numbers, n, 2, f + b + there + back, most)
            at = found
            while at > 0 and values[at - 1] > value:
                values[at], limits[at] = values[at - 1], limits[at - 1]
                at -= 1
            values[at], limits[at] = value, limit
            found += 1
    return found
