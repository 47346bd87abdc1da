"""Straight chains over models of many layers: cuts between blocks first, then at any layer, with a bound for all cuts.

Theory of operation
-------------------
1. *Orders.* A branching model is searched in the order of its profile and, where fewer bytes go over its cuts, in one
   that depends on the graph only (:mod:`.dag`).
2. *Plans.* In each order and family the exact search for straight chains runs over some eighty blocks
   (:func:`.contract.contracted`); the best cuts are then moved layer by layer, by the exact step time.
3. *Bound.* The same search proves how much better any plan could be that cuts anywhere
   (:func:`.contract.loosened`), with more blocks as long as the gap is wide and work is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.model import Infeasible, Profile
from ignite_scheduler.planner.climb import climb
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.graphs.contract import borders, contracted, loosened, widened
from ignite_scheduler.planner.graphs.dag import branches, by_branch, by_live_bytes, reordered, tensors_of
from ignite_scheduler.planner.kernel import Ints, Numbers, make_room
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import Setup, prepare, quick_bound
from ignite_scheduler.planner.solve import CLIMB_WORK, NOTHING, Choice, first_plan, improve, shaken
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.weighed import value_of_choice

BLOCKS = 80
"""Blocks of layers between which plans are searched."""

FINER = (40, 80, 160, 320)
"""Blocks that bounds are made over, as long as the gap is wide."""

SHARE_OF_WORK = 8
"""The search takes one part in so many of the problem's work: a pipeline of many layers takes longer to time."""

PLAN_SHARE = 0.5
"""Share of the work that is spent on plans; the rest raises the bound."""

FAMILY_WORK = 100_000
"""Work of the search of one family over blocks at most."""

REFINED = 0.03
"""Families whose plan over blocks is that near the best are searched again with single layers at its cuts."""

NEAR_BLOCKS = 40
"""Blocks elsewhere then."""

NEAR_LAYERS = 12
"""Cuts that are then permitted on either side of each cut of the plan."""

NARROW = 1.01
"""A gap below this is left as it is."""

SHARES = (0.6, 0.75, 0.85, 0.93, 0.97, 1.0)
"""Shares of the best value that a bound is tried at, until one is not proven: each costs more than the one before."""

LOOKS = 64
"""Places in the work of a model where the bytes of orders are compared."""

BETTER_ORDER = 0.95
"""An order other than the profile's is searched too where its cuts carry less than this share."""


JUDGED = 6
"""Chains that the full timeline decides."""


@dataclass(slots=True)
class _Opened:
    """A family in one order of the layers: its bound so far and the record that it comes from."""

    order: tuple[int, ...]
    setup: Setup
    family: Family
    numbers: Numbers
    bound: float


@dataclass(slots=True)
class _State:
    """The best chain so far, those met on the way, open families and the work done."""

    budget: int
    work: int = 0
    value: float = math.inf
    met: list[tuple[float, Assignment]] = field(default_factory=list)
    opened: list[_Opened] = field(default_factory=list)
    closed: float = math.inf

    @property
    def left(self) -> int:
        return max(0, self.budget - self.work)


