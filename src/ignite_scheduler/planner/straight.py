"""Straight chains of one device a stage: families, first plans, exact search.

Theory of operation
-------------------
1. *Families*: plans of one schedule and microbatch size. Each gets a quick bound; they are visited in that order,
   and a family whose bound is not below the best plan is skipped: it is proven no better.
2. *A family* (:mod:`.solve`): tables of least fill over (devices, first device, layer), which also decide feasibility
   exactly; first plans from them, local search on the exact step time, then branch and bound until bound and plan
   meet or the budget of work is spent.

Optimality is claimed only if the evaluated step equals the proven bound. Where links share a wire the search does not
see transfers wait for each other; the plans met are then compared by the full timeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ignite_scheduler.planner.build import STRAIGHT, assignment_of
from ignite_scheduler.planner.exhaustive import judge
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.kernel import Numbers
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup, Sketch, quick_bound
from ignite_scheduler.planner.solve import (
    NOTHING,
    SHORT_WORK,
    Choice,
    first_plan,
    shaken,
    solve,
    table_work,
)
from ignite_scheduler.planner.tree import TIE

NUM_OTHERS = 24

LARGE_TABLE = 40_000
"""Tables of that much work halve the budget."""


FEW_FAMILIES = 2
"""More families than these get a short search each before the budget is shared among those that are still open."""

NEAR = 1.1
"""First plans within this factor of the best so far are worth another effort."""

Opened = tuple[float, Family, Numbers]
"""A family that may hold a better plan, with a bound on all its plans."""


@dataclass(slots=True)
class Best:
    """The best choice over all families so far, with what is proven about the rest."""

    choice: Choice
    family: Family | None
    bound: float
    work: int
    others: list[tuple[Choice, Family]]


def search(setup: Setup) -> Found:
    """The best straight chain, and what is proven about all of them.

    ``best`` is None where there is none: the tables prove it.
    """
    best = _optimise(setup, setup.problem.work)
    if best.family is None:
        return Found(best=None, complete=True, work=best.work)
    if setup.classes.contended:
        _settle_contention(setup, best)
    bound = 0.0 if setup.narrowed else best.bound
    chosen = assignment_of(setup, best.choice, best.family)
    value = judge(setup, chosen).value if setup.classes.contended else best.choice.value
    met = sorted({entry for entry in best.others if entry != (best.choice, best.family)})
    return Found(
        best=chosen,
        value=value,
        bound=bound,
        method=_method(setup),
        complete=bound >= value - TIE,
        others=tuple(assignment_of(setup, *entry) for entry in met[:NUM_OTHERS]),
        work=best.work,
    )


def _method(setup: Setup) -> str:
    if setup.narrowed:
        return "resources.any_of over many devices: the first of each kind by id were taken, others are not looked at"
    if setup.classes.contended:
        return f"{STRAIGHT}; transfers that wait for a shared wire are in the step, not in the bound"
    return STRAIGHT


def _settle_contention(setup: Setup, best: Best) -> None:
    """Choose again among the plans met, by the timeline with shared wires, which the search leaves out.

    Without waiting for wires a step is no longer, so that the bound holds.
    """
    assert best.family is not None
    met = sorted({*best.others, (best.choice, best.family)})
    keys = [judge(setup, assignment_of(setup, *entry)) for entry in met]
    chosen = 0
    for index, key in enumerate(keys):
        if key.beats(keys[chosen]):
            chosen = index
    best.choice, best.family = met[chosen]


def _optimise(setup: Setup, budget: int) -> Best:
    """The best choice over all families."""
    best = Best(NOTHING, None, math.inf, 0, [])
    sketches = []
    for family in setup.families:
        arrays = setup.arrays(family)
        sketches.append(Sketch(setup.as_value(quick_bound(setup, arrays, family)), family, arrays))
    sketches.sort(key=lambda sketch: sketch.bound)
    opened: list[Opened] = []
    for sketch in sketches:
        if sketch.bound > best.choice.value + TIE:
            best.bound = min(best.bound, sketch.bound)
            continue
        numbers = setup.numbers(sketch.family, sketch.arrays)
        choice, step_bound = first_plan(numbers)
        if choice.value < NEAR * best.choice.value:
            choice = shaken(numbers, choice)
        if step_bound == math.inf:
            continue  # nothing fits, and the tables prove it
        opened.append((max(sketch.bound, setup.as_value(step_bound)), sketch.family, numbers))
        _accept(best, choice, sketch.family)
    if opened:  # in large tables each step of the search waits for memory
        budget = int(budget / (1 + table_work(opened[0][2]) / LARGE_TABLE))
    opened.sort(key=lambda entry: (entry[1].schedule != "gpipe", entry[0]))  # GPipe is proven quickest
    if len(opened) > FEW_FAMILIES:  # most are proven no better at once; what they leave goes to the others
        opened = _search_families(best, opened, lambda left: SHORT_WORK)
    for bound, _, _ in _search_families(best, opened, lambda left: max(1, (budget - best.work) // left)):
        best.bound = min(best.bound, bound)
    best.bound = min(best.bound, best.choice.value)
    return best


def _search_families(best: Best, opened: list[Opened], share: Callable[[int], int]) -> list[Opened]:
    """Search each family with a share of work that depends on how many are left; those still open, and their bounds."""
    still = []
    for position, (bound, family, numbers) in enumerate(opened):
        if bound > best.choice.value + TIE:
            continue
        outcome = solve(numbers, best.choice, bound, share(len(opened) - position))
        best.work += outcome.work
        if outcome.choice != best.choice:
            best.choice, best.family = outcome.choice, family
            best.others.append((best.choice, family))
        if outcome.bound < outcome.choice.value:
            still.append((outcome.bound, family, numbers))
    return still


def _accept(best: Best, choice: Choice, family: Family) -> None:
    if not choice.classes or choice.value == math.inf:
        return
    best.others.append((choice, family))
    if best.family is None or choice.value < best.choice.value - TIE:
        best.choice, best.family = choice, family
