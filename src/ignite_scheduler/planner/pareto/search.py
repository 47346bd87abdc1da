"""The Pareto set of one job: from a problem to plans of which no other is better in all objectives.

Straight pipelines come from the exact search (:mod:`.exact`) where multisets of devices can be listed, and from the
islands (:mod:`.islands`) where they cannot or where the exact search was ended by its budget. Where the request permits
stages of several devices or memory actions, the best such chain of every multiset joins them (:mod:`.grouped`). All go
through :func:`ignite_scheduler.cost.evaluate`, and what is left when the covered ones are gone is the set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Bound, Infeasible, Plan
from ignite_scheduler.planner.answers import no_chain, no_plan, not_found
from ignite_scheduler.planner.build import assignment_of, built
from ignite_scheduler.planner.pace import least_step
from ignite_scheduler.planner.pareto.exact import Front, exact_front
from ignite_scheduler.planner.pareto.front import nondominated
from ignite_scheduler.planner.pareto.grouped import grouped
from ignite_scheduler.planner.pareto.islands import islands_front
from ignite_scheduler.planner.pareto.objectives import Criterion, Figures, checked, figures, losses
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.setup import Setup, prepare

ISLANDS_WORK: Final = 300_000
"""Pipelines that the islands time at most."""


class Met(NamedTuple):
    """Assignments that were met, whether none better is missing, the work spent and how they were found."""

    met: tuple[Assignment, ...]
    complete: bool
    work: int
    method: str


NOTHING: Final = Met((), False, 0, "")


class Point(NamedTuple):
    """A plan of the set and its objectives."""

    plan: Plan
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet:
    """Plans of which no other is as good in all of ``criteria``, by rising values of these.

    ``complete``: it is proven that no permitted plan is missing. ``work`` is in pipelines timed.
    """

    criteria: tuple[Criterion, ...]
    points: tuple[Point, ...]
    complete: bool
    work: int


def pareto(problem: Problem, criteria: Sequence[str] | None = None, *, seed: int = 0) -> ParetoSet | Infeasible:
    """The Pareto set of a job; or why there is no plan.

    Parameters
    ----------
    problem
        Its own objective has no part in this.
    criteria
        Some of :data:`~ignite_scheduler.planner.pareto.objectives.CRITERIA`; None = time, money and devices, without
        money where a price is unknown.
    seed
        Of the random numbers of the search for large problems.

    Raises
    ------
    InputError, NotFoundError
        As :func:`ignite_scheduler.planner.plan`; or an objective needs a figure that the cluster does not give.
    """
    setup = prepare(replace(problem, objective="time"))
    if isinstance(setup, Infeasible):
        return setup
    asked = checked(criteria, setup.request.devices)
    found = _straight(setup, asked, seed) if setup.request.straight else NOTHING
    if not setup.request.only_straight:
        found = _with_groups(setup, asked, found)
    if not found.met and setup.classes.wide:
        return not_found(setup.classes)
    if not found.met and not setup.request.only_straight:
        return no_chain(setup.request)
    if not found.met:
        return no_plan(problem, setup.classes, setup.model, setup.permit, setup.families)
    return _set(setup, asked, found)


def _straight(setup: Setup, criteria: tuple[Criterion, ...], seed: int) -> Met:
    """Good straight pipelines."""
    budget = setup.problem.work
    exact = Front((), False, 0) if setup.classes.wide else exact_front(setup, criteria, budget)
    if exact.complete:
        return _met(setup, exact, "every multiset of devices looked at, complete")
    source = np.random.default_rng(seed)
    found = islands_front(setup, criteria, min(budget, ISLANDS_WORK), source, exact.chosen)
    found = found._replace(work=found.work + exact.work)
    return _met(setup, found, "islands of weighted objectives with a shared archive")


def _met(setup: Setup, front: Front, method: str) -> Met:
    return Met(tuple(assignment_of(setup, *chosen) for chosen in front.chosen), front.complete, front.work, method)


def _with_groups(setup: Setup, criteria: tuple[Criterion, ...], straight: Met) -> Met:
    """The same with chains of groups beside the straight pipelines."""
    found = grouped(setup, criteria, straight.met, setup.problem.work)
    method = "the best chain of groups on every multiset of devices looked at"
    method += ", complete" if found.complete else ", stopped by its budget of work"
    return Met((*straight.met, *found.met), found.complete, straight.work + found.work, method)


def _set(setup: Setup, criteria: tuple[Criterion, ...], found: Met) -> ParetoSet:
    """What none covers of the assignments that were met, as plans."""
    problem, contended = setup.problem, setup.classes.contended
    every = [figures(problem, assignment) for assignment in found.met]
    values = [losses(one, criteria) for one in every]
    kept = nondominated(values)
    complete = found.complete and not contended and not setup.narrowed
    low = min(every[place].time for place in kept) if complete and "time" in criteria else least_step(setup.request)
    method = f"Pareto set over {', '.join(criteria)}: {found.method}"
    if contended:
        method = f"{method}; transfers that wait for a shared wire are in the step, not in the bound"
    points = []
    for place in kept:
        step = every[place].time
        least = min(low, step)
        bound = Bound(
            step=least,
            gap=step / least - 1 if least > 0 else math.inf,
            method=method,
            optimal=complete and step <= least,
        )
        points.append(Point(built(problem, found.met[place], bound), every[place]))
    return ParetoSet(criteria=criteria, points=tuple(points), complete=complete, work=found.work)
