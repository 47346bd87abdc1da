"""One choice for each job under shared capacities: the multiple-choice, multi-dimensional knapsack, with a bound.

maximise Σ value over chosen options, at most one option a job, such that for each pool the demand is within its
capacity.

Steps, each only if the one before did not settle it: (1) every job's best option, if they all fit, is optimal; (2)
jobs that cannot matter are dropped (of the options with equal needs only as many of the best as jobs can start at
all); (3) a tiny problem is enumerated; (4) a greedy choice by value per share of the capacity taken, with the prices
of a Lagrangian relaxation, whose dual is the upper bound; (5) where the problem is small, HiGHS, limited in nodes.
The better of (4) and (5) is taken, since a limited solver may return nothing. Budgets count work, never seconds: the
same problem always gives the same answer.

References
----------
H. Kellerer, U. Pferschy, D. Pisinger, "Knapsack problems", Springer 2004, chapters 9 (multi-dimensional) and 11
(multiple-choice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ignite_scheduler.policy.view import Needs, fits, give, take

Floats = NDArray[np.float64]

EXACT_CHOICES: Final = 600
"""Up to so many choices are handed to HiGHS."""
MAX_NODES: Final = 200
"""Branch-and-bound nodes that HiGHS may open."""
MAX_BRANCHES: Final = 2000
"""Branches that the enumeration of a tiny problem may open before the other methods take over."""
MAX_DEPTH: Final = 40
"""Jobs up to which a problem may be tiny."""
PRICE_STEPS: Final = 60
"""Subgradient steps of the Lagrangian dual."""
REPAIRED_CHOICES: Final = 400
"""Up to so many choices every step is made into a feasible choice; of larger problems fewer steps are."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One option of one job. ``value`` > 0 is gained if it is taken; ``key`` is the caller's."""

    key: Any
    value: float
    needs: Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was chosen, its value, an upper bound on any choice's value, and how they were found."""

    chosen: tuple[Choice, ...]
    value: float
    bound: float
    method: str

    @property
    def gap(self) -> float:
        """Upper bound on the relative distance from the optimum."""
        return self.bound / self.value - 1.0 if self.value > 0 else 0.0


def choose(jobs: Sequence[Sequence[Choice]], capacity: Mapping[str, int]) -> Selection:
    """The most valuable choice of at most one option a job within the capacities.

    Options of no value, and those that do not fit even alone, are never chosen.
    """
    able = [[each for each in job if each.value > 0 and fits(each.needs, capacity)] for job in jobs]
    able = [job for job in able if job]
    best = [max(job, key=lambda each: each.value) for job in able]
    if _fit_together(best, capacity):
        value = sum(each.value for each in best)
        return Selection(chosen=tuple(best), value=value, bound=value, method="all fit")
    able = _prune(able, capacity)
    found = _enumerate(able, capacity)
    if found is not None:
        value = sum(each.value for each in found)
        return Selection(chosen=tuple(found), value=value, bound=value, method="enumerated")
    problem = _Problem(able, capacity)
    chosen, bound = problem.by_prices()
    method = "prices"
    if len(problem.choices) <= EXACT_CHOICES and problem.value(chosen) < bound * (1 - _ROUNDING):
        chosen, bound = problem.by_highs(chosen, bound)
        method = "HiGHS"
    value = problem.value(chosen)
    picked = tuple(problem.choices[index] for index in chosen)
    return Selection(chosen=picked, value=value, bound=max(value, bound), method=method)


def _fit_together(choices: Sequence[Choice], capacity: Mapping[str, int]) -> bool:
    left = dict(capacity)
    for each in choices:
        if not fits(each.needs, left):
            return False
        take(each.needs, left)
    return True


