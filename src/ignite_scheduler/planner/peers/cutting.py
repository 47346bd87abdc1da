"""Dynamic programs that cut a line of blocks into stages: what most peers come down to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from ignite_scheduler.planner.kernel import Floats


class Cut(NamedTuple):
    """The best cut: first blocks of the stages with the number of blocks at the end, and its value."""

    bounds: tuple[int, ...]
    value: float


def run_costs(prefix: Floats) -> Floats:
    """[i, j] = prefix[j] − prefix[i] for i < j; infinite for runs without blocks.

    >>> run_costs(np.array([0.0, 1.0, 3.0]))[0].tolist()
    [inf, 1.0, 3.0]
    """
    costs = prefix[None, :] - prefix[:, None]
    return np.where(np.triu(np.ones(costs.shape, dtype=bool), k=1), costs, np.inf)


def best_cut(costs: Sequence[Floats], combine: Literal["max", "sum"] = "max") -> Cut | None:
    """The cut into ``len(costs)`` stages of least largest cost, or of least sum; None if every cut is infinite.

    Parameters
    ----------
    costs
        For each stage, [i, j] of blocks i…j−1 on it.

    Notes
    -----
    O(stages · blocks²). Among equal cuts the one whose last stages are longest.

    >>> best_cut([run_costs(np.array([0.0, 3.0, 4.0, 6.0]))] * 2).bounds
    (0, 1, 3)
    """
    size = len(costs[0])
    least = np.full(size, np.inf)
    least[0] = 0.0
    came: list[list[int]] = []
    for cost in costs:
        joined = np.maximum(least[:, None], cost) if combine == "max" else least[:, None] + cost
        came.append([int(i) for i in joined.argmin(axis=0)])
        least = joined.min(axis=0)
    if not np.isfinite(least[-1]):
        return None
    bounds = [size - 1]
    for row in reversed(came):
        bounds.append(row[bounds[-1]])
    return Cut(tuple(reversed(bounds)), float(least[-1]))


def runs(bounds: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The stages of a cut as (first block, end)."""
    return tuple(pairwise(bounds))
