"""The planner: from a problem to a plan, or to the reason why there is none.

Theory of operation
-------------------
1. *Check and prepare* (:mod:`.setup`): devices, classes of interchangeable devices, permitted multisets and cuts, arrays.
2. *Families*: plans of one schedule and microbatch size. Each gets a quick bound; they are visited in that order,
   and a family whose bound is not below the best plan is skipped: it is proven no better.
3. *A family* (:mod:`.solve`): tables of least fill over (devices, first device, layer), which also decide feasibility
   exactly; first plans from them, local search on the exact step time, then branch and bound until bound and plan
   meet or the budget of work is spent.
4. *Answer*: the choice goes through :func:`ignite_scheduler.cost.evaluate`, the one place where figures come from.
   Optimality is claimed only if the evaluated step equals the proven bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.answers import late, no_plan
from ignite_scheduler.planner.build import alternative, build
from ignite_scheduler.planner.kernel import Numbers
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.setup import Setup, Sketch, prepare, quick_bound
from ignite_scheduler.planner.solve import NOTHING, Choice, first_plan, solve
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.unused import Without, unused_reasons

NUM_ALTERNATIVES = 4


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
    orders, all cuts, GPipe and 1F1B, and one microbatch size for each number of microbatches
    (:func:`ignite_scheduler.planner.problem.microbatch_choices`), as far as the job leaves them open.
    """
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return setup
    best = optimise(setup, problem.work)
    if best.family is None:
        return no_plan(problem, setup.classes, setup.model, setup.permit, setup.families)
    return _judge(setup, best)


def optimise(setup: Setup, budget: int) -> Best:
    """The best choice over all families."""
    best = Best(NOTHING, None, math.inf, 0, [])
    sketches = []
    for family in setup.families:
        arrays = setup.arrays(family)
        sketches.append(Sketch(setup.as_value(quick_bound(setup, arrays, family)), family, arrays))
    sketches.sort(key=lambda sketch: sketch.bound)
    opened: list[tuple[float, Family, Numbers]] = []
    for sketch in sketches:
        if sketch.bound > best.choice.value + TIE:
            best.bound = min(best.bound, sketch.bound)
            continue
        numbers = setup.numbers(sketch.family, sketch.arrays)
        choice, step_bound = first_plan(numbers)
        if step_bound == math.inf:
            continue  # nothing fits, and the tables prove it
        opened.append((max(sketch.bound, setup.as_value(step_bound)), sketch.family, numbers))
        _accept(best, choice, sketch.family)
    opened.sort(key=lambda entry: entry[0])
    for position, (bound, family, numbers) in enumerate(opened):
        share = max(1, (budget - best.work) // (len(opened) - position))
        if bound > best.choice.value + TIE:
            best.bound = min(best.bound, bound)
            continue
        outcome = solve(numbers, best.choice, bound, share)
        best.work += outcome.work
        if outcome.choice != best.choice:
            best.choice, best.family = outcome.choice, family
            best.others.append((best.choice, family))
        best.bound = min(best.bound, outcome.bound)
    return best


def _accept(best: Best, choice: Choice, family: Family) -> None:
    if not choice.classes or choice.value == math.inf:
        return
    best.others.append((choice, family))
    if best.family is None or choice.value < best.choice.value - TIE:
        best.choice, best.family = choice, family


def _judge(setup: Setup, best: Best) -> Plan | Infeasible:
    """Turn the best choice into a plan, held against the deadline."""
    assert best.family is not None
    made = build(setup, best.choice, best.family, best.bound)
    deadline, duration = setup.problem.job.queue.deadline, made.predicted.duration
    if deadline is not None and duration is not None and duration > deadline:
        return late(made, deadline, made.bound.optimal)
    ranked = sorted({entry for entry in best.others if entry != (best.choice, best.family)})
    return build(
        setup,
        best.choice,
        best.family,
        best.bound,
        unused=unused_reasons(setup, Without(made, best.choice, best.family)),
        alternatives=tuple(alternative(setup, *entry) for entry in ranked[:NUM_ALTERNATIVES]),
    )
