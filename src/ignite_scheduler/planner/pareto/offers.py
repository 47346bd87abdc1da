"""The best plan on exactly one multiset of devices: an answer that depends on the multiset and on nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any, Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment, microbatch_sizes, straight
from ignite_scheduler.model import Profile
from ignite_scheduler.planner.build import STRAIGHT
from ignite_scheduler.planner.climb import climb
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Floats, Numbers, make_room, value_of
from ignite_scheduler.planner.pareto.canonical import renamed, slots
from ignite_scheduler.planner.pareto.genes import busy_seconds, level
from ignite_scheduler.planner.pareto.grouped import on_exactly
from ignite_scheduler.planner.pareto.multisets import Counts, restricted
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.setup import Setup, quick_figures
from ignite_scheduler.planner.solve import NOTHING, Choice, first_plan, improve
from ignite_scheduler.planner.tree import TIE, WORK_ACTIONS

SET_WORK: Final = 2_000
"""Pipelines timed for each multiset and family."""

GROUP_WORK: Final = 5_000
"""Pipelines timed for the proof over chains of groups on each multiset."""

FAMILIES: Final = 3
"""Schedules and microbatch sizes that are tried on a multiset: those that look best on it."""

SWEEP: Final = 6
"""Caps from which first plans are made."""

LINE_WORK: Final = 12_000
"""Work on the best line of a large multiset."""

MOST_ORDERED: Final = 4
"""Classes of which every order is tried."""

MOST_PARTS: Final = 2_000
"""Parts of a multiset that tables are made over at most; above, lines of its devices are levelled and climbed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All of a problem that the best plan on given devices depends on."""

    terms: tuple[Any, ...]
    profile: Profile

    @classmethod
    def of(cls, problem: Problem) -> Asked:
        """That of ``problem``."""
        job = problem.job
        terms = (job.batch, job.optimizer, job.precision, job.pipeline, problem.objective, problem.memory_margin)
        return cls(terms=(*terms, tuple(sorted(problem.abilities))), profile=problem.profile)


class Solved(NamedTuple):
    """The best plan on a multiset that is below ``to_beat``, on its slots (:func:`.canonical.slots`); None = none is.

    ``bound`` is what no plan on exactly these devices goes below.
    """

    to_beat: float
    value: float
    assignment: Assignment | None
    bound: float
    method: str


class Solver:
    """Solves multisets of one problem; ``work`` is in pipelines timed."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.work = 0
        self._arrays: dict[Family, Arrays] = {family: setup.arrays(family) for family in setup.families}
        self._numbers: dict[Family, Numbers] = {}

    def solve(self, counts: Counts, order: tuple[int, ...], to_beat: float) -> Solved:
        """The best plan on exactly these devices that is below ``to_beat``."""
        ranked = self._ranked(counts)
        best, family, least = NOTHING._replace(value=to_beat), None, math.inf
        if to_beat == math.inf and not self._holds(counts, order):
            return Solved(to_beat, math.inf, None, math.inf, STRAIGHT)
        tried = 0
        for _, bound, candidate in ranked:
            if bound >= best.value - TIE:
                least = min(least, bound)
                continue
            if tried >= FAMILIES and (family is not None or to_beat < math.inf):
                least = min(least, bound)
                continue
            tried += 1
            choice, proven = self._below(candidate, counts, order, best.value)
            least = min(least, max(bound, choice.value) if proven else bound)
            if choice.classes and choice.value < best.value - TIE:
                best, family = choice, candidate
        if family is None:
            return Solved(to_beat, math.inf, None, least, STRAIGHT)
        assignment = self._assignment(best, family)
        return Solved(to_beat, best.value, assignment, min(least, best.value), STRAIGHT)

    def solve_groups(self, counts: Counts, order: tuple[int, ...]) -> Solved:
        """The best chain of groups on exactly these devices."""
        names = slots(self.setup.classes, order, counts)
        found = on_exactly(self.setup.problem, sorted(names.values()), None, GROUP_WORK)
        if found is None or found.best is None:
            return Solved(math.inf, math.inf, None, 0.0, "")
        self.work += found.work
        back = {name: slot for slot, name in names.items()}
        return Solved(math.inf, found.value, renamed(found.best, back), found.bound, found.method)

    def _ranked(self, counts: Counts) -> list[tuple[float, float, Family]]:
        """(guess, bound, family) on these devices, the best guess first."""
        row = np.array(counts, dtype=np.int64)
        own = replace(self.setup, permit=self.setup.permit._replace(max_stages=int(row.sum())))
        found = []
        for family, arrays in self._arrays.items():
            bound, guess = quick_figures(own, arrays, family, row)
            found.append((guess, self.setup.as_value(bound), family))
        return sorted(found)

    def _holds(self, counts: Counts, order: tuple[int, ...]) -> bool:
        """Whether these devices hold the model and have links, as far as tables tell.

        By the family that needs least memory in every place: the smallest microbatches under 1F1B, if it is permitted.
        """
        leanest = min(self._arrays, key=lambda family: (family.samples, family.schedule))
        if _parts(counts, order) > MOST_PARTS:
            return True
        return first_plan(restricted(self._numbers_of(leanest), counts, order), sweep=1)[1] < math.inf

    def _numbers_of(self, family: Family) -> Numbers:
        if family not in self._numbers:
            self._numbers[family] = self.setup.numbers(family, self._arrays[family])
        return self._numbers[family]

    def _below(self, family: Family, counts: Counts, order: tuple[int, ...], limit: float) -> tuple[Choice, bool]:
        """The best plan of a family below the limit, and whether that is proven."""
        whole = self._numbers_of(family)
        if _parts(counts, order) > MOST_PARTS:
            return self._levelled(restricted(whole, counts, order, listed=False), limit), False
        own = restricted(whole, counts, order)
        start = Choice(limit, (), ())
        if limit == math.inf:
            start, bound = first_plan(own, sweep=SWEEP)
            if bound == math.inf:
                return NOTHING, True
        choice, spent, proven = improve(own, start, start.value, SET_WORK, remember=False)
        self.work += spent
        return choice, proven

    def _levelled(self, own: Numbers, limit: float) -> Choice:
        """A good plan of a large multiset: lines of its devices are levelled, and the best of them improved."""
        busy = busy_seconds(own)
        room = make_room(own.max_stages, own.num_microbatches)
        best, n = NOTHING, 0
        for line in self._lines(own, busy):
            first = level(own, busy, line)
            if first is None:
                continue
            n = len(line)
            self.work += _cost(own, n)
            value = value_of(own, room, n, np.array(line, dtype=np.int64), np.array(first, dtype=np.int64))
            if value < best.value:
                best = Choice(float(value), line, first)
        if not best.classes:
            return NOTHING._replace(value=limit)
        classes, starts = np.zeros(n + 2, dtype=np.int64), np.zeros(n + 2, dtype=np.int64)
        classes[:n], starts[:n] = best.classes, best.first
        n, value, timed = climb(own, room, n, classes, starts, best.value, LINE_WORK // _cost(own, n))
        self.work += int(timed) * _cost(own, n)
        if value >= limit - TIE:
            return NOTHING._replace(value=limit)
        return Choice(float(value), tuple(classes[:n].tolist()), tuple(starts[:n].tolist()))

    def _lines(self, own: Numbers, busy: Floats) -> list[tuple[int, ...]]:
        """Orders of all devices from the end of the pipeline, those of a class side by side."""
        most = [int(own.first_fit[k, 1, -1]) for k in range(len(own.counts))]
        keys = [(float(busy[k, -1]), most[k], k) for k in range(len(own.counts))]
        orders = {
            tuple(sorted(range(len(keys)), key=keys.__getitem__)),
            tuple(sorted(range(len(keys)), key=lambda k: (most[k], k))),
            tuple(range(len(keys))),
        }
        orders |= {order[::-1] for order in orders}
        if len(keys) <= MOST_ORDERED:
            orders |= set(permutations(range(len(keys))))
        return [tuple(k for k in order for _ in range(int(own.counts[k]))) for order in sorted(orders)]

    def _assignment(self, choice: Choice, family: Family) -> Assignment:
        """The plan on the slots of its multiset, from the front."""
        taken: dict[int, int] = {}
        names = []
        for k in reversed(choice.classes):
            names.append(f"{k}/{taken.get(k, 0)}")
            taken[k] = taken.get(k, 0) + 1
        cuts = [*reversed(choice.first), self.setup.model.num_layers]
        return straight(
            split=tuple(b - a for a, b in pairwise(cuts)),
            devices=tuple(names),
            microbatches=microbatch_sizes(self.setup.problem.job.batch.total, family.samples),
            schedule=family.schedule,
        )


def _parts(counts: Counts, order: tuple[int, ...]) -> int:
    return math.prod(counts[c] + 1 for c in order)


def _cost(own: Numbers, stages: int) -> int:
    """Work of timing one pipeline of so many stages."""
    return 1 + 2 * stages * int(own.num_microbatches) // WORK_ACTIONS
