"""All pipelines that no other beats in several objectives at once, by branch and bound over vectors, compiled.

Theory of operation
-------------------
Pipelines are grown from the end, as :mod:`ignite_scheduler.planner.tree` does. What stands so far bounds every
objective of whatever it may become: the step by the exact step of the suffix and by the least fill in front, money and
idle energy by that step and the rates of the devices held (and of the cheapest further one), busy energy by the least
that the layers in front add, the number of devices, and headroom by the stages so far, since more stages only lower it.
A branch ends where a point that has been found covers that vector of bounds: nothing in it can add to the set. So what
is left when the search ends is the whole set, over all multisets of devices at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled, inlined
from ignite_scheduler.planner.kernel import (
    Floats,
    Ints,
    crossing_bytes,
    make_room,
    set_link,
    set_stage,
    step_end,
    suffix_step,
)
from ignite_scheduler.planner.pareto.front import EQUAL
from ignite_scheduler.planner.pareto.weights import DEVICES, ENERGY, HEADROOM, MONEY, NUM_VALUES, TIME, room_left
from ignite_scheduler.planner.tables import pace_of

SLACK = 1 + EQUAL
"""As a name of this module, which compiled functions take as a constant."""


class Points(NamedTuple):
    """The set so far, as arrays: values, and pipelines from the end.

    ``kept`` counts the points and ``family`` says whose numbers a point belongs to; ``wanted[k]`` is 1 for the values
    that are compared, else 0.
    """

    kept: Ints
    values: Floats
    family: Ints
    length: Ints
    classes: Ints
    first: Ints
    wanted: Floats


def make_points(wanted: Floats, most: int, max_stages: int) -> Points:
    """Room for ``most`` points."""
    return Points(
        kept=np.zeros(1, dtype=np.int64),
        values=np.zeros((most, NUM_VALUES)),
        family=np.zeros(most, dtype=np.int64),
        length=np.zeros(most, dtype=np.int64),
        classes=np.zeros((most, max_stages), dtype=np.int64),
        first=np.zeros((most, max_stages), dtype=np.int64),
        wanted=wanted,
    )


@inlined
def _covered(points: Any, vector: Any) -> bool:
    """Whether a point is nowhere worse than ``vector``."""
    found = False
    for p in range(points.kept[0]):
        worse = False
        for k in range(NUM_VALUES):
            if points.wanted[k] * (points.values[p, k] - vector[k]) > abs(vector[k]) * (SLACK - 1):
                worse = True
                break
        if not worse:
            found = True
            break
    return found


@compiled
def add_point(points: Any, vector: Any, family: int, n: int, classes: Any, first: Any) -> bool:
    """Put a pipeline into the set unless it is covered, and take out what it covers; False where there is no room."""
    if _covered(points, vector):
        return True
    left = 0
    for p in range(points.kept[0]):
        better = False
        for k in range(NUM_VALUES):
            if points.wanted[k] * (vector[k] - points.values[p, k]) > abs(points.values[p, k]) * (SLACK - 1):
                better = True
                break
        if better:
            points.values[left] = points.values[p]
            points.family[left] = points.family[p]
            points.length[left] = points.length[p]
            points.classes[left] = points.classes[p]
            points.first[left] = points.first[p]
            left += 1
    points.kept[0] = left
    if left == len(points.length):
        return False
    points.values[left] = vector
    points.family[left] = family
    points.length[left] = n
    points.classes[left, :n] = classes[:n]
    points.first[left, :n] = first[:n]
    points.kept[0] = left + 1
    return True


@compiled
def frontier(numbers: Any, weights: Any, total: Any, points: Any, family: int, budget: int) -> Any:  # noqa: PLR0912, PLR0915
    """Add to ``points`` all pipelines of one family that none covers, until ``budget`` pipelines are timed.

    ``total`` is the table of the fill in front (:func:`ignite_scheduler.planner.tables.front_tables`).

    Returns
    -------
    pipelines timed, whether the search is complete
    """
    num_classes = len(numbers.counts)
    size = numbers.max_stages + 2
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = room.classes, room.first
    m = numbers.num_microbatches
    used = np.zeros(size, np.int64)
    exact, fills, prices, idles = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    extras, crossing, lefts = np.zeros(size), np.zeros(size), np.ones(size)
    at_class, at_first = np.zeros(size, np.int64), np.full(size, -2)
    least_price, least_idle = weights.price.min(), weights.idle.min()
    vector = np.zeros(NUM_VALUES)
    timed = 0
    n = 0
    while n >= 0:
        e = at_class[n]
        if e == num_classes or n == numbers.max_stages:
            n -= 1
            continue
        j = numbers.num_layers if n == 0 else first[n - 1]
        i = at_first[n]
        if i == -2:
            i = j - 1
            taken = (used[n] // numbers.strides[e]) % (numbers.counts[e] + 1) == numbers.counts[e]
            if n > 0 and not taken:
                d = classes[n - 1]
                taken = numbers.latency[e, d] == np.inf or numbers.latency[d, e] == np.inf
                if not taken:
                    set_link(numbers, room, n - 1, e, d, crossing[n - 1])
            if taken:
                i = -1
        if i < 0 or i < numbers.first_fit[e, n + 1, j]:
            at_class[n] += 1
            at_first[n] = -2
            continue
        at_first[n] = i - 1
        if not numbers.may_cut[i]:
            continue
        front = total[used[n] + numbers.strides[e], e, i]
        if front == np.inf:
            continue
        set_stage(numbers, room, n, e, i, j)
        f, b = room.forward[n, 0], room.backward[n, 0]
        busy = (m - 1) * (f + b) + room.forward[n, 1] + room.backward[n, 1]
        fill = f + room.backward[n, 1]
        if n > 0:
            fill += room.link_forward[n - 1, 0] + room.link_backward[n - 1, 1]
        behind = fills[n] + fill
        pace = pace_of(m, n + 1, numbers.even, numbers.shrinking, numbers.gpipe, f, b, room.forward[n, 1])
        step = front + max(busy, fill + exact[n], behind + pace)
        price = prices[n] + weights.price[e]
        idle = idles[n] + weights.idle[e]
        extra = extras[n] + weights.extra[e] * busy
        left = min(lefts[n], room_left(numbers, weights, n, e, i, j))
        more = 1 if i > 0 else 0
        vector[TIME], vector[MONEY] = step, (price + more * least_price) * step
        vector[ENERGY] = (idle + more * least_idle) * step + extra + weights.extra_front[i]
        vector[DEVICES], vector[HEADROOM] = n + 1 + more, -left
        if _covered(points, vector):
            continue
        timed += 1
        step = suffix_step(numbers, room, n + 1, False)
        if i == 0:
            end = step_end(numbers, room, n + 1)
            for q in range(n + 1):
                extra += weights.extra[classes[q]] * (room.ready[q] - room.free[q])
            vector[TIME], vector[MONEY], vector[ENERGY] = end, price * end, idle * end + extra
            if end < np.inf and not add_point(points, vector, family, n + 1, classes, first):
                return timed, False
            continue
        if timed >= budget:
            break
        vector[TIME], vector[MONEY] = step + front, (price + least_price) * (step + front)
        vector[ENERGY] = (idle + least_idle) * (step + front) + extra + weights.extra_front[i]
        if _covered(points, vector):
            continue
        crossing[n] = crossing_bytes(numbers, first, n + 1, i)
        used[n + 1] = used[n] + numbers.strides[e]
        exact[n + 1], fills[n + 1], extras[n + 1] = step, behind, extra
        prices[n + 1], idles[n + 1], lefts[n + 1] = price, idle, left
        n += 1
        at_class[n] = 0
        at_first[n] = -2
    return timed, n < 0