def search(problem: Problem, request: Request, incumbent: Assignment | None) -> Found:
    """The best straight chain of one device a stage over a model of many layers, with a bound on all of them.

    ``incumbent`` only tells what a plan has to beat to be of use; the outcome does not depend on it. Where devices form
    too many multisets for tables, nothing is found and nothing proven.
    """
    del incumbent
    if not request.straight:
        return Found(best=None)
    state = _State(budget=problem.work // SHARE_OF_WORK)
    for order in orders_of(problem.profile, free=not request.split and "graph" in problem.abilities):
        profile = reordered(problem.profile, order)
        setup = prepare(replace(problem, profile=profile))
        if isinstance(setup, Infeasible) or setup.classes.wide or (setup.goal.extra < 0).any():
            return Found(best=None)
        _look_for_plans(state, order, setup)
    if not state.met:
        return Found(best=None, work=state.work)
    _prove(state)
    return _settled(problem, state)


def _settled(problem: Problem, state: _State) -> Found:
    """The best of the chains met by the full timeline and exact memory, which another order of layers may change."""
    judged = []
    for _, assignment in sorted(state.met, key=lambda entry: (entry[0], entry[1].devices, entry[1].split))[:JUDGED]:
        value = value_of_choice(problem, assignment)
        if value < math.inf:
            judged.append((value, assignment))
    if not judged:
        return Found(best=None, work=state.work)
    judged.sort(key=lambda entry: (entry[0], len(entry[1].devices), entry[1].devices))
    value, best = judged[0]
    bound = min([state.closed, value, *(entry.bound for entry in state.opened)])
    return Found(
        best=best,
        value=value,
        bound=bound,
        method="branch and bound over blocks of layers, loosened for the bound on cuts at any layer",
        complete=bound >= value - TIE * max(1.0, value),
        others=tuple(assignment for _, assignment in judged[1:]),
        work=state.work,
    )


def orders_of(profile: Profile, *, free: bool) -> list[tuple[int, ...]]:
    """Orders of the layers that are worth a search: the profile's, and a better one where there is one.

    Judged by the bytes over the cheapest cut near each of :data:`LOOKS` places in the model's work. With ``free`` False
    the profile's only: cuts were asked for in it.
    """
    own = tuple(range(len(profile.layers)))
    if not free or not branches(profile):
        return [own]
    others = [by_branch(profile), by_live_bytes(profile)]
    costs = [_typical_bytes(reordered(profile, order)) for order in others]
    best = min(range(len(others)), key=lambda index: costs[index])
    if costs[best] < BETTER_ORDER * _typical_bytes(profile):
        return [own, others[best]]
    return [own]


def _typical_bytes(profile: Profile) -> float:
    """Bytes over the cheapest cut in each part of the model's work, on average."""
    size = len(profile.layers)
    cuts = np.zeros(size + 1)
    for tensor in tensors_of(profile):
        cuts[tensor.producer + 1 : tensor.readers[-1][0] + 1] += max(num_bytes for _, num_bytes in tensor.readers)
    work = np.cumsum([0.0, *(_work(layer) for layer in profile.layers)])
    part = np.minimum((work[1:size] * LOOKS / (work[-1] or 1.0)).astype(np.int64), LOOKS - 1)
    least = np.full(LOOKS, np.inf)
    np.minimum.at(least, part, cuts[1:size])
    return float(least[least < np.inf].mean()) if size > 1 else 0.0


def _work(layer: Any) -> float:
    """A layer's seconds on some kind, or its FLOPs: only shares of the whole are used."""
    for _, table in sorted(layer.times.items()):
        for _, times in sorted(table.items()):
            return float(times.forward + times.backward)
    return float(layer.forward_flops or 0.0)


def _look_for_plans(state: _State, order: tuple[int, ...], setup: Setup) -> None:
    """Search all families in one order over blocks, those of the best quick bound first."""
    sketches = []
    for family in setup.families:
        arrays = setup.arrays(family)
        sketches.append((setup.as_value(quick_bound(setup, arrays, family)), family, arrays))
    sketches.sort(key=lambda sketch: sketch[0])
    for bound, family, arrays in sketches:
        if bound > state.value + TIE or (state.work >= state.budget and state.met):
            state.closed = min(state.closed, bound)
            continue
        numbers = setup.numbers(family, arrays)
        keep = borders(numbers, BLOCKS)
        short = contracted(numbers, keep)
        choice, _ = first_plan(short)
        if choice.classes:
            choice = shaken(short, choice)
            choice = _improved(state, short, choice, keep)
            if choice.value <= (1 + REFINED) * state.value:
                choice = _refined(state, numbers, choice)
            _meet(state, order, setup, family, choice)
        state.opened.append(_Opened(order, setup, family, numbers, bound))


def _improved(state: _State, short: Numbers, choice: Choice, keep: Ints) -> Choice:
    """The best choice over blocks that the budget of one family finds, in layers."""
    budget = min(FAMILY_WORK, max(0, int(PLAN_SHARE * state.budget) - state.work))
    choice, work, _ = improve(short, choice, choice.value, budget)
    state.work += work
    return choice._replace(first=widened(choice.first, keep))


def _refined(state: _State, numbers: Numbers, choice: Choice) -> Choice:
    """The choice with its cuts moved by layers, together and one by one, until that no longer helps."""
    value = math.inf
    while choice.value < value - TIE:
        value = choice.value
        choice = _climbed(numbers, choice)
        near = [np.arange(first - NEAR_LAYERS, first + NEAR_LAYERS + 1) for first in choice.first]
        wanted = np.concatenate([borders(numbers, NEAR_BLOCKS), *near])
        keep = np.unique(wanted[(wanted >= 0) & (wanted <= numbers.num_layers)])
        start = choice._replace(first=tuple(int(k) for k in np.searchsorted(keep, choice.first)))
        choice = _improved(state, contracted(numbers, keep), start, keep)
    return choice


def _climbed(numbers: Numbers, choice: Choice) -> Choice:
    """The choice with its cuts moved layer by layer."""
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = (np.zeros(numbers.max_stages + 2, np.int64) for _ in range(2))
    n = len(choice.classes)
    classes[:n], first[:n] = choice.classes, choice.first
    n, value, _ = climb(numbers, room, n, classes, first, choice.value, CLIMB_WORK)
    return Choice(float(value), tuple(int(c) for c in classes[:n]), tuple(int(i) for i in first[:n]))


def _meet(state: _State, order: Sequence[int], setup: Setup, family: Family, choice: Choice) -> None:
    starts = [*reversed(choice.first), len(order)]
    samples = min(family.samples, setup.problem.job.batch.total)
    assignment = Assignment(
        stages=tuple(
            StageChoice(layers=tuple(sorted(order[first:end])), devices=(device,), samples=(samples,))
            for (first, end), device in zip(
                pairwise(starts), setup.classes.representatives(tuple(reversed(choice.classes))), strict=True
            )
        ),
        microbatches=microbatch_sizes(setup.problem.job.batch.total, family.samples),
        schedule=family.schedule,
    )
    state.met.append((choice.value, assignment))
    state.value = min(state.value, choice.value)


def _prove(state: _State) -> None:
    """Raise the bounds of the open families, with ever more blocks while the gap is wide and work is left."""
    for count in FINER:
        wide = [entry for entry in state.opened if entry.bound * NARROW < state.value]
        wide.sort(key=lambda entry: entry.bound)
        for position, entry in enumerate(wide):
            if not state.left:
                return
            _raise(state, entry, count, state.left // (len(wide) - position))


def _raise(state: _State, entry: _Opened, count: int, budget: int) -> None:
    """Prove as high a share of the best value as the budget allows for one family."""
    loose = loosened(entry.numbers, borders(entry.numbers, count))
    spent = 0
    for share in SHARES:
        target = share * state.value
        if target <= entry.bound:
            continue
        if spent >= budget:
            break
        found, work, complete = improve(loose, NOTHING, target, (budget - spent) * 2 // 3)
        spent += work
        if not complete:
            break
        entry.bound = max(entry.bound, min(target, found.value))
        if found.classes:  # the best of all with these blocks
            break
    state.work += spent
