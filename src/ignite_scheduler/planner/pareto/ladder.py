"""Which multisets of devices are looked at where there are too many to look at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ignite_scheduler.planner.instance import Classes
from ignite_scheduler.planner.pareto.canonical import Look
from ignite_scheduler.planner.pareto.multisets import Counts, by_size
from ignite_scheduler.planner.setup import Setup


def steps(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … up to ``most``, which is the last: two to each doubling.

    >>> steps(10)
    [1, 2, 3, 4, 6, 8, 10]
    """
    found = {most}
    size = 1
    while size < most:
        found |= {size, min(most, size + size // 2)}
        size *= 2
    return sorted(found)


def multisets(setup: Setup, looks: Sequence[Look], most: int) -> list[Counts]:
    """At most ``most`` permitted multisets, fewest devices first.

    All of them where they can be listed and are few enough. Else those of a geometric ladder: one kind of devices, two
    kinds with as many or twice as many of one as of the other, and the fastest two, three, … kinds in equal shares of
    what there is; each taken from as few nodes as possible. The rest, up to ``most``, are the smallest ones.
    """
    classes = setup.classes
    if not classes.wide:
        every = by_size(classes.counts_of(), setup.permit.allowed)
        if len(every) <= most:
            return every
    kinds = _kinds(setup, looks)
    found = {counts for counts in _ladder(classes, kinds) if _permitted(setup, counts)}
    picked = sorted(found, key=lambda counts: (sum(counts), counts))
    picked = picked[: most - 1] + picked[max(0, most - 1) :][-1:]  # the largest is among them
    if not classes.wide:
        known = set(picked)
        picked += [counts for counts in every if counts not in known][: most - len(picked)]
    return sorted(picked, key=lambda counts: (sum(counts), counts))


def _kinds(setup: Setup, looks: Sequence[Look]) -> list[list[int]]:
    """Classes that differ by their links only, those with most devices first: usually the nodes that hold a kind.

    The fastest kind comes first.
    """
    classes = setup.classes
    arrays = setup.arrays(setup.families[0])
    seconds = arrays.forward[:, 0, -1] + arrays.backward[:, 0, -1]
    groups: dict[Look, list[int]] = {}
    for c, look in enumerate(looks):
        groups.setdefault(look, []).append(c)
    return [
        sorted(group, key=lambda c: (-int(classes.counts[c]), classes.devices[c].node, c))
        for _, group in sorted(groups.items(), key=lambda entry: (float(seconds[entry[1][0]]), entry[0]))
    ]


def _ladder(classes: Classes, kinds: Sequence[Sequence[int]]) -> Iterator[Counts]:
    size = len(classes.counts)
    totals = [sum(int(classes.counts[c]) for c in kind) for kind in kinds]
    for kind, total in zip(kinds, totals, strict=True):
        for count in steps(total):
            yield _taken(classes, size, [(kind, count)])
    for one, other in combinations(range(len(kinds)), 2):
        doublings = [2**k for k in range(max(totals[one], totals[other]).bit_length())]
        for count in doublings:
            for a, b in ((count, count), (2 * count, count), (count, 2 * count)):
                if a <= totals[one] and b <= totals[other]:
                    yield _taken(classes, size, [(kinds[one], a), (kinds[other], b)])
    for fastest in range(3, len(kinds) + 1):
        parts = max(totals[:fastest])
        for share in steps(parts):
            taken = [(kind, -(-total * share // parts)) for kind, total in zip(kinds, totals, strict=True)]
            yield _taken(classes, size, taken[:fastest])
    for one, other in combinations(range(len(kinds)), 2):
        yield _taken(classes, size, [(kinds[one], totals[one]), (kinds[other], totals[other])])


def _taken(classes: Classes, size: int, wanted: Sequence[tuple[Sequence[int], int]]) -> Counts:
    """So many devices of each kind, node by node."""
    counts = np.zeros(size, dtype=np.int64)
    for kind, count in wanted:
        left = count
        for c in kind:
            counts[c] = min(left, int(classes.counts[c]))
            left -= int(counts[c])
    return tuple(int(count) for count in counts)


def _permitted(setup: Setup, counts: Counts) -> bool:
    number = int((np.array(counts, dtype=np.int64) * setup.classes.strides).sum())
    return bool(setup.permit.allowed[number])
