"""The exact Pareto set of straight pipelines.

What is exact, and why
----------------------
*Time, money, devices* (any of them). On a fixed multiset of devices money is its price times the step and the number of
devices is given, so that of its plans only the fastest can be in the set. The set is therefore that of the fastest
plans of all multisets, and each is an epsilon-constraint problem: the least step on these devices, subject to being
better than every point found so far in money or in devices; on one multiset each such constraint is a limit on the
step. It is solved by the planner's own branch and bound, which ends at once where the quick bound is over the limit.

*With energy or headroom* that argument fails: on the same devices a slower plan may put layers where they take fewer
joules, or leave more memory. Then all multisets are searched at once by branch and bound over vectors of objectives
(:mod:`.tree`).

Both are complete unless the budget of work ends them; then the set is made of good points, without proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.kernel import Numbers
from ignite_scheduler.planner.pareto.front import covers, nondominated
from ignite_scheduler.planner.pareto.multisets import Counts, by_size, in_whole, price_of, restricted, used
from ignite_scheduler.planner.pareto.objectives import CRITERIA, Criterion
from ignite_scheduler.planner.pareto.tree import frontier, make_points
from ignite_scheduler.planner.pareto.weights import weighed
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup, quick_bound
from ignite_scheduler.planner.solve import SHORT_WORK, SLACK, SLACK_WORK, UNKNOWN, Choice, first_plan, improve
from ignite_scheduler.planner.tables import front_tables
from ignite_scheduler.planner.tree import TIE

MOST_POINTS: Final = 4096
"""Points that a set over vectors may hold."""

SWEEP: Final = 6
"""Caps from which first plans of a multiset are made."""

LEAST_WORK: Final = 2_000
"""Pipelines timed for each multiset and family, whatever is left of the budget."""


class Chosen(NamedTuple):
    """A pipeline in class terms."""

    choice: Choice
    family: Family


class Front(NamedTuple):
    """A set of pipelines, whether it is proven to be the whole one, and the work spent."""

    chosen: tuple[Chosen, ...]
    complete: bool
    work: int


def exact_front(setup: Setup, criteria: Sequence[Criterion], budget: int, *, vectors: bool = False) -> Front:
    """The Pareto set of ``setup``'s problem, which has time as its objective and multisets that can be listed.

    ``vectors`` asks for the search over vectors even where the other would do.
    """
    if set(criteria) <= {"time", "money", "devices"} and not vectors:
        return _by_multiset(setup, criteria, budget)
    return _by_vectors(setup, criteria, budget)


class _Fastest:
    """Points found so far in the terms of one multiset: seconds that a plan on it must stay below."""

    def __init__(self, setup: Setup, criteria: Sequence[Criterion]) -> None:
        self.setup, self.criteria = setup, criteria
        self.values: list[tuple[float, ...]] = []
        self.held: list[Chosen] = []

    def values_of(self, step: float, counts: Counts) -> tuple[float, ...]:
        money = price_of(self.setup.classes, counts) * step
        every = {"time": step, "money": money, "devices": float(sum(counts))}
        return tuple(every[name] for name in self.criteria)

    def limit(self, counts: Counts) -> float:
        """Seconds from which on a plan on ``counts`` is covered by a point."""
        price, size = price_of(self.setup.classes, counts), sum(counts)
        least = math.inf
        for values in self.values:
            point = dict(zip(self.criteria, values, strict=True))
            if point.get("devices", 0.0) > size:
                continue
            seconds = point.get("time", 0.0)
            money = point.get("money", 0.0)
            if money > 0:
                seconds = max(seconds, money / price if price > 0 else math.inf)
            least = min(least, seconds)
        return least

    def add(self, chosen: Chosen, counts: Counts) -> None:
        values = self.values_of(chosen.choice.value, counts)
        if any(covers(other, values) for other in self.values):
            return
        keep = [not covers(values, other) for other in self.values]
        self.values = [other for other, stays in zip(self.values, keep, strict=True) if stays] + [values]
        self.held = [other for other, stays in zip(self.held, keep, strict=True) if stays] + [chosen]


def _by_multiset(setup: Setup, criteria: Sequence[Criterion], budget: int) -> Front:
    """The fastest plan of every multiset on which it is not covered by others."""
    arrays = {family: setup.arrays(family) for family in setup.families}
    made: dict[Family, Numbers] = {}

    def numbers_of(family: Family) -> Numbers:
        if family not in made:
            made[family] = setup.numbers(family, arrays[family])
        return made[family]

    found = _Fastest(setup, criteria)
    multisets = by_size(setup.classes.counts_of(), setup.permit.allowed)
    bounds = []
    for counts in multisets:
        row = np.array(counts, dtype=np.int64)
        bounds.append(sorted((quick_bound(setup, arrays[family], family, row), family) for family in setup.families))
    for counts, entries in zip(multisets, bounds, strict=True):  # good points first: they end most searches
        _first(found, numbers_of, counts, entries[0])
    complete, work = True, 0
    for place, (counts, entries) in enumerate(zip(multisets, bounds, strict=True)):
        order = used(counts)
        for bound, family in entries:
            limit = found.limit(counts)
            if bound >= limit - TIE:
                break
            share = max(LEAST_WORK, (budget - work) // (len(multisets) - place))
            choice, spent, done = below(restricted(numbers_of(family), counts), limit, share)
            work += spent
            complete &= done
            if choice.classes:
                found.add(Chosen(in_whole(choice, order), family), counts)
    return Front(tuple(_sorted(found)), complete, work)


def below(numbers: Numbers, limit: float, budget: int) -> tuple[Choice, int, bool]:
    """The best plan whose value is below ``limit``, the work spent, and whether that is proven.

    No stages where none was found. A plain search first, which suffices for most; then one that drops near-equal
    suffixes and looks for a good plan, and one that remembers suffixes and proves it.
    """
    found, spent, done = improve(numbers, Choice(limit, (), ()), limit, min(budget, SHORT_WORK), remember=False)
    if done or spent >= budget:
        return found, spent, done
    found, more, _ = improve(numbers, found, found.value, min((budget - spent) // 10, SLACK_WORK), slack=SLACK)
    spent += more
    found, more, done = improve(numbers, found, found.value, budget - spent)
    return found, spent + more, done


def _first(
    found: _Fastest, numbers_of: Callable[[Family], Numbers], counts: Counts, entry: tuple[float, Family]
) -> None:
    bound, family = entry
    if bound >= found.limit(counts) - TIE:
        return
    choice, _ = first_plan(restricted(numbers_of(family), counts), sweep=SWEEP)
    if choice.classes:
        found.add(Chosen(in_whole(choice, used(counts)), family), counts)


def _sorted(found: _Fastest) -> list[Chosen]:
    return [found.held[place] for place in nondominated(found.values)]


def _by_vectors(setup: Setup, criteria: Sequence[Criterion], budget: int) -> Front:
    """All pipelines that none covers, by one search a family over all multisets."""
    wanted = np.array([1.0 if name in criteria else 0.0 for name in CRITERIA])
    points = make_points(wanted, MOST_POINTS, setup.permit.max_stages)
    arrays = {family: setup.arrays(family) for family in setup.families}
    order = sorted(setup.families, key=lambda family: (quick_bound(setup, arrays[family], family), family))
    complete, work = True, 0
    for turn, family in enumerate(order):
        numbers, weights = weighed(setup, family, arrays[family])
        _, total = front_tables(numbers, UNKNOWN, 0.0, np.inf, np.inf)
        share = max(LEAST_WORK, (budget - work) // (len(order) - turn))
        spent, done = frontier(numbers, weights, total, points, turn, share)
        work += int(spent)
        complete &= bool(done)
    chosen = []
    for p in range(int(points.kept[0])):
        n = int(points.length[p])
        classes = tuple(int(c) for c in points.classes[p, :n])
        first = tuple(int(i) for i in points.first[p, :n])
        chosen.append(Chosen(Choice(float(points.values[p, 0]), classes, first), order[points.family[p]]))
    return Front(tuple(sorted(chosen)), complete, work)
