"""Stages that some chain within a step limit may hold: tables of least fill, narrowed from both ends.

Theory
------
For a limit T on the step a chain is out if its fill F and the pace of one of its stages or links (what
:func:`.tables.stage_pace` and :func:`.tables.link_pace` prove beyond the fill) sum to more than T. A stage in a state
(devices used up to it, its device, its layers) belongs to no chain within T if the least fill of everything in front
of it, its own fill, the least fill of everything behind it and its pace sum to more than T: every chain through it has
at least that fill. The same holds for its busy time and the fill in front, and for its round trips. Dropping such
stages leaves longer fills in front of and behind the others, which drops more of them. What was dropped belongs to no
chain within T, so that every table along the way holds least fills of at most those of the chains within T:

- where nothing is left no chain is within T: T is a bound;
- where nothing changes any more, the chain of least fill F* through what is left has no stage or link of more pace than
  T − F*, as each of them lies on a chain of fill F*. So the largest refuted T is the least of F + pace over all chains:
  nothing but what these inequalities leave out is lost. Under GPipe with alike microbatches that is next to nothing.

The narrowed tables are also sharper ones for the branch and bound (:mod:`.tree`) under the same limit, and the chain of
least fill is a good first plan.

Memory is exact (the number of devices used is the stage's place from the end). A sweep over all states costs
O(multisets · classes · layers · layers of one stage); states in which nothing is left are not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Numbers
from ignite_scheduler.planner.tables import (
    behind_tables,
    least_fill_plan,
    link_pace,
    link_seconds,
    linked,
    round_trips,
    stage_pace,
    stage_seconds,
)

MOST_SWEEPS: Final = 10
"""Sweeps there and back for one limit at most."""

UNCHANGED: Final = 1e-4
"""Share by which the least fill must have grown for another sweep to be worth it."""

FINE: Final = 1.0025
"""The largest refuted limit is sought to this factor."""

STEEP, PART = 0.85, 0.35
"""First limits as shares of the plan's, and how far from the refuted limit to the other the next one lies: what is
refuted costs least."""

Chain = tuple[tuple[int, ...], tuple[int, ...]]
"""Class and first layer of each stage, from the end."""


class Narrowed(NamedTuple):
    """Least fills [multiset, class, layer] of chains within a limit; infinite where none is known to be.

    ``stage`` and ``total``: everything in front, as :func:`.tables.front_tables` returns. ``behind``: everything behind
    a stage that ends there, as :func:`.tables.behind_tables` returns; ``suffix``: the same with the stage that begins
    there. ``alive`` [multiset, class]: whether anything is left.
    """

    stage: Floats
    total: Floats
    behind: Floats
    suffix: Floats
    alive: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    def copy(self) -> Narrowed:
        """The same in memory of its own."""
        return Narrowed._make(table.copy() for table in self)


def everything(numbers: Numbers, step_cap: float) -> Narrowed:
    """Tables that nothing but the busy time of single stages was dropped from."""
    behind = behind_tables(numbers, step_cap)
    return Narrowed(
        stage=np.full(behind.shape, np.inf),
        total=np.full(behind.shape, np.inf),
        behind=behind,
        suffix=np.zeros(behind.shape),
        alive=np.ones(behind.shape[:2], dtype=np.bool_),
    )


def refuted(
    numbers: Numbers, low: float, high: float, cap_of: Callable[[float], float]
) -> tuple[float, tuple[Chain, ...], int]:
    """A value of the objective that no chain goes below, chains of least fill met on the way, and the sweeps done.

    Parameters
    ----------
    low, high
        A value that no chain goes below, and that of a chain.
    cap_of
        Seconds that no chain of at most this value takes longer than.
    """
    if not np.isfinite(cap_of(high)):
        return low, (), 0
    chains, done = [], 0
    tables = everything(numbers, cap_of(high))
    classes, first = np.zeros(numbers.max_stages + 2, np.int64), np.zeros(numbers.max_stages + 2, np.int64)
    while high > FINE * low:
        middle = max(low + PART * (high - low), STEEP * high)
        tried = tables.copy()
        left, sweeps = narrow(numbers, tried, cap_of(middle))
        done += sweeps
        if not left:
            low = middle
            continue
        tables, high = tried, middle
        n = least_fill_plan(numbers, tables.stage, tables.total, np.inf, classes, first)
        if n > 0:
            chains.append((tuple(map(int, classes[:n])), tuple(map(int, first[:n]))))
    return low, tuple(chains), done


def narrow(numbers: Numbers, tables: Narrowed, step_cap: float) -> tuple[bool, int]:
    """Drop from ``tables``, in place, what no chain within ``step_cap`` holds; they hold for a limit no lower.

    Returns
    -------
    whether something is left, and the sweeps done
    """
    before, sweeps = 0.0, 0
    while sweeps < MOST_SWEEPS:
        sweeps += 1
        _sweep(numbers, *tables, step_cap, True)
        fill = min(float(tables.stage[stride, c, numbers.num_layers]) for c, stride in enumerate(numbers.strides))
        if fill == np.inf:
            return False, sweeps
        _sweep(numbers, *tables, step_cap, False)
        if fill <= before * (1 + UNCHANGED):
            break
        before = fill
    return True, sweeps


@compiled
def _sweep(  # noqa: PLR0912
    numbers: Any, stage: Any, total: Any, behind: Any, suffix: Any, alive: Any, step_cap: float, ahead: bool
) -> None:
    """Renew ``stage`` and ``total`` by what is left behind, or ``suffix`` and ``behind`` by what is left in front."""
    size = len(numbers.num_used)
    for step in range(1, size):
        v = size - step if ahead else step
        n = numbers.num_used[v]
        for d in range(len(numbers.counts)):
            if not alive[v, d]:
                continue
            alive[v, d] = False
            w = v - numbers.strides[d]
            if n <= numbers.max_stages and (v // numbers.strides[d]) % (numbers.counts[d] + 1) > 0:
                if ahead:
                    total[v, d, :] = np.inf
                    if numbers.allowed[v] and suffix[v, d, 0] < np.inf:
                        total[v, d, 0] = 0.0
                else:
                    behind[v, d, :] = np.inf
                    if n == 1:
                        behind[v, d, numbers.num_layers] = 0.0
                for e in range(len(numbers.counts)):
                    if ahead and (v // numbers.strides[e]) % (numbers.counts[e] + 1) < numbers.counts[e]:
                        u = v + numbers.strides[e]
                        if alive[u, e]:
                            _links(numbers, total[v, d], stage[u, e], suffix[v, d], e, d, step_cap, True)
                    elif not ahead and alive[w, e]:
                        _links(numbers, behind[v, d], suffix[w, e], stage[v, d], d, e, step_cap, False)
                out = stage[v, d] if ahead else suffix[v, d]
                alive[v, d] = _stages(numbers, out, total[v, d], behind[v, d], d, n, step_cap, ahead)
            if not alive[v, d]:
                stage[v, d, :] = np.inf
                total[v, d, :] = np.inf
                behind[v, d, :] = np.inf
                suffix[v, d, :] = np.inf


@compiled
def _links(numbers: Any, out: Any, way: Any, other: Any, e: int, d: int, step_cap: float, ahead: bool) -> None:
    """Lower ``out`` by the link from class e to class d, with the fills ``way`` beyond it and ``other`` before it."""
    if not linked(numbers, e, d):
        return
    last = numbers.num_microbatches - 1
    for j in range(1, numbers.num_layers):
        if way[j] == np.inf or other[j] == np.inf or not numbers.may_cut[j]:
            continue
        there, back = link_seconds(numbers, e, d, j, numbers.sizes[0])
        there_last, back_last = link_seconds(numbers, e, d, j, numbers.sizes[1])
        value = there + back_last + way[j]
        if value >= out[j] or value + other[j] + link_pace(numbers, there, back) > step_cap:
            continue
        queue = max(last * back, (last - 1) * there + there_last if last > 0 else 0.0)
        if there + back_last + queue + (way[j] if ahead else other[j]) <= step_cap:
            out[j] = value


@compiled
def _stages(numbers: Any, out: Any, front: Any, behind: Any, d: int, n: int, step_cap: float, ahead: bool) -> bool:
    """Fill ``out`` for class d, n-th from the end, by its end (``ahead``) or its begin; whether any is left."""
    trips = round_trips(numbers, n)
    found = False
    out[:] = np.inf
    least = np.zeros(len(front))  # of all stages that begin there or before it
    if not numbers.loose:
        so_far = np.inf
        for i in range(len(front)):
            so_far = min(so_far, front[i])
            least[i] = so_far
    for j in range(1, numbers.num_layers + 1):
        rest = behind[j]
        if trips * rest > step_cap:
            continue
        for i in range(j if numbers.loose else j - 1, numbers.first_fit[d, n, j] - 1, -1):
            if front[i] == np.inf:
                continue
            fill, busy = stage_seconds(numbers, d, i, j)
            need = max(busy, fill + rest + stage_pace(numbers, d, i, j, n), trips * (fill + rest))
            if front[i] + need > step_cap:
                if least[i] + need > step_cap:
                    break  # and so is every longer one
                continue
            if ahead:
                value = fill + front[i]
                if value < out[j]:
                    out[j] = value
                    found = True
            else:
                value = fill + rest
                if value < out[i]:
                    out[i] = value
                    found = True
    return found
