"""From raw series of seconds to one figure each, and how far to trust it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

_FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a value counts as an outlier (Tukey's "far out")."""


def typical(values: Iterable[float]) -> float:
    """The median of the faster half of the values (the middle one of an odd number belongs to it).

    >>> typical([4.0, 1.0, 2.0, 3.0, 50.0])
    2.0
    """
    ordered = sorted(values)
    return statistics.median(ordered[: (len(ordered) + 1) // 2])


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, by linear interpolation.

    >>> quartiles([4.0, 1.0, 2.0, 3.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def relative_spread(values: Sequence[float]) -> float:
    """Interquartile range ÷ median; 0 where the median is 0.

    >>> relative_spread([4.0, 1.0, 2.0, 3.0, 5.0])
    0.6666666666666666
    """
    low, middle, high = quartiles(values)
    return (high - low) / middle if middle > 0 else 0.0


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Which values lie far outside the quartiles. They are told, not dropped: a median does not heed them.

    >>> outliers([1.0, 1.1, 1.2, 1.1, 1.0, 9.0])
    (5,)
    """
    low, _, high = quartiles(values)
    reach = _FENCE * (high - low)
    return tuple(index for index, value in enumerate(values) if not low - reach <= value <= high + reach)
