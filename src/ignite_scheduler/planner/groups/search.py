"""Chains of groups for one job, searched over all families.

Theory of operation
-------------------
A stage is a *group*: some devices that deal the samples of each microbatch among them by their speed. Devices that do
not differ are one class (:mod:`ignite_scheduler.planner.instance`), a group is a multiset of classes, and a chain is a
sequence of groups with the first layer of each. Data parallelism alone is the chain of one stage, a straight pipeline
the one whose groups are single devices, and everything between comes out of the same search.

1. :mod:`.layout` lists groups and which go together; :mod:`.costs` and :mod:`.stage` say what a run of layers costs on
   one, with the cheapest permitted memory actions where it does not fit without; :mod:`.field` has all of it for one
   family (schedule, microbatch) as arrays.
2. Families are visited by a quick bound; one that cannot beat the best chain so far is proven no better.
3. In a family (:mod:`.solve`): local search on the exact step from many starts (:mod:`.climb`, :mod:`.exact`); tables
   of what lies in front and behind (:mod:`.tables`), which also decide feasibility exactly; branch and bound over
   suffixes (:mod:`.tree`).

What is searched, and what the bound therefore speaks of: chains whose neighbouring groups are linked, each device with
each; a sample for each replica, the rest by :func:`ignite_scheduler.cost.balanced_shares` over the whole model's
seconds, shifted off devices that overflow; replicas in order of node, speed, id; memory actions by
:func:`.stage.cheapest`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.groups.choose import Choice, assignment_of, choice_of, value_of
from ignite_scheduler.planner.groups.costs import Costs, for_family, make_costs, permitted
from ignite_scheduler.planner.groups.field import make_field
from ignite_scheduler.planner.groups.layout import MOST_SETS, Layout, make_layout
from ignite_scheduler.planner.groups.memory import least_work
from ignite_scheduler.planner.groups.solve import (
    TARGETS,
    Task,
    climbed,
    filled,
    first_choices,
    make_task,
    proven,
    shaken,
)
from ignite_scheduler.planner.instance import Model, group, model_arrays
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import goal_of
from ignite_scheduler.planner.solve import Goal
from ignite_scheduler.planner.tree import TIE

NUM_OTHERS: Final = 6
"""Good chains that are handed back beside the best."""

MOST_ENTRIES: Final = 6_000_000
"""Groups times layers squared that the arrays of a family may hold."""

STARTS: Final = 4
"""The best of the first chains that local search starts from."""

MANY_RUNS: Final = 100_000
"""Groups times cuts squared from which a chain over few cuts comes first where memory is limited."""

COARSE_CUTS: Final = 12
COARSE_SHARE: Final = 20
"""Cuts of that chain at most, and the part of the budget that it may take."""

SEED: Final = 12345
"""Of the random numbers of local search: plans are repeatable."""

FIRST_PROOF: Final = 200_000
"""Pipelines timed in the first proof of a family; what is left of the budget goes to those still open."""


@dataclass(slots=True)
class Best:
    """The best chain over all families so far, the families' bounds that were not proven away, and the work spent."""

    value: float = math.inf
    assignment: Assignment | None = None
    others: list[tuple[float, Assignment]] = field(default_factory=list)
    work: int = 0


class Opened(NamedTuple):
    """A family that may hold a better chain: a bound on its value, and a good chain in it."""

    bound: float
    task: Task
    choice: Choice


class Instance(NamedTuple):
    """A request in arrays."""

    problem: Problem
    request: Request
    layout: Layout
    model: Model
    costs: Costs
    goal: Goal


def fits_here(request: Request) -> bool:
    """Whether the devices form few enough groups for this search."""
    classes = group(request.problem.cluster, request.devices)
    size = len(request.problem.profile.layers) + 1
    return classes.num_sets <= MOST_SETS and classes.num_sets * size**2 <= MOST_ENTRIES


