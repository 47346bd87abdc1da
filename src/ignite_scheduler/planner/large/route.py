"""The cheapest chain of priced stages over the layers: a shortest path, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.large.hops import MOST_RUN


@compiled
def cheapest(  # noqa: PLR0912
    offers: Any, options: Any, prices: Any, low: float, behind: float, credit: float, usage: Any, sums: Any, path: Any
) -> float:
    """The least cost of a chain of which one stage is marked, and counted as if it took ``low`` seconds at least.

    A stage costs its seconds, those of the link in front of it, and the prices of its devices. Behind the marked stage
    seconds count ``behind`` times, and ``credit`` goes off each stage.

    Parameters
    ----------
    usage
        [kind]: takes the devices of the cheapest chain, fractions of them in groups.
    sums
        Takes the seconds behind the marked stage, links included, the number of stages there, and of all stages.
    path
        [stage, 2]: takes the first layer and the option of each stage of that chain, from the last one on.

    Notes
    -----
    What the path so far comes to is its layers, whether the marked stage is among them, the class of its last stage,
    and for how many stages links have been near. O(layers² · (options + classes · longest near run)).
    """
    size, classes, longest = offers.single.shape[1] - 1, len(prices) + 1, _longest_run(offers.hops.runs)
    least = np.full((2, size + 1, classes, longest), np.inf)
    link = np.zeros(least.shape)
    origin = np.zeros((2, size + 1, classes, longest, 5), np.int64)
    cheap = prices.min()
    entry = np.full((3, classes, longest), np.inf)
    entry_link = np.zeros((3, classes, longest))
    entry_from = np.zeros((3, classes, longest, 2), np.int64)
    cost, chosen = np.zeros((3, classes)), np.zeros((3, classes), np.int64)
    for i in range(size):
        for case in range(3):
            factor = behind if case == 2 else 1.0
            _enter(offers.hops, least[case // 2, i], i, factor, entry[case], entry_link[case], entry_from[case])
        if i == 0:
            entry[:2, :, 0] = 0.0
        if entry.min() == np.inf:
            continue
        for j in range(i + 1, options.stop[i] + 1):
            if options.start[i, j] == options.start[i, j + 1]:
                continue
            _best_options(
                options, prices, cheap, options.start[i, j], options.start[i, j + 1], behind, low, cost, chosen
            )
            for case in range(3):
                mark = min(case, 1)
                off = credit if case == 2 else 0.0
                for c in range(classes):
                    if cost[case, c] == np.inf:
                        continue
                    for r in range(longest):
                        value = entry[case, c, r] + cost[case, c] - off
                        if value < least[mark, j, c, r]:
                            least[mark, j, c, r], link[mark, j, c, r] = value, entry_link[case, c, r]
                            came = origin[mark, j, c, r]
                            came[0], came[1], came[2] = i, case, chosen[case, c]
                            came[3], came[4] = entry_from[case, c, r, 0], entry_from[case, c, r, 1]
    usage[:] = 0.0
    sums[:] = 0.0
    best, c, r = np.inf, 0, 0
    for a in range(classes):
        for q in range(longest):
            if least[1, size, a, q] < best:
                best, c, r = least[1, size, a, q], a, q
    mark, j = 1, size
    while best < np.inf and j > 0:
        i, case, o, before, place = origin[mark, j, c, r]
        busy = _count(options, prices, cheap, o, behind if case == 2 else 1.0, low if case == 1 else 0.0, usage)
        path[int(sums[2]), 0], path[int(sums[2]), 1] = i, o
        sums[2] += 1
        if case == 2:
            sums[0] += busy + link[mark, j, c, r]
            sums[1] += 1
        mark = 1 if case == 2 else 0
        j, c, r = i, before, place
    return float(best)


@compiled
def _longest_run(runs: Any) -> int:
    """Lengths of near runs to tell apart; longer ones may go on."""
    longest = 1
    for run in runs:
        if run <= MOST_RUN:
            longest = max(longest, run)
    return longest


@compiled
def _enter(hops: Any, least: Any, i: int, factor: float, entry: Any, seconds: Any, origin: Any) -> None:
    """Fill [class, near run] of the next stage: the least cost to begin it with its link, the link, and where from."""
    classes, longest = least.shape
    entry[:] = np.inf
    for a in range(classes):
        for r in range(longest):
            before = least[a, r]
            if before == np.inf:
                continue
            for c in range(classes):
                far = hops.far[c, i] if a == c else hops.between[i, a, c]
                if before + factor * far < entry[c, 0]:
                    entry[c, 0], seconds[c, 0] = before + factor * far, far
                    origin[c, 0, 0], origin[c, 0, 1] = a, r
            place = min(r + 1, longest - 1) if hops.runs[a] > longest else r + 1
            near = hops.near[a, i]
            if place < hops.runs[a] and before + factor * near < entry[a, place]:
                entry[a, place], seconds[a, place] = before + factor * near, near
                origin[a, place, 0], origin[a, place, 1] = a, r


@compiled
def _best_options(
    options: Any, prices: Any, cheap: float, begin: int, end: int, behind: float, low: float, cost: Any, chosen: Any
) -> None:
    """Fill [case, class] with the cheapest option: in front of the marked stage, marked, behind it."""
    cost[:] = np.inf
    groups = len(prices)
    for o in range(begin, end):
        c = options.kind[o] if options.size[o] == 1.0 else groups
        for case in range(3):
            factor = behind if case == 2 else 1.0
            marked = low if case == 1 else 0.0
            busy, price = options.low[o], prices[options.kind[o]] * options.needed[o]
            if options.high[o] > busy:
                busy = _busy(options, prices, cheap, o, factor, marked)
                price *= options.low[o] / busy
            value = factor * max(busy, marked) + max(price, options.size[o] * cheap)
            if value < cost[case, c]:
                cost[case, c], chosen[case, c] = value, o


@compiled
def _count(options: Any, prices: Any, cheap: float, o: int, factor: float, low: float, usage: Any) -> float:
    """Add an option's devices to ``usage``; its seconds."""
    busy = _busy(options, prices, cheap, o, factor, low)
    count = options.needed[o] * (options.low[o] / busy if busy > 0.0 else 1.0)
    if count * prices[options.kind[o]] >= options.size[o] * cheap:
        usage[options.kind[o]] += count
    else:
        usage[prices.argmin()] += options.size[o]
    return float(max(busy, low))


@compiled
def _busy(options: Any, prices: Any, cheap: float, o: int, factor: float, low: float) -> float:
    """Seconds of an option at which seconds and prices together are least."""
    busy = options.low[o]
    if options.high[o] > busy:
        price, floor = prices[options.kind[o]] * options.needed[o] * options.low[o], options.size[o] * cheap
        busy = options.high[o]
        if factor > 0.0:
            busy = min(busy, np.sqrt(price / factor))
            if floor > 0.0:
                busy = min(busy, price / floor)
        busy = min(options.high[o], max(options.low[o], busy, low))
    return float(busy)