def _enumerate(jobs: list[list[Choice]], capacity: Mapping[str, int]) -> list[Choice] | None:
    """The optimum by depth-first branch and bound; None if it takes more than :data:`MAX_BRANCHES`.

    The bound of a branch is what it has plus the best option of every job below it.
    """
    order = sorted(jobs, key=lambda job: -max(each.value for each in job))
    order = [sorted(job, key=lambda each: -each.value) for job in order]
    rest = [0.0] * (len(order) + 1)
    for depth in range(len(order) - 1, -1, -1):
        rest[depth] = rest[depth + 1] + order[depth][0].value
    left = dict(capacity)
    path: list[Choice] = []
    best: list[Choice] = []
    best_value = 0.0
    branches = 0

    def descend(depth: int, value: float) -> bool:
        nonlocal best, best_value, branches
        branches += 1
        if value > best_value:
            best, best_value = path.copy(), value
        if branches > MAX_BRANCHES:
            return False
        if depth == len(order) or value + rest[depth] <= best_value * (1 + _ROUNDING):
            return True
        for each in order[depth]:
            if fits(each.needs, left):
                take(each.needs, left)
                path.append(each)
                within = descend(depth + 1, value + each.value)
                path.pop()
                give(each.needs, left)
                if not within:
                    return False
        return descend(depth + 1, value)

    if len(order) > MAX_DEPTH:
        return None
    return best if descend(0, 0.0) else None


def _prune(jobs: list[list[Choice]], capacity: Mapping[str, int]) -> list[list[Choice]]:
    """Drop options that an exchange makes needless.

    Let G bound the number of jobs that can start. Of the options with equal needs, only the G most valuable matter:
    if another one were chosen, one of those G belongs to a job that is not chosen at all, and could take its place.
    """
    most = _most_jobs(jobs, capacity)
    by_needs: dict[Needs, list[tuple[float, int, Choice]]] = {}
    for index, job in enumerate(jobs):
        for each in job:
            by_needs.setdefault(each.needs, []).append((-each.value, index, each))
    kept: dict[int, list[Choice]] = {}
    for group in by_needs.values():
        group.sort(key=lambda entry: entry[:2])
        for _, index, each in group[:most]:
            kept.setdefault(index, []).append(each)
    return [kept[index] for index in sorted(kept)]


def _most_jobs(jobs: list[list[Choice]], capacity: Mapping[str, int]) -> int:
    """No more jobs than this can start: by the largest capacity of each smallest demand."""
    least = min(
        (max(count / capacity[pool] for pool, count in each.needs) for job in jobs for each in job), default=1.0
    )
    # each chosen option takes at least the fraction ``least`` of some pool; every pool holds 1/least of these
    num_pools = len({pool for job in jobs for each in job for pool, _ in each.needs})
    return min(len(jobs), int(num_pools / least) + 1)