def search(problem: Problem, request: Request, incumbent: Assignment | None = None) -> Found:
    """The best chain of groups that the request permits, and what is proven about all of them.

    Parameters
    ----------
    incumbent
        An assignment that is known already, a straight one say: what is no better is not looked for.

    Notes
    -----
    ``Found.best`` is None where nothing better than the incumbent was found; with ``complete`` there is nothing.
    Values within 1e-9 are equal; of equal ones the one with fewer devices is preferred as far as it is met.
    """
    if not fits_here(request):
        return Found(best=None, bound=0.0, method="chains of groups: too many to list", complete=False)
    instance = make_instance(problem, request)
    if not len(instance.layout.groups.size):
        return Found(best=None, bound=math.inf, method="chains of groups: no devices make a group", complete=True)
    best = Best()
    if incumbent is not None:
        best.value = value_of(problem, incumbent)
    elif request.replicas is None and np.isfinite(instance.costs.memory).any():
        _single(request, best)
    many = len(request.cuts) > COARSE_CUTS and len(instance.layout.usage) * len(request.cuts) ** 2 > MANY_RUNS
    if many and np.isfinite(instance.costs.memory).any():
        _coarse(request, incumbent, best)
    opened: list[Opened] = []
    bound = math.inf
    for quick, family in sorted((quick_bound(instance, family), family) for family in request.families):
        if quick >= best.value - TIE:
            bound = min(bound, max(quick, best.value))
            continue
        if best.work >= problem.work:
            bound = min(bound, quick)
            continue
        most = best.value * (1 + 1e-9) if problem.objective == "time" else math.inf
        made = make_field(request, instance.layout, instance.model, instance.costs, family, instance.goal, most)
        task = make_task(made, instance.layout)
        left, choice = _open(instance, task, incumbent, best)
        if left < math.inf:
            opened.append(Opened(max(quick, left), task, choice))
    opened = _prove(instance, opened, best, FIRST_PROOF)
    _shake(instance, opened, best)
    opened = _prove(instance, opened, best, problem.work)
    complete = not opened and bound >= best.value - TIE
    bound = min([bound, best.value, *(entry.bound for entry in opened)])
    return Found(
        best=best.assignment,
        value=best.value,
        bound=bound,
        method="branch and bound over chains of groups",
        complete=complete,
        others=tuple(assignment for _, assignment in sorted(best.others, key=lambda entry: entry[0])[:NUM_OTHERS]),
        work=best.work,
    )


def _single(request: Request, best: Best) -> None:
    """Begin with the best chain of single devices: what takes longer need not be fitted into memory."""
    _take(search(request.problem, replace(request, replicas=1)), best)


