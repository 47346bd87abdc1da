"""The cheapest chain of priced stages over the layers: a shortest path, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Ints


class Offers(NamedTuple):
    """What stages of one family take at least.

    Parameters
    ----------
    samples, num_microbatches
        Samples of a microbatch, and how many of them there are.
    single
        [kind, layer]: prefix sums of seconds of a whole microbatch on one device; ``single_over`` [kind] on top.
    few
        [kind, samples, layer]: prefix sums of seconds for few samples, from 0 up, overhead apart.
    rate
        [kind, layer]: prefix sums of the least seconds for one sample of a larger share; ``rate_over`` on top.
    over
        [kind]: seconds on top of every forward and backward.
    single_end, group_end
        [kind, layer]: behind the last layer of a stage that begins with this one and fits one device, as its only
        replica or as one of several.
    link
        [layer]: least seconds over the cut in front of the layer, there and back.
    weights
        [layer]: prefix sums of bytes to reduce.
    ring
        [replicas, 2]: least seconds a byte, and on top, of an all-reduce; infinite where no group is so large.
    least_size
        Least number of replicas in a group; ``straight``: whether stages of one device are permitted.
    forward
        (φ, δ): the forward of a stage takes at most φ times the seconds of a forward and a backward, and δ.
    """

    samples: int
    num_microbatches: int
    single: Floats
    single_over: Floats
    few: Floats
    rate: Floats
    rate_over: Floats
    over: Floats
    single_end: Ints
    group_end: Ints
    link: Floats
    weights: Floats
    ring: Floats
    least_size: int
    straight: bool
    forward: Floats


class Options(NamedTuple):
    """What a stage of layers i … j − 1 may be: entries ``start[i, j] … start[i, j + 1]``, up to j = ``stop[i]``.

    So many devices of ``kind`` as ``needed`` says take ``low`` seconds, and fewer in proportion up to ``high`` seconds;
    ``size`` devices it has at least.
    """

    start: Ints
    stop: Ints
    kind: Ints
    low: Floats
    high: Floats
    needed: Floats
    size: Floats


@compiled
def options_of(offers: Any, high: float, limit: float) -> Any:
    """All options with at most ``high`` seconds whose microbatches and all-reduce take no more than ``limit``.

    O(layers² · kinds · shares).
    """
    layers = offers.single.shape[1] - 1
    room = 1024
    start = np.zeros((layers, layers + 2), np.int64)
    stop = np.zeros(layers, np.int64)
    kind, size = np.zeros(room, np.int64), np.zeros(room)
    low, top, needed = np.zeros(room), np.zeros(room), np.zeros(room)
    out = np.zeros((4096, 5))
    count = 0
    for i in range(layers):
        for j in range(i + 1, layers + 1):
            start[i, j] = count
            found = _stage_options(offers, i, j, high, limit, out)
            if found < 0:
                break
            stop[i] = j
            while count + found > room:
                room *= 2
                kind, size = _longer(kind, room), _longer(size, room)
                low, top, needed = _longer(low, room), _longer(top, room), _longer(needed, room)
            for f in range(found):
                kind[count] = int(out[f, 0])
                low[count], top[count], needed[count], size[count] = out[f, 1], out[f, 2], out[f, 3], out[f, 4]
                count += 1
            start[i, j + 1] = count
    return Options(start, stop, kind[:count], low[:count], top[:count], needed[:count], size[:count])


@compiled
def _longer(values: Any, room: int) -> Any:
    longer = np.zeros(room, values.dtype)
    longer[: len(values)] = values
    return longer


@compiled
def _stage_options(offers: Any, i: int, j: int, high: float, limit: float, out: Any) -> int:  # noqa: PLR0912
    """Write (kind, least seconds, most seconds, devices for these, least devices) of each option; their number.

    −1 where no longer stage from layer i on is quick enough either.
    """
    found, hope = 0, False
    kinds = len(offers.over)
    full = offers.samples
    if offers.straight:
        for k in range(kinds):
            if j <= offers.single_end[k, i]:
                busy = offers.single[k, j] - offers.single[k, i] + offers.single_over[k]
                hope = hope or busy <= high
                if busy <= high and busy * offers.num_microbatches <= limit:
                    out[found] = np.array((float(k), busy, busy, 1.0, 1.0))
                    found += 1
    if len(offers.ring) <= 2:
        return found if hope else -1
    weights = offers.weights[j] - offers.weights[i]
    few = offers.few.shape[1] - 1
    for k in range(kinds):
        if j > offers.group_end[k, i]:
            continue
        share = 1
        while share <= full:
            if share <= few:
                ahead = share + 1
                least = offers.few[k, share, j] - offers.few[k, share, i] + offers.over[k]
                most = least
            else:
                ahead = share + max(1, share // 4)
                pace = offers.rate[k, j] - offers.rate[k, i] + offers.rate_over[k]
                least, most = share * pace, min(high, ahead * pace)
            if least > high:
                break
            hope = True
            size = offers.least_size
            if ahead <= full:
                size = max(size, _least_size(offers, i, j, _seconds(offers, k, ahead, i, j)))
            if size < len(offers.ring):
                ring = offers.ring[size, 0] * weights + offers.ring[size, 1]
                if least * offers.num_microbatches + ring <= limit:
                    out[found] = np.array((float(k), least, most, full / share, float(size)))
                    found += 1
            share = ahead
    return found if hope else -1


@compiled
def _seconds(offers: Any, k: int, share: int, i: int, j: int) -> float:
    """Least seconds of the layers for a share of at least so many samples."""
    if share < offers.few.shape[1]:
        return float(offers.few[k, share, j] - offers.few[k, share, i] + offers.over[k])
    return float(share * (offers.rate[k, j] - offers.rate[k, i] + offers.rate_over[k]))


@compiled
def _least_size(offers: Any, i: int, j: int, busy: float) -> int:
    """How many devices a group has at least that is done with a microbatch in less than so many seconds."""
    most = 1
    few = offers.few.shape[1] - 1
    for k in range(len(offers.over)):
        if j > offers.group_end[k, i]:
            continue
        pace = offers.rate[k, j] - offers.rate[k, i] + offers.rate_over[k]
        share = int(np.ceil(busy / max(pace, 1e-300) * (1 - 1e-12))) - 1
        if share <= few:
            share = 0
            while share < few and offers.few[k, share + 1, j] - offers.few[k, share + 1, i] + offers.over[k] < busy:
                share += 1
        most = max(most, min(share, offers.samples))
    return int((offers.samples + most - 1) // most)


@compiled
def cheapest(  # noqa: PLR0912, PLR0915
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
    """
    size = offers.single.shape[1] - 1
    least = np.full((2, size + 1), np.inf)
    origin = np.zeros((2, size + 1), np.int64)
    case_of = np.zeros((2, size + 1), np.int64)
    option_of = np.zeros((2, size + 1), np.int64)
    cheap_price, cheap_kind = np.inf, 0
    for k in range(len(prices)):
        if prices[k] < cheap_price:
            cheap_price, cheap_kind = prices[k], k
    least[0, 0] = 0.0
    for i in range(size):
        before, after = least[0, i], least[1, i]
        if before == np.inf and after == np.inf:
            continue
        for j in range(i + 1, options.stop[i] + 1):
            begin, end = options.start[i, j], options.start[i, j + 1]
            if begin == end:
                continue
            if before < np.inf:
                cost, option = _best_option(options, prices, cheap_price, begin, end, 1.0, 0.0)
                value = before + cost + offers.link[i]
                if value < least[0, j]:
                    least[0, j], origin[0, j], case_of[0, j], option_of[0, j] = value, i, 0, option
                if low > 0.0 and options.low[option] < low:
                    cost, option = _best_option(options, prices, cheap_price, begin, end, 1.0, low)
                    value = before + cost + offers.link[i]
                if value < least[1, j]:
                    least[1, j], origin[1, j], case_of[1, j], option_of[1, j] = value, i, 1, option
            if after < np.inf:
                cost, option = _best_option(options, prices, cheap_price, begin, end, behind, 0.0)
                value = after + cost + behind * offers.link[i] - credit
                if value < least[1, j]:
                    least[1, j], origin[1, j], case_of[1, j], option_of[1, j] = value, i, 2, option
    usage[:] = 0.0
    sums[:] = 0.0
    if least[1, size] == np.inf:
        return np.inf
    at, j = 1, size
    while j > 0:
        i, case, o = origin[at, j], case_of[at, j], option_of[at, j]
        factor = behind if case == 2 else 1.0
        marked = low if case == 1 else 0.0
        busy = _busy(options, prices, cheap_price, o, factor, marked)
        count = options.needed[o] * (options.low[o] / busy if busy > 0.0 else 1.0)
        busy = max(busy, marked)
        price = count * prices[options.kind[o]]
        if price >= options.size[o] * cheap_price:
            usage[options.kind[o]] += count
        else:
            usage[cheap_kind] += options.size[o]
        path[int(sums[2]), 0], path[int(sums[2]), 1] = i, o
        sums[2] += 1
        if case == 2:
            sums[0] += busy + offers.link[i]
            sums[1] += 1
        at = 1 if case == 2 else 0
        j = i
    return float(least[1, size])


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


@compiled
def _best_option(options: Any, prices: Any, cheap: float, begin: int, end: int, factor: float, low: float) -> Any:
    best, chosen = np.inf, begin
    for o in range(begin, end):
        busy, price = options.low[o], prices[options.kind[o]] * options.needed[o]
        if options.high[o] > busy:
            busy = _busy(options, prices, cheap, o, factor, low)
            price *= options.low[o] / busy
        cost = factor * max(busy, low) + max(price, options.size[o] * cheap)
        if cost < best:
            best, chosen = cost, o
    return best, chosen
