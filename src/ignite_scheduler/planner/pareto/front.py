"""Sets of points of which none beats another, and how much of the space they command. All values are losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import numpy as np

Values = tuple[float, ...]
T = TypeVar("T")

EQUAL: Final = 1e-9
"""Values within this share of each other are equal."""


def covers(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether ``one`` is nowhere worse than ``other``, equal values included.

    >>> covers((1.0, 2.0), (1.0, 3.0)), covers((1.0, 2.0), (0.5, 3.0))
    (True, False)
    """
    return all(a <= b + EQUAL * abs(b) for a, b in zip(one, other, strict=True))


def nondominated(points: Sequence[Values]) -> list[int]:
    """Places of the points that no other covers, by rising values; of equal points the one that comes first.

    >>> nondominated([(2.0, 2.0), (1.0, 3.0), (2.0, 3.0), (2.0, 2.0)])
    [1, 0]
    """
    order = sorted(range(len(points)), key=lambda place: (points[place], place))
    kept: list[int] = []
    for place in order:  # what covers a point comes before it, but for values that are equal within EQUAL
        if any(covers(points[other], points[place]) for other in kept):
            continue
        kept = [other for other in kept if not covers(points[place], points[other])]
        kept.append(place)
    return kept


def hypervolume(points: Sequence[Values], reference: Values) -> float:
    """Volume of all that is covered by a point and below the reference; exact.

    Slices along the last value, each slice a problem of one dimension less; O(n log n) for two values, O(n²) for
    three, O(nᵈ⁻¹) for d.

    >>> hypervolume([(1.0, 2.0), (2.0, 1.0)], (3.0, 3.0))
    3.0
    """
    inside = [point for point in points if all(a < b for a, b in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in inside)
    inside.sort(key=lambda point: point[-1])
    levels = [*(point[-1] for point in inside), reference[-1]]
    volume = 0.0
    below: list[Values] = []
    for place, point in enumerate(inside):
        below.append(point[:-1])
        depth = levels[place + 1] - levels[place]
        if depth > 0:
            if len(reference) > 2:
                below = [below[kept] for kept in nondominated(below)]
            volume += depth * hypervolume(below, reference[:-1])
    return volume


class Archive(Generic[T]):
    """Points met so far, one for each box of the grid of near-equal values, none of whose boxes beats another.

    Boxes are ``share`` of a value wide where the value is a ratio (time, money, energy), ``share`` of the whole where
    it is one already (headroom, negative), and whole numbers stay whole. Of two points in a box the one that covers
    the other stays, else the first. So the set stays small, and for every point ever offered there is a kept one that
    is nowhere worse by more than about ``share`` (epsilon-dominance: Laumanns and others, 2002).

    Parameters
    ----------
    share
        Width of a box.
    whole
        Which of the values are whole numbers.
    """

    def __init__(self, share: float, whole: Sequence[bool]) -> None:
        self.share, self.whole = share, tuple(whole)
        self.values: list[Values] = []
        self.held: list[T] = []
        self._boxes = np.zeros((0, len(self.whole)))

    def offer(self, values: Values, thing: T) -> bool:
        """Keep ``thing`` unless a kept one is as good; whether it was kept."""
        box = np.array([self._box(value, whole) for value, whole in zip(values, self.whole, strict=True)])
        not_worse = (self._boxes <= box).all(axis=1)
        same = (self._boxes == box).all(axis=1)
        if (not_worse & ~same).any():
            return False
        if same.any():
            place = int(same.argmax())
            if covers(self.values[place], values) or not covers(values, self.values[place]):
                return False
        keep = [not (row >= box).all() for row in self._boxes]
        self.values = [kept for kept, stays in zip(self.values, keep, strict=True) if stays]
        self.held = [kept for kept, stays in zip(self.held, keep, strict=True) if stays]
        self._boxes = np.vstack([self._boxes[keep], box])
        self.values.append(values)
        self.held.append(thing)
        return True

    def _box(self, value: float, whole: bool) -> float:
        if whole:
            return value
        if value <= 0:
            return math.floor(value / self.share) - 1e9  # left of every box of a ratio above 0
        return float(math.floor(math.log(value) / math.log1p(self.share)))