def _coarse(request: Request, incumbent: Assignment | None, best: Best) -> None:
    """Begin with the best chain over few cuts, quickly fitted into memory and with little proof."""
    problem = replace(request.problem, work=request.problem.work // COARSE_SHARE)
    cuts = request.cuts[:: -(-len(request.cuts) // COARSE_CUTS)]
    _take(search(problem, replace(request, problem=problem, cuts=cuts), best.assignment or incumbent), best)


def _take(found: Found, best: Best) -> None:
    best.work += found.work
    if found.best is not None:
        best.value, best.assignment = found.value, found.best
        best.others.append((found.value, found.best))


def make_instance(problem: Problem, request: Request) -> Instance:
    """The request in arrays."""
    classes = group(problem.cluster, request.devices)
    most = max(family.samples for family in request.families)
    costs = make_costs(problem.job, problem.profile, classes.devices, most, problem.memory_margin, permitted(request))
    return Instance(
        problem=problem,
        request=request,
        layout=make_layout(request, classes, costs),
        model=model_arrays(problem.job, problem.profile, problem.memory_margin),
        costs=costs,
        goal=goal_of(problem, classes.devices),
    )


def quick_bound(instance: Instance, family: Family) -> float:
    """A value that no chain of the family goes below: work shared out as if it could be cut anywhere.

    A sample of a layer takes a device of a class at least ρ = its least seconds a sample over all shares. With r = the
    largest ratio, over layers, of the least ρ of all classes to that of the class, the device does at most r seconds of
    that least work in a second; so a step lasts at least the least work of all samples ÷ Σ r, and costs at least that
    work times the least rate a unit of r.
    """
    costs = for_family(instance.costs, family.samples, family.last_samples)
    goal, counts = instance.goal, instance.layout.classes.counts
    least, ratio = least_work(costs)
    work = float(least.sum()) * instance.problem.job.batch.total
    rates = np.sort(np.repeat(ratio, counts))[::-1][: instance.request.max_devices]
    if work == 0 or rates.sum() == 0:
        return 0.0
    step = work / float(rates.sum())
    by_rate = min(float(goal.rate[c]) / float(ratio[c]) if ratio[c] > 0 else math.inf for c in range(len(ratio)))
    return goal.base_rate * step + by_rate * work


def _open(instance: Instance, task: Task, incumbent: Assignment | None, best: Best) -> tuple[float, Choice]:
    """A bound on the family's value, infinite where nothing is permitted, and a first chain."""
    starts = first_choices(task)[:STARTS]
    if incumbent is not None:
        known = choice_of(instance.layout, task.made.groups, incumbent)
        starts += task.worth([] if known is None else [known])
    bound = 0.0
    if not starts:
        starts, bound = filled(task)
        bound = best.value if bound == math.inf and best.value < math.inf else bound
    choice = climbed(task, starts, instance.problem.work - best.work)
    _accept(instance, task, choice, best)
    _count(task, best)
    return bound, choice


def _shake(instance: Instance, opened: list[Opened], best: Best) -> None:
    """Better chains in the families that a first proof has left open, best families first."""
    source = np.random.Generator(np.random.PCG64(SEED))
    for _, task, choice in sorted(opened, key=lambda entry: entry.choice):
        found = shaken(task, choice, source, max(0, instance.problem.work - best.work) // 2)
        _accept(instance, task, found, best)
        _count(task, best)


def _count(task: Task, best: Best) -> None:
    best.work += task.ground.spent
    task.ground.spent = 0


def _accept(instance: Instance, task: Task, choice: Choice, best: Best) -> None:
    """Keep the chain among the good ones, and as the best if it is."""
    if not choice.groups:
        return
    total = instance.problem.job.batch.total
    assignment = assignment_of(instance.layout, task.made, choice, total)
    value = value_of(instance.problem, assignment)
    best.others.append((value, assignment))
    if value < best.value - TIE or (value <= best.value + TIE and _fewer(assignment, best.assignment)):
        best.value, best.assignment = value, assignment


def _fewer(one: Assignment, other: Assignment | None) -> bool:
    return other is not None and len(one.devices) < len(other.devices)


def _prove(instance: Instance, opened: list[Opened], best: Best, share: int) -> list[Opened]:
    """Search each family for better chains with that much work at most; those still open, and their bounds."""
    still = []
    for position, entry in enumerate(sorted(opened, key=lambda entry: (entry.bound, entry.task.made.family))):
        if entry.bound >= best.value - TIE:
            continue
        left = min(share, max(0, instance.problem.work - best.work) // (len(opened) - position))
        choice, complete = proven(entry.task, best.value, left)
        _accept(instance, entry.task, choice, best)
        if not complete:
            bound = _raised(instance, entry.task, entry.bound, best, left)
            still.append(Opened(bound, entry.task, choice if choice.groups else entry.choice))
        _count(entry.task, best)
    return still


def _raised(instance: Instance, task: Task, bound: float, best: Best, budget: int) -> float:
    """A bound on the family, raised by shares of the best value as far as the budget goes."""
    until = task.ground.spent + budget
    for part in TARGETS:
        target = best.value * part
        if target <= bound:
            continue
        choice, complete = proven(task, target, max(0, until - task.ground.spent))
        _accept(instance, task, choice, best)
        if not complete or choice.groups:
            break
        bound = target
    return bound
