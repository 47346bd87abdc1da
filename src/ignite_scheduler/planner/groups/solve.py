"""One family searched: first chains, local search, then tables and branch and bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Final

import numpy as np

from ignite_scheduler.planner.groups.choose import Choice
from ignite_scheduler.planner.groups.climb import Ground, climb, shake
from ignite_scheduler.planner.groups.exact import make_trial
from ignite_scheduler.planner.groups.field import BACKWARD, FORWARD, Field, Made
from ignite_scheduler.planner.groups.layout import Layout
from ignite_scheduler.planner.groups.tables import behind_tables, front_tables, least_fill_plan
from ignite_scheduler.planner.groups.tree import search
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.tree import TIE

CLIMB_WORK: Final = 20_000
"""Pipelines that one local search times at most."""

SHAKES: Final = 60
SHAKE_WORK: Final = 150_000
"""Rounds of disturbed local search, and pipelines timed in them at most."""

DIVISIONS: Final = 8
"""Ways to divide the devices among so many stages that are tried first."""

SWEEP: Final = 6
"""Chains of least fill are made under so many caps on the busiest stage."""

TARGETS: Final = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)
"""Shares of the best value that nothing is proven to go below where the last proof is out of reach."""

ENTRIES_PER_WORK: Final = 16
"""Entries of a table that cost as much as timing one pipeline."""

NOTHING: Final = Choice(np.inf, (), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One family to be searched."""

    made: Made
    ground: Ground
    strides: Ints
    counts: Ints

    @property
    def field(self) -> Field:
        """The family in numbers."""
        return self.made.field

    @property
    def table_work(self) -> int:
        """Work of the tables of one cap, in timed pipelines."""
        return 1 + len(self.field.ends) * len(self.field.pair_group) * (self.field.num_layers + 1) // ENTRIES_PER_WORK

    def worth(self, choices: list[Choice]) -> list[Choice]:
        """Those of the choices that are permitted in this family, with their values, best first."""
        if not choices:
            return []
        values = self.ground.values([(choice.groups, choice.first) for choice in choices])
        found = [choice._replace(value=float(value)) for choice, value in zip(choices, values, strict=True)]
        return sorted(choice for choice in found if choice.value < np.inf)


def make_task(made: Made, layout: Layout) -> Task:
    """The family with room to time chains in."""
    field = made.field
    trial = make_trial(field.max_stages, field.num_microbatches, field.members.shape[1])
    strides, counts = layout.classes.strides, layout.classes.counts
    return Task(made=made, ground=Ground(field, trial, strides), strides=strides, counts=counts)


def climbed(task: Task, starts: Iterable[Choice], budget: int) -> Choice:
    """The best chain that local search reaches from the starts."""
    best, until = NOTHING, task.ground.spent + budget
    for start in starts:
        if task.ground.spent >= until:
            break
        best = min(best, climb(task.ground, start, min(CLIMB_WORK, until - task.ground.spent)))
    return best


def shaken(task: Task, choice: Choice, source: np.random.Generator, budget: int) -> Choice:
    """The best chain that local search reaches from disturbed copies of a good one."""
    return shake(task.ground, choice, source, SHAKES, min(SHAKE_WORK, budget)) if choice.groups else choice


def first_choices(task: Task) -> list[Choice]:
    """Permitted chains to start from: each group alone, and all devices in order cut into as many stages as may be."""
    field, ground = task.field, task.ground
    found = [Choice(np.inf, (g,), (0,)) for g in ground.group_at.values()]
    every = [int(stride) for stride, count in zip(task.strides, task.counts, strict=True) for _ in range(int(count))]
    cuts = [i for i in range(1, field.num_layers) if field.may_cut[i]]
    for stages in range(2, min(field.max_stages, len(cuts) + 1) + 1):
        for marks in islice(combinations(range(1, len(every)), stages - 1), DIVISIONS):
            bounds = (0, *marks, len(every))
            groups = [ground.group_at.get(sum(every[a:b]), -1) for a, b in pairwise(bounds)]
            if min(groups) >= 0:
                found.append(Choice(np.inf, tuple(groups), _even_cuts(task, groups, cuts)))
    return task.worth(found)


def _even_cuts(task: Task, groups: list[int], cuts: list[int]) -> tuple[int, ...]:
    """First layers from the end such that every group has its part of the work by its speed."""
    costs, figures = task.made.costs, task.field.figures
    paces = [1.0 / max(float(figures[g, -1, 0, FORWARD] + figures[g, -1, 0, BACKWARD]), 1e-30) for g in groups]
    work = costs.forward[0, costs.samples] + costs.backward[0, costs.samples]
    left, first, position = sum(paces), [], len(cuts)
    for index, pace in enumerate(paces[:-1]):
        left -= pace
        wanted = float(work[-1]) * left / sum(paces)
        position = min(position - 1, int(np.searchsorted(work[cuts], wanted)))
        position = max(position, len(paces) - 2 - index)
        first.append(cuts[position])
    return (*first, 0)


def filled(task: Task) -> tuple[list[Choice], float]:
    """Chains of least fill under ever lower caps on the busiest stage, and a bound on the step.

    The tables know memory and links exactly: an infinite bound proves that no permitted chain exists.
    """
    field = task.field
    found: list[Choice] = []
    cap, bound = np.inf, np.inf
    for _ in range(SWEEP):
        tables = front_tables(field, behind_tables(field, cap), cap, np.inf)
        groups, first = _buffers(task)
        n = int(least_fill_plan(field, tables, cap, groups, first))
        task.ground.spent += task.table_work
        if cap == np.inf:
            bound = _least(field, tables[1])
        if n == 0:
            break
        found += task.worth([_choice(np.inf, n, groups, first)])
        cap = 0.9 * _busiest(task, n)
    return sorted(found), bound


def _busiest(task: Task, n: int) -> float:
    """Busy seconds of the busiest stage of the chain of n stages that was timed last."""
    room, m = task.ground.trial.room, task.field.num_microbatches
    busy = (m - 1) * (room.forward[:, 0] + room.backward[:, 0]) + room.forward[:, 1] + room.backward[:, 1]
    return float(busy[:n].max())


def _least(field: Field, stage_both: Floats) -> float:
    last = [int(field.pair_index[field.usage[g], g]) for g in range(len(field.size))]
    return float(stage_both[0, last, -1].min())


def proven(task: Task, target: float, budget: int) -> tuple[Choice, bool]:
    """A chain below ``target`` if there is one, and whether the search is complete.

    With a complete search nothing is below the found value, or below the target where nothing was found.
    """
    field = task.field
    rate = field.base_rate + float(field.rate.min())
    limit = (target + 2 * TIE) / rate if rate > 0 else np.inf
    tables = front_tables(field, behind_tables(field, limit), limit, limit)
    task.ground.spent += task.table_work
    if _least(field, tables[1]) == np.inf:
        return NOTHING, True
    groups, first = _buffers(task)
    value, n, work, complete = search(
        field, task.ground.trial, tables[2], tables[3], target, groups, first, max(0, budget - task.table_work)
    )
    task.ground.spent += int(work)
    return _choice(value, n, groups, first) if n else NOTHING, bool(complete)


def _choice(value: float, n: int, groups: Ints, first: Ints) -> Choice:
    return Choice(float(value), tuple(map(int, groups[:n])), tuple(map(int, first[:n])))


def _buffers(task: Task) -> tuple[Ints, Ints]:
    size = task.field.max_stages + 2
    return np.zeros(size, np.int64), np.zeros(size, np.int64)
