"""A Pareto set for problems that are too large for the exact one: several populations and a shared archive.

The method follows the multi-population search for the multi-objective knapsack problem that decomposes by weight
vectors. Every *island* has a weight vector over the objectives of its own and turns points into one number by it, as a
weighted sum or as a Tchebycheff distance from the best values met, max_k w_k·(f_k − z_k) ÷ span_k (which also reaches
points that no weighted sum prefers). It breeds children from its own members and from the archive, repairs them by
density (:mod:`.genes`), improves some by local search on its number (:mod:`.descent`), and lets a child in where it
beats the worst member. Every permitted pipeline is offered to the *archive* that all share, which keeps one point of
each box of near-equal values (epsilon-dominance). From time to time each island takes in what the archive has best for
it. At the end every point of the archive is polished for the shortest step on its devices.

Nothing is proven. The work is counted in pipelines timed, and the random numbers come from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.climb import climb, shake
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.pareto.descent import Scale, descend, scalar_of
from ignite_scheduler.planner.pareto.exact import Chosen, Front
from ignite_scheduler.planner.pareto.front import Archive, nondominated
from ignite_scheduler.planner.pareto.genes import Genes, Ground, changed, crossed, level, make_ground, repaired
from ignite_scheduler.planner.pareto.ladder import steps
from ignite_scheduler.planner.pareto.multisets import restricted, used
from ignite_scheduler.planner.pareto.objectives import CRITERIA, Criterion
from ignite_scheduler.planner.pareto.weights import NUM_VALUES, TIME, weigh, weighed
from ignite_scheduler.planner.setup import Setup, quick_figures
from ignite_scheduler.planner.solve import Choice, first_plan
from ignite_scheduler.planner.tree import WORK_ACTIONS

FAMILIES: Final = 6
"""Schedules and microbatch sizes that are bred from: those whose guess is best on all devices."""

MEMBERS: Final = 12
"""Pipelines of an island."""

SHARES: Final = 3
"""Weights are multiples of 1 ÷ this: 10 islands for three objectives."""

LEAST_WEIGHT: Final = 0.01
"""Every objective counts a little on every island: of equal points the better one wins."""

BOX: Final = 0.0005
"""Width of a box of the archive, as a share of a value."""

SWEEP: Final = 6
"""Caps from which the planner's first plans are made, and the work of each such plan."""
FOUNDER_WORK: Final = 200

EXCHANGE: Final = 20
"""Rounds of breeding between two exchanges."""

LOCAL: Final = 0.25
"""Share of the children that local search improves, and the pipelines timed in each at most."""
LOCAL_WORK: Final = 150

POLISH: Final = 0.3
"""Share of the budget that is left for the last step."""

CLIMB_WORK: Final = 400
"""Work on each point of the archive at an exchange, at most."""

SHAKES: Final = 1_000
"""Disturbances of each point of the archive in the last step, at most."""


class Member(NamedTuple):
    """A permitted pipeline with its values (see :mod:`.weights`)."""

    genes: Genes
    values: Floats


@dataclass(slots=True)
class Island:
    """One population and what it strives for."""

    weight: Floats
    worst: bool
    members: list[Member] = field(default_factory=list)


