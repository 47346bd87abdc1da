"""All plans of one job that are worth offering to a scheduler of many jobs.

Theory of operation
-------------------
Devices are counted by class of interchangeable ones, since a scheduler takes devices from pools. A multiset of devices
is worth offering if its best plan is faster than the best plan on every part of it: then no other plan holds no more
devices of any class, costs no more an hour and is as fast. (Comparing only numbers of devices would leave a second job
nothing to run on when the fastest device is taken.)

Multisets are visited by their number of devices, and each is solved as a small problem of its own that only looks for
plans below what its parts already reach; most end at the tables' root. Both the number of multisets and the work on
each are bounded, by counts and never by seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.answers import no_plan, not_found
from ignite_scheduler.planner.build import build
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Ints, Numbers
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.setup import Setup, prepare, quick_bound, quick_figures
from ignite_scheduler.planner.solve import Choice, first_plan, improve
from ignite_scheduler.planner.tree import TIE

MAX_SETS: Final = 512
"""Multisets looked at, those with the fewest devices first."""

MAX_PLANS: Final = 64
"""Plans returned at most: the fastest, then those with the fewest devices."""

SET_WORK: Final = 2_000
"""Pipelines timed for each multiset and family."""

NEAR_FAMILIES: Final = 8
"""Schedules and microbatch sizes that are looked at; two or three are tried on each multiset."""

MIN_FAMILIES: Final = 2
"""Families tried on each multiset at least: both schedules where the job fixes the microbatch."""

FAMILY_SWEEP: Final = 6
"""Caps from which first plans are made here."""


class Offer(NamedTuple):
    """The best choice on one multiset of devices."""

    counts: tuple[int, ...]
    choice: Choice
    family: Family
    bound: float


def catalogue(problem: Problem) -> tuple[Plan, ...] | Infeasible:
    """Plans on different sets of devices, none of them dominated, the fastest first.

    A plan is left out if a plan on a part of its devices is as fast. Each is complete, on the devices of its classes
    with the smallest ids; its bound speaks of plans on exactly the same classes of devices. Reasons for unused
    devices and alternatives are left out.

    Raises
    ------
    InputError, NotFoundError
        As :func:`ignite_scheduler.planner.plan`.
    """
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return setup
    offers = _offers(setup)
    if not offers and setup.classes.wide:
        return not_found(setup.classes)
    if not offers:
        return no_plan(problem, setup.classes, setup.model, setup.permit, setup.families)
    offers.sort(key=lambda offer: (offer.choice.value, sum(offer.counts), offer.counts))
    kept = offers[:1] + sorted(offers[1:], key=lambda offer: sum(offer.counts))[: MAX_PLANS - 1]
    plans = [build(setup, offer.choice, offer.family, offer.bound) for offer in kept]
    return tuple(sorted(plans, key=lambda made: (made.predicted.step, len(made.device_ids), made.device_ids)))


class Tried(NamedTuple):
    """Families that are tried on every multiset, and all others."""

    families: tuple[tuple[Family, Numbers, Arrays], ...]
    rest: tuple[tuple[Family, Arrays], ...]


def _offers(setup: Setup) -> list[Offer]:
    tried = _families(setup)
    offers: list[Offer] = []
    for counts in _multisets(setup):
        parts = [offer for offer in offers if all(a <= b for a, b in zip(offer.counts, counts, strict=True))]
        to_beat = min((offer.choice.value for offer in parts), default=math.inf)
        offer = _solve_set(setup, tried, counts, to_beat)
        if offer is not None:
            offers.append(offer)
    return offers


def _families(setup: Setup) -> Tried:
    """The families that are best on all devices, on two and on one, by a first plan on each."""
    ranked = []
    for family in setup.families:
        arrays = setup.arrays(family)
        bound, guess = quick_figures(setup, arrays, family)
        ranked.append((guess, setup.as_value(bound), family, arrays))
    ranked.sort(key=lambda entry: entry[:3])
    if setup.classes.wide:
        return Tried(
            tuple((family, setup.numbers(family, arrays), arrays) for _, _, family, arrays in ranked[:2]),
            tuple((family, arrays) for _, _, family, arrays in ranked[2:]),
        )
    near = [(bound, family, setup.numbers(family, arrays)) for _, bound, family, arrays in ranked[:NEAR_FAMILIES]]
    chosen: dict[Family, Numbers] = {}
    for most in (setup.permit.max_stages, 2, 1):
        best, best_entry = math.inf, None
        for bound, family, numbers in near:
            allowed = setup.permit.allowed & (numbers.num_used <= most)
            if bound >= best or not allowed.any():
                continue
            choice, _ = first_plan(numbers._replace(allowed=allowed), sweep=FAMILY_SWEEP)
            if choice.value < best - TIE:
                best, best_entry = choice.value, (family, numbers)
        if best_entry is not None:
            chosen.setdefault(*best_entry)
    for _, family, numbers in near:
        if 0 < len(chosen) < MIN_FAMILIES:
            chosen.setdefault(family, numbers)
    if not chosen:  # memory may leave only families that looked slow
        for _, _, family, arrays in ranked[NEAR_FAMILIES:]:
            numbers = setup.numbers(family, arrays)
            if first_plan(numbers, sweep=1)[1] < math.inf:
                chosen[family] = numbers
                break
    rest = tuple((family, arrays) for _, _, family, arrays in ranked if family not in chosen)
    times = {family: arrays for _, _, family, arrays in ranked}
    return Tried(tuple((family, numbers, times[family]) for family, numbers in chosen.items()), rest)


def _multisets(setup: Setup) -> Iterator[tuple[int, ...]]:
    """Permitted counts by class, fewest devices first; on a large cluster only those of one class."""
    if setup.classes.wide:
        single = [
            tuple(count if k == c else 0 for k in range(len(setup.classes.counts)))
            for c, most in enumerate(setup.classes.counts)
            for count in range(1, int(most) + 1)
            if setup.permit.allowed[count]
        ]
        yield from sorted(single, key=sum)[:MAX_SETS]
        return
    counts = setup.classes.counts_of()[setup.permit.allowed]
    order = np.lexsort((*counts.T, counts.sum(axis=1)))
    for row in counts[order[:MAX_SETS]]:
        yield tuple(int(count) for count in row)


def _solve_set(setup: Setup, tried: Tried, counts: tuple[int, ...], to_beat: float) -> Offer | None:
    """The best plan on exactly these devices that is faster than ``to_beat``."""
    found: Offer | None = None
    least = math.inf
    for family, numbers, arrays in tried.families:
        small, classes = _restrict(numbers, counts)
        limit = to_beat if found is None else found.choice.value
        start = Choice(limit, (), ())
        if limit == math.inf:
            start, bound = first_plan(small, sweep=FAMILY_SWEEP)
            if bound == math.inf:
                continue
        choice, _, complete = improve(small, start, start.value, SET_WORK, remember=False)
        least = min(least, choice.value if complete else _bound(setup, family, arrays, counts))
        if choice.classes and choice.value < limit - TIE:
            found = Offer(counts, choice._replace(classes=tuple(classes[c] for c in choice.classes)), family, 0.0)
    if found is None:
        return None
    for family, arrays in tried.rest:
        least = min(least, _bound(setup, family, arrays, counts))
    return found._replace(bound=min(least, found.choice.value))


def _bound(setup: Setup, family: Family, arrays: Arrays, counts: tuple[int, ...]) -> float:
    return setup.as_value(quick_bound(setup, arrays, family, np.array(counts, dtype=np.int64)))


def _restrict(numbers: Numbers, counts: tuple[int, ...]) -> tuple[Numbers, tuple[int, ...]]:
    """The same family on exactly ``counts`` devices of each class, and the old number of each class that is left."""
    kept = np.array([c for c, count in enumerate(counts) if count > 0], dtype=np.int64)
    left = np.array([counts[c] for c in kept], dtype=np.int64)
    sizes = left + 1
    strides = np.concatenate(([1], np.cumprod(sizes[:-1]))).astype(np.int64)
    sets = np.arange(int(np.prod(sizes)))
    num_used: Ints = ((sets[:, None] // strides) % sizes).sum(axis=1)
    allowed = np.zeros(len(sets), dtype=np.bool_)
    allowed[-1] = True
    small = numbers._replace(
        max_stages=int(left.sum()),
        counts=left,
        strides=strides,
        member_rank=np.ascontiguousarray(numbers.member_rank[kept]),
        allowed=allowed,
        num_used=num_used,
        forward=np.ascontiguousarray(numbers.forward[kept]),
        backward=np.ascontiguousarray(numbers.backward[kept]),
        overhead=numbers.overhead[kept],
        update=np.ascontiguousarray(numbers.update[kept]),
        closing=numbers.closing[kept],
        latency=np.ascontiguousarray(numbers.latency[kept[:, None], kept]),
        per_byte=np.ascontiguousarray(numbers.per_byte[kept[:, None], kept]),
        first_fit=np.ascontiguousarray(numbers.first_fit[kept]),
        rate=numbers.rate[kept],
        extra=numbers.extra[kept],
        price=numbers.price[kept],
    )
    return small, tuple(int(c) for c in kept)