class _Problem:
    """The pruned problem as arrays: a row a choice, a column a pool."""

    def __init__(self, jobs: list[list[Choice]], capacity: Mapping[str, int]) -> None:
        self.choices = [each for job in jobs for each in job]
        self.job_of = np.repeat(np.arange(len(jobs)), [len(job) for job in jobs])
        self.first = np.concatenate(([0], np.cumsum([len(job) for job in jobs])))[:-1]
        pools = sorted({pool for each in self.choices for pool, _ in each.needs})
        column = {pool: index for index, pool in enumerate(pools)}
        self.capacity: Floats = np.array([capacity[pool] for pool in pools], dtype=np.float64)
        self.needs: Floats = np.zeros((len(self.choices), len(pools)))
        for row, each in enumerate(self.choices):
            for pool, count in each.needs:
                self.needs[row, column[pool]] = count
        self.values: Floats = np.array([each.value for each in self.choices])

    def value(self, chosen: Sequence[int]) -> float:
        """Value of the chosen rows."""
        return float(sum(self.values[index] for index in chosen))

    def by_prices(self) -> tuple[list[int], float]:
        """A greedy choice and the best Lagrangian bound.

        At prices p ≥ 0 for a unit of each pool, each job takes its best value − p·needs if positive; the sum plus
        p·capacity bounds the optimum from above for any p. Prices rise where the demand exceeds the capacity.
        """
        shares = self.needs / self.capacity
        chosen = self._greedy(self.values / shares.sum(axis=1))
        best = self.value(chosen)
        prices = np.zeros(len(self.capacity))
        bound = np.inf
        step = 1.0
        for index in range(PRICE_STEPS):
            net = self.values - self.needs @ prices
            top = np.maximum.reduceat(net, self.first)
            dual = float(np.maximum(top, 0.0).sum() + prices @ self.capacity)
            if dual < bound * (1 - 1e-4):
                bound = dual
            else:
                bound = min(bound, dual)
                step *= 0.8
            taken = (net > 0) & (net >= top[self.job_of])
            slack = self.capacity - (self.needs * taken[:, None]).sum(axis=0)
            norm = float(slack @ slack)
            if norm == 0.0 or bound <= best * (1 + _ROUNDING):
                break
            prices = np.maximum(0.0, prices - step * max(dual - best, _ROUNDING * dual) / norm * slack)
            if index % (1 + len(self.choices) // REPAIRED_CHOICES):
                continue
            repaired = self._greedy(np.where(net > 0, net + self.values * 1e-6, net - 1.0))
            value = self.value(repaired)
            if value > best:
                best, chosen = value, repaired
        return chosen, bound

    def _greedy(self, score: Floats) -> list[int]:
        left = self.capacity.copy()
        taken: dict[int, int] = {}
        for row in np.argsort(-score, kind="stable"):
            job = int(self.job_of[row])
            if job not in taken and bool((self.needs[row] <= left).all()):
                taken[job] = int(row)
                left -= self.needs[row]
        return list(taken.values())

    def by_highs(self, chosen: list[int], bound: float) -> tuple[list[int], float]:
        """The better of the given choice and what HiGHS finds, and the better bound."""
        import highspy  # 0.3 s: only where a joint choice is really needed

        rows, num_pools, num_jobs = len(self.values), len(self.capacity), len(self.first)
        scale = float(self.values.max())
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = rows, num_pools + num_jobs
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = self.values / scale
        lp.col_lower_, lp.col_upper_ = np.zeros(rows), np.ones(rows)
        lp.row_lower_ = np.full(num_pools + num_jobs, -highspy.kHighsInf)
        lp.row_upper_ = np.concatenate((self.capacity, np.ones(num_jobs)))
        lp.integrality_ = [highspy.HighsVarType.kInteger] * rows
        entries = [np.flatnonzero(row) for row in self.needs]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum([len(each) + 1 for each in entries])))
        lp.a_matrix_.index_ = np.concatenate(
            [np.append(each, num_pools + job) for each, job in zip(entries, self.job_of, strict=True)]
        )
        lp.a_matrix_.value_ = np.concatenate(
            [np.append(self.needs[row, each], 1.0) for row, each in enumerate(entries)]
        )
        solver = highspy.Highs.__mro__[1]()  # the class itself sets up callbacks, slowly and with a banner on stdout
        for option, setting in {
            "output_flag": False,
            "threads": 1,
            "random_seed": 0,
            "mip_max_nodes": MAX_NODES,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 1e-9,
        }.items():
            solver.setOptionValue(option, setting)
        solver.passModel(lp)
        seed = highspy.HighsSolution()
        seed.col_value = [float(row in set(chosen)) for row in range(rows)]
        solver.setSolution(seed)
        solver.run()
        info = solver.getInfo()
        found = [row for row, x in enumerate(solver.getSolution().col_value) if x > 0.5]
        if self._is_feasible(found) and self.value(found) > self.value(chosen):
            chosen = found
        if np.isfinite(info.mip_dual_bound):
            bound = min(bound, float(info.mip_dual_bound) * scale)
        return chosen, bound

    def _is_feasible(self, rows: list[int]) -> bool:
        within = bool((self.needs[rows].sum(axis=0) <= self.capacity).all())
        return within and len({int(self.job_of[row]) for row in rows}) == len(rows)
