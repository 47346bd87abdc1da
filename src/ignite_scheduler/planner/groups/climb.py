"""Local search over chains of groups on the exact step time: all moves of one kind are timed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from ignite_scheduler.planner.groups.choose import Choice
from ignite_scheduler.planner.groups.exact import Trial, values_of
from ignite_scheduler.planner.groups.field import Field
from ignite_scheduler.planner.kernel import Floats, Ints

LEAST_GAIN: Final = 1e-12
"""A move must gain more than rounding."""

SHIFTS: Final = (1, -1, 2, -2, 3, -3, 4, -4)
"""Layers by which a cut is shifted."""

Moved = tuple[tuple[int, ...], tuple[int, ...]]
"""Groups and first layers from the end."""


class Ground:
    """A family's field as local search needs it: times many chains at a time and counts them in ``spent``."""

    def __init__(self, field: Field, trial: Trial, strides: Ints) -> None:
        self.field, self.trial, self.spent = field, trial, 0
        self.usage: list[int] = field.usage.tolist()
        self.whole = len(field.held) - 1
        usable = (field.shares[:, 0, 0] > 0).tolist()
        self.group_at = {used: g for g, used in enumerate(self.usage) if usable[g]}
        self.movers = [sorted({int(strides[c]) for c in row if c >= 0}) for row in field.members]

    def parts(self, multiset: int) -> list[int]:
        """Groups within the multiset."""
        start, end = self.field.pair_start[multiset : multiset + 2]
        found: list[int] = self.field.pair_group[start:end].tolist()
        return found

    def values(self, moved: list[Moved]) -> Floats:
        """The objective of every chain; infinite where one is not permitted."""
        width = max(len(groups) for groups, _ in moved)
        lengths = np.array([len(groups) for groups, _ in moved], dtype=np.int64)
        groups = np.array([g + (0,) * (width - len(g)) for g, _ in moved], dtype=np.int64)
        first = np.array([f + (0,) * (width - len(f)) for _, f in moved], dtype=np.int64)
        values = np.empty(len(moved))
        lengths[lengths > self.field.max_stages] = 0
        values_of(self.field, self.trial, lengths, groups, first, values)
        self.spent += len(moved)
        return values

    def best(self, choice: Choice, moved: Iterable[Moved]) -> Choice:
        """The best of the choice and the moved chains, the first of equal ones."""
        listed = list(moved)
        if not listed:
            return choice
        values = self.values(listed)
        at = int(np.argmin(values))
        return Choice(float(values[at]), *listed[at]) if values[at] < choice.value - LEAST_GAIN else choice


def shifted_cuts(ground: Ground, choice: Choice) -> Iterator[Moved]:
    """A cut shifted by up to four layers, or several neighbouring ones by one."""
    first = choice.first
    for q in range(len(first) - 1):
        for p in range(q, len(first) - 1):
            for delta in SHIFTS[: 2 if p > q else None]:
                yield choice.groups, (*first[:q], *(cut + delta for cut in first[q : p + 1]), *first[p + 1 :])


def exchanged_groups(ground: Ground, choice: Choice) -> Iterator[Moved]:
    """The groups of two stages exchanged, or any other group on a stage."""
    groups = choice.groups
    for q in range(len(groups)):
        for p in range(q):
            yield (*groups[:p], groups[q], *groups[p + 1 : q], groups[p], *groups[q + 1 :]), choice.first
    unused = ground.whole - sum(ground.usage[g] for g in groups)
    for q, g in enumerate(groups):
        for other in ground.parts(unused + ground.usage[g]):
            yield (*groups[:q], other, *groups[q + 1 :]), choice.first


def moved_devices(ground: Ground, choice: Choice) -> Iterator[Moved]:
    """A device moved from a stage to another, or two of two stages exchanged."""
    groups, usage = choice.groups, ground.usage
    for q, giver in enumerate(groups):
        for p, taker in enumerate(groups):
            if p == q:
                continue
            for mover in ground.movers[giver]:
                for back in (0, *ground.movers[taker]) if q > p else (0,):
                    left = ground.group_at.get(usage[giver] - mover + back)
                    grown = ground.group_at.get(usage[taker] + mover - back)
                    if left is not None and grown is not None and left != giver:
                        changed = list(groups)
                        changed[q], changed[p] = left, grown
                        yield tuple(changed), choice.first


def merged_stages(ground: Ground, choice: Choice) -> Iterator[Moved]:
    """Two neighbouring stages on the devices of both, or of either."""
    groups, first = choice.groups, choice.first
    for q in range(len(groups) - 1):
        both = ground.group_at.get(ground.usage[groups[q]] + ground.usage[groups[q + 1]])
        for group in (both, groups[q], groups[q + 1]):
            if group is not None:
                yield (*groups[:q], group, *groups[q + 2 :]), (*first[:q], *first[q + 1 :])


def split_stages(ground: Ground, choice: Choice) -> Iterator[Moved]:
    """A stage cut in two: part of its devices beside the rest, or all beside devices that are not used."""
    groups, first = choice.groups, choice.first
    if len(groups) == ground.field.max_stages:
        return
    unused = ground.whole - sum(ground.usage[g] for g in groups)
    for q, g in enumerate(groups):
        end = first[q - 1] if q > 0 else ground.field.num_layers
        pairs = [
            (part, ground.group_at.get(ground.usage[g] - ground.usage[part])) for part in ground.parts(ground.usage[g])
        ]
        pairs += [(part, g) for part in ground.parts(unused)] + [(g, part) for part in ground.parts(unused)]
        for part, rest in pairs:
            if rest is None:
                continue
            for cut in range(first[q] + 1, end):
                yield (*groups[:q], part, rest, *groups[q + 1 :]), (*first[:q], cut, *first[q:])


MOVES: Final[tuple[Callable[[Ground, Choice], Iterator[Moved]], ...]] = (
    shifted_cuts,
    exchanged_groups,
    moved_devices,
    merged_stages,
    split_stages,
)


def climb(ground: Ground, choice: Choice, budget: int) -> Choice:
    """The chain improved until no single move helps, or about so many more are timed; cheap kinds of moves first."""
    until = ground.spent + budget
    kind = 0
    while kind < len(MOVES) and ground.spent < until:
        found = ground.best(choice, MOVES[kind](ground, choice))
        kind = 0 if found is not choice and kind > 0 else kind if found is not choice else kind + 1
        choice = found
    return choice


def shake(ground: Ground, choice: Choice, source: np.random.Generator, rounds: int, budget: int) -> Choice:
    """Local search again and again from disturbed copies of the best chain.

    Each round moves devices and shifts cuts at random, then climbs.
    """
    until = ground.spent + budget
    for _ in range(rounds):
        if ground.spent >= until:
            break
        disturbed = choice
        for moves in (moved_devices, exchanged_groups, split_stages, merged_stages, shifted_cuts, shifted_cuts):
            if source.random() < 0.5:
                continue
            listed = list(moves(ground, disturbed))
            if listed:
                disturbed = Choice(np.inf, *listed[int(source.integers(len(listed)))])
        (value,) = ground.values([(disturbed.groups, disturbed.first)])
        if value == np.inf:
            continue
        found = climb(ground, disturbed._replace(value=float(value)), until - ground.spent)
        if found.value < choice.value - LEAST_GAIN:
            choice = found
    return choice
