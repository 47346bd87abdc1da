"""The planner: from a problem to a plan, or to the reason why there is none.

Theory of operation
-------------------
1. *The request* (:mod:`.request`): checked once; what contradicts itself or cannot be is refused before any search.
2. *Searches*, each over a family of plans that the request permits, each handing back its best assignment by the exact
   timeline and a bound: straight chains of one device a stage (:mod:`.straight`), chains of groups with memory actions
   (:mod:`.groups` where devices form few enough groups, :mod:`.large` elsewhere), stage graphs (:mod:`.graphs`) and
   virtual workers (:mod:`.workers`). What one found is what the next has to beat.
3. *The bound* is that of all chains that the request permits. Graphs and virtual workers are looked at because they
   can be better; the bound does not speak of them, and where one of them is the plan, it is what no plan of any kind
   goes below.
4. *Answer*: the choice goes through :func:`ignite_scheduler.cost.evaluate`, the one place where figures come from; the
   reasons come from :mod:`.why` and :mod:`.unused`.
"""

from __future__ import annotations

from dataclasses import replace

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner import straight
from ignite_scheduler.planner.answers import no_plan, not_found
from ignite_scheduler.planner.build import alternative, bound_of, built
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.neighbours import distinct
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.setup import prepare
from ignite_scheduler.planner.terms import held
from ignite_scheduler.planner.unused import unused_reasons
from ignite_scheduler.planner.why import reasons

NUM_ALTERNATIVES = 4


def plan(problem: Problem) -> Plan | Infeasible:
    """The best plan for one job, with a proven bound; or why there is none.

    Raises
    ------
    InputError
        The request contradicts itself, or the objective needs a figure that the cluster does not give.
    NotFoundError
        The request names a device that does not exist.
    """
    request = requested(problem)
    if isinstance(request, Infeasible):
        return request
    found = best(request)
    if isinstance(found, Infeasible):
        return found
    return _answer(request, found)


def best(request: Request) -> Found | Infeasible:
    """The best assignment over all families of plans that the request permits."""
    return _straight(request)


def _straight(request: Request) -> Found | Infeasible:
    setup = prepare(request.problem)
    if isinstance(setup, Infeasible):
        return setup
    found = straight.search(setup)
    if found.best is not None:
        return found
    if setup.classes.wide:
        return not_found(setup.classes)
    return no_plan(request.problem, setup.classes, setup.model, setup.permit, setup.families)


def _answer(request: Request, found: Found) -> Plan | Infeasible:
    """Turn the best assignment into a plan, held against deadline and budget, with its reasons."""
    problem = request.problem
    assert found.best is not None
    bare = built(problem, found.best, bound_of(request, found))
    queue = problem.job.queue
    if queue.deadline is not None or queue.budget is not None:
        kept = held(problem, bare, _fastest(problem))
        if isinstance(kept, Infeasible) or kept.stages != bare.stages:
            return kept
        bare = kept
    others = distinct(found.best, found.others, NUM_ALTERNATIVES)
    return replace(
        bare,
        unused=unused_reasons(request, found.best, bare),
        alternatives=tuple(alternative(problem, other) for other in others),
        why=reasons(problem, found.best),
    )


def _fastest(problem: Problem) -> Plan | None:
    """The fastest plan where the objective is another, else None."""
    if problem.objective == "time":
        return None
    request = requested(replace(problem, objective="time"))
    assert not isinstance(request, Infeasible)
    found = best(request)
    assert isinstance(found, Found)
    assert found.best is not None
    return built(request.problem, found.best, bound_of(request, found))