@dataclass(slots=True)
class Sea:
    """All that the islands share."""

    setup: Setup
    criteria: tuple[Criterion, ...]
    grounds: tuple[Ground, ...]
    source: np.random.Generator
    archive: Archive[Member]
    work: int = 0

    def weigh(self, genes: Genes) -> Member | None:
        """The pipeline with its values, offered to the archive; None where it is not permitted."""
        ground = self.grounds[genes.family]
        classes, first = _buffers(ground, genes)
        values = np.zeros(NUM_VALUES)
        n = len(genes.classes)
        self.work += self.cost(ground, n)
        if not weigh(ground.numbers, ground.weights, ground.room, n, classes, first, values):
            return None
        return self.keep(Member(genes, values))

    def keep(self, member: Member) -> Member:
        """Offer a pipeline to the archive."""
        wanted = tuple(float(member.values[CRITERIA.index(name)]) for name in self.criteria)
        self.archive.offer(wanted, member)
        return member

    def cost(self, ground: Ground, stages: int) -> int:
        """Work of timing one pipeline."""
        return 1 + 2 * stages * int(ground.numbers.num_microbatches) // WORK_ACTIONS

    def improve(self, member: Member, scale: Scale, budget: int, *, swap: bool) -> Member:
        """The pipeline after local search on one number."""
        ground = self.grounds[member.genes.family]
        classes, first = _buffers(ground, member.genes)
        values, n = member.values.copy(), len(member.genes.classes)
        cost = self.cost(ground, n)
        numbers, weights, room = ground.numbers, ground.weights, ground.room
        timed = descend(numbers, weights, room, scale, n, classes, first, values, max(1, budget // cost), swap)
        self.work += int(timed) * cost
        genes = Genes(tuple(classes[:n].tolist()), tuple(first[:n].tolist()), member.genes.family)
        return self.keep(Member(genes, values))

    def scale(self, island: Island) -> Scale:
        """The island's number in the units of what has been met."""
        rows = np.array([member.values for member in self.archive.held])
        ideal = rows.min(axis=0)
        span = rows.max(axis=0) - ideal
        return Scale(island.worst, island.weight, ideal, np.where(span > 0, span, 1.0))


def islands_front(
    setup: Setup, criteria: Sequence[Criterion], budget: int, source: np.random.Generator, seeds: Sequence[Chosen] = ()
) -> Front:
    """Good pipelines of which none beats another; ``setup`` has time as its objective.

    ``seeds`` are permitted pipelines to begin with, beside those that are made here.
    """
    sea = _sea(setup, criteria, source, seeds)
    isles = [Island(weight, place % 2 == 1) for place, weight in enumerate(_weights(criteria))]
    for genes in chain(_founders(sea, setup), _settlers(sea, setup, budget // 4)):
        sea.weigh(genes)
    if not sea.archive.held:
        return Front((), False, sea.work)
    scales = _exchange(sea, isles)
    rounds = 0
    climbed: set[Genes] = set()
    while sea.work < budget * (1 - POLISH):
        for isle, scale in zip(isles, scales, strict=True):
            _breed(sea, isle, scale)
        rounds += 1
        if rounds % EXCHANGE == 0:
            _polish(sea, climbed, 0, CLIMB_WORK)
            scales = _exchange(sea, isles)
    shaken: set[Genes] = set()
    while sea.work < budget:
        held = len(sea.archive.held)
        _polish(sea, shaken, SHAKES, (budget - sea.work) // held)
        if shaken.issuperset(member.genes for member in sea.archive.held):
            break
    return Front(tuple(_chosen(sea)), False, sea.work)


def _sea(setup: Setup, criteria: Sequence[Criterion], source: np.random.Generator, seeds: Sequence[Chosen]) -> Sea:
    guesses = []
    for family in setup.families:
        arrays = setup.arrays(family)
        guesses.append((quick_figures(setup, arrays, family)[1], family, arrays))
    guesses.sort(key=lambda entry: entry[:2])
    taken = {chosen.family for chosen in seeds}
    picked = [entry for place, entry in enumerate(guesses) if place < FAMILIES or entry[1] in taken]
    grounds = tuple(make_ground(*weighed(setup, family, arrays), family) for _, family, arrays in picked)
    whole = [name == "devices" for name in criteria]
    sea = Sea(setup, tuple(criteria), grounds, source, Archive(BOX, whole))
    place_of = {ground.family: place for place, ground in enumerate(grounds)}
    for choice, family in seeds:
        sea.weigh(Genes(choice.classes, choice.first, place_of[family]))
    return sea


def _weights(criteria: Sequence[Criterion]) -> Iterator[Floats]:
    """Weight vectors spread evenly, the whole of each objective first."""
    shares = [parts for parts in product(range(SHARES + 1), repeat=len(criteria)) if sum(parts) == SHARES]
    for parts in sorted(shares, key=lambda parts: (-max(parts), parts)):
        weight = np.zeros(NUM_VALUES)
        for name, part in zip(criteria, parts, strict=True):
            weight[CRITERIA.index(name)] = max(part / SHARES, LEAST_WEIGHT)
        yield weight


def _founders(sea: Sea, setup: Setup) -> Iterator[Genes]:
    """The planner's own first plans on up to so many devices and without each class, where multisets can be listed.

    They know exactly what fits, which matters where memory leaves few pipelines.
    """
    if setup.classes.wide:
        return
    held = setup.classes.counts_of()
    sizes = held.sum(axis=1)
    parts = [sizes <= stages for stages in steps(setup.permit.max_stages)]
    parts += [held[:, c] == 0 for c in range(held.shape[1])]
    for place, ground in enumerate(sea.grounds):
        for part in parts:
            allowed = setup.permit.allowed & part
            if allowed.any():
                choice, _ = first_plan(ground.numbers._replace(allowed=allowed), sweep=SWEEP)
                sea.work += FOUNDER_WORK
                if choice.classes:
                    yield Genes(choice.classes, choice.first, place)


def _settlers(sea: Sea, setup: Setup, budget: int) -> Iterator[Genes]:
    """Level pipelines over the first so many devices of several orders, fewest first, as far as the budget goes.

    The orders are by speed, by what a device does for its price and for its power, by memory, and by node, each with
    the slowest or the fastest device at the end of the pipeline.
    """
    for stages in steps(min(setup.permit.max_stages, int(setup.classes.counts.sum()))):
        for place, ground in enumerate(sea.grounds):
            for sequence in _sequences(setup, ground, stages):
                if sea.work >= budget:
                    return
                first = level(ground.numbers, ground.busy, sequence)
                sea.work += 1
                if first is not None:
                    yield Genes(sequence, first, place)


def _sequences(setup: Setup, ground: Ground, stages: int) -> list[tuple[int, ...]]:
    """Orders of ``stages`` devices, by class from the end of the pipeline."""
    numbers, weights, devices = ground.numbers, ground.weights, setup.classes.devices
    reach = ground.reach
    every = [c for c, count in enumerate(numbers.counts) for _ in range(count)]
    power = weights.idle + weights.extra
    keys = [
        [(-reach[c], devices[c].node, c) for c in range(len(devices))],
        [(weights.price[c] / reach[c], devices[c].node, c) for c in range(len(devices))],
        [(power[c] / reach[c], devices[c].node, c) for c in range(len(devices))],
        [(-weights.memory[c], devices[c].node, c) for c in range(len(devices))],
        [(devices[c].node, -reach[c], c) for c in range(len(devices))],
    ]
    found: dict[tuple[int, ...], None] = {}
    for key in keys:
        taken = sorted(every, key=key.__getitem__)[:stages]
        for order in (key, keys[0]):
            line = tuple(sorted(taken, key=order.__getitem__))
            found.setdefault(line)
            found.setdefault(line[::-1])
    for c, count in enumerate(numbers.counts):
        if count >= stages:
            found.setdefault((c,) * stages)
    return list(found)


def _exchange(sea: Sea, isles: list[Island]) -> list[Scale]:
    """Let every island take in what the archive has best for it; the islands' numbers in new units."""
    scales = []
    for isle in isles:
        scale = sea.scale(isle)
        scales.append(scale)
        known = {member.genes: member for member in (*isle.members, *sea.archive.held)}
        ranked = sorted(known.values(), key=lambda member: (scalar_of(scale, member.values), member.genes))
        isle.members = ranked[:MEMBERS]
    return scales


def _breed(sea: Sea, isle: Island, scale: Scale) -> None:
    """One child of the island, let in if it is better than the worst member and new."""
    source = sea.source
    one = isle.members[int(source.integers(len(isle.members)))]
    pool = isle.members if source.random() < 0.5 else sea.archive.held
    other = pool[int(source.integers(len(pool)))]
    genes = one.genes
    if source.random() < 0.6:
        genes = crossed(genes, other.genes, int(source.integers(1, len(genes.classes) + 1)))
    for _ in range(int(source.integers(1, 3))):
        genes = changed(sea.grounds[genes.family], genes, len(sea.grounds), source)
    ground = sea.grounds[genes.family]
    money = isle.weight[CRITERIA.index("money")] > isle.weight[CRITERIA.index("devices")]
    unit = ground.weights.price if money else np.ones(len(ground.weights.price))
    found = repaired(ground, genes, unit)
    child = None if found is None else sea.weigh(found)
    if child is None:
        sea.work += 1
        return
    if source.random() < LOCAL:
        child = sea.improve(child, scale, LOCAL_WORK, swap=True)
    values = [scalar_of(scale, member.values) for member in isle.members]
    if any(child.genes == member.genes for member in isle.members):
        return
    worst = int(np.argmax(values))
    if len(isle.members) < MEMBERS:
        isle.members.append(child)
    elif scalar_of(scale, child.values) < values[worst]:
        isle.members[worst] = child


def _polish(sea: Sea, done: set[Genes], rounds: int, budget: int) -> None:
    """Shorten the step of the points of the archive on their own devices, by the planner's local search.

    Those in ``done`` are left alone; ``rounds`` of disturbances follow the plain search, within ``budget`` for each.
    """
    for member in sorted(sea.archive.held, key=lambda member: member.genes):
        if member.genes in done:
            continue
        done.add(member.genes)
        ground = sea.grounds[member.genes.family]
        counts = [member.genes.classes.count(c) for c in range(len(ground.numbers.counts))]
        order = used(counts)
        own = restricted(ground.numbers, counts, listed=False)
        classes, first = _buffers(ground, member.genes)
        n, value = len(member.genes.classes), float(member.values[TIME])
        classes[:n] = [order.index(c) for c in member.genes.classes]
        cost = sea.cost(ground, n)
        n, value, timed = climb(own, ground.room, n, classes, first, value, max(1, budget // cost))
        sea.work += int(timed) * cost
        if rounds:
            n, value, timed = shake(own, ground.room, n, classes, first, value, rounds, max(1, budget // cost))
            sea.work += int(timed) * cost
        found = Genes(tuple(order[c] for c in classes[:n]), tuple(first[:n].tolist()), member.genes.family)
        if found != member.genes:
            sea.weigh(found)
            done.add(found)


def _chosen(sea: Sea) -> Iterator[Chosen]:
    values, held = sea.archive.values, sea.archive.held
    for place in nondominated(values):
        genes = held[place].genes
        yield Chosen(Choice(float(held[place].values[0]), genes.classes, genes.first), sea.grounds[genes.family].family)


def _buffers(ground: Ground, genes: Genes) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    size = int(ground.numbers.max_stages) + 2
    classes, first = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    n = len(genes.classes)
    classes[:n], first[:n] = genes.classes, genes.first
    return classes, first
