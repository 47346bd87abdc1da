"""Local search on one scalar of all objectives, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled, inlined
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.pareto.weights import NUM_VALUES, weigh

SHIFTS = (1, -1, 2, -2, 4, -4)
"""Layers by which a cut is moved."""

EVENNESS = 0.05
"""Share of the weighted sum in a Tchebycheff scalar: of two points with the same worst value the better one wins."""


class Scale(NamedTuple):
    """How an island makes one number of a point: values are taken from ``ideal`` on in units of ``span``.

    With ``worst`` it is the largest weighted value (Tchebycheff), else their sum.
    """

    worst: bool
    weight: Floats
    ideal: Floats
    span: Floats


@inlined
def scalar(scale: Any, values: Any) -> float:
    """The number that stands for a point, less is better."""
    total, most = 0.0, 0.0
    for k in range(NUM_VALUES):
        part = scale.weight[k] * (values[k] - scale.ideal[k]) / scale.span[k]
        total += part
        most = max(most, part)
    return most + EVENNESS * total if scale.worst else total


@compiled
def scalar_of(scale: Any, values: Any) -> float:
    """:func:`scalar` for callers that are not compiled."""
    return float(scalar(scale, values))


@compiled
def descend(  # noqa: PLR0912
    numbers: Any,
    weights: Any,
    room: Any,
    scale: Any,
    n: int,
    classes: Any,
    first: Any,
    out: Any,
    budget: int,
    swap: bool,
) -> int:
    """Improve a pipeline (given from the end, changed in place, its values in ``out``) until no move helps.

    Moves: shift a cut by one, two or four layers; exchange the classes of two stages; with ``swap`` put another class
    on a stage. The number of pipelines timed.
    """
    try_c = classes.copy()
    try_f = first.copy()
    values = np.zeros(NUM_VALUES)
    best = scalar(scale, out)
    timed = 0
    improved = True
    while improved and timed < budget:
        improved = False
        for q in range(n - 1):
            for delta in SHIFTS:
                try_f[q] = first[q] + delta
                if 0 < try_f[q] < numbers.num_layers:
                    timed += 1
                    if (
                        weigh(numbers, weights, room, n, classes, try_f, values)
                        and scalar(scale, values) < best - 1e-12
                    ):
                        best = scalar(scale, values)
                        first[q] = try_f[q]
                        out[:] = values
                        improved = True
                try_f[q] = first[q]
        for q in range(n):
            for p in range(q):
                if classes[p] == classes[q] or timed >= budget:
                    continue
                try_c[p], try_c[q] = classes[q], classes[p]
                timed += 1
                if weigh(numbers, weights, room, n, try_c, first, values) and scalar(scale, values) < best - 1e-12:
                    best = scalar(scale, values)
                    classes[p], classes[q] = try_c[p], try_c[q]
                    out[:] = values
                    improved = True
                try_c[p], try_c[q] = classes[p], classes[q]
        for q in range(n if swap else 0):
            for c in range(len(numbers.counts)):
                if c == classes[q] or timed >= budget:
                    continue
                try_c[q] = c
                timed += 1
                if weigh(numbers, weights, room, n, try_c, first, values) and scalar(scale, values) < best - 1e-12:
                    best = scalar(scale, values)
                    classes[q] = c
                    out[:] = values
                    improved = True
                try_c[q] = classes[q]
    return timed
