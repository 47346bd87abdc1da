"""What a stage may be at least: kinds, seconds, numbers of devices of every run of layers, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.hops import Hops


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
    hops
        Least seconds of the links between stages.
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
    hops: Hops
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
