"""The planner: from a problem to a plan, or to the reason why there is none.

Theory of operation
-------------------
1. *Check and prepare* (:mod:`.setup`): devices, classes of interchangeable devices, permitted multisets and cuts,
   arrays.
2. *Families*: plans of one schedule and microbatch size. Each gets a quick bound; they are visited in that order,
   and a family whose bound is not below the best plan is skipped: it is proven no better.
3. *A family* (:mod:`.solve`): tables of least fill over (devices, first device, layer), which also decide feasibility
   exactly; first plans from them, local search on the exact step time, then branch and bound until bound and plan
   meet or the budget of work is spent.
4. *Answer*: the choice goes through :func:`ignite_scheduler.cost.evaluate`, the one place where figures come from.
   Optimality is claimed only if the evaluated step equals the proven bound. Where links share a wire the search does
   not see transfers wait for each other; the plans met are then compared by the full timeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.answers import no_plan, not_found
from ignite_scheduler.planner.build import alternative, assignment_of, build
from ignite_scheduler.planner.exhaustive import judge
from ignite_scheduler.planner.kernel import Numbers
from ignite_scheduler.planner.line import line_first_plan
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.setup import Setup, Sketch, prepare, quick_bound
from ignite_scheduler.planner.solve import (
    NOTHING,
    SHORT_WORK,
    Choice,
    first_plan,
    shaken,
    solve,
    table_work,
)
from ignite_scheduler.planner.terms import held
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.unused import Without, unused_reasons

NUM_ALTERNATIVES = 4

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


def plan(problem: Problem) -> Plan | Infeasible:
    """The best plan for one job, with a proven bound; or why there is none.

    Raises
    ------
    InputError
        The request contradicts itself, or the objective needs a figure that the cluster does not give.
    NotFoundError
        The request names a device that does not exist.

    Notes
    -----
    The family of plans that the bound speaks of: straight pipelines of one device a stage over the allowed devices, all
    orders, all cuts, GPipe and 1F1B, and the microbatch sizes of
    :func:`ignite_scheduler.planner.problem.microbatch_choices`, as far as the job leaves them open.
    """
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return setup
    best = optimise(setup, problem.work)
    if best.family is None and setup.classes.wide:
        return not_found(setup.classes)
    if best.family is None:
        return no_plan(problem, setup.classes, setup.model, setup.permit, setup.families)
    if setup.classes.contended:
        _settle_contention(setup, best)
    return _judge(setup, best)


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


def optimise(setup: Setup, budget: int) -> Best:
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
        if setup.classes.wide:
            choice, spent = line_first_plan(setup, numbers, max(0, budget - best.work))
            best.work += spent
            best.bound = min(best.bound, sketch.bound)
            _accept(best, choice, sketch.family)
            if best.work >= budget:
                break
            continue
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


def _judge(setup: Setup, best: Best) -> Plan | Infeasible:
    """Turn the best choice into a plan, held against deadline and budget."""
    assert best.family is not None
    bare = build(setup, best.choice, best.family, best.bound)
    queue = setup.problem.job.queue
    if queue.deadline is not None or queue.budget is not None:
        kept = held(setup.problem, bare, _fastest(setup.problem))
        if isinstance(kept, Infeasible) or kept.device_ids != bare.device_ids:
            return kept
        bare = kept
    ranked = sorted({entry for entry in best.others if entry != (best.choice, best.family)})
    return replace(
        bare,
        unused=unused_reasons(setup, Without(bare, best.choice, best.family)),
        alternatives=tuple(alternative(setup, *entry) for entry in ranked[:NUM_ALTERNATIVES]),
    )


def _fastest(problem: Problem) -> Plan | None:
    """The fastest plan where the objective is another, else None."""
    if problem.objective == "time":
        return None
    setup = prepare(replace(problem, objective="time"))
    assert not isinstance(setup, Infeasible)
    best = optimise(setup, problem.work)
    assert best.family is not None
    return build(setup, best.choice, best.family, best.bound)
