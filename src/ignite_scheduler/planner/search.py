"""The planner: from a problem to a plan, or to the reason why there is none.

Theory of operation
-------------------
1. *The request* (:mod:`.request`): checked once; what contradicts itself or cannot be is refused before any search.
2. *Searches*, each over a family of plans that the request permits, each handing back its best assignment by the exact
   timeline and a bound: straight chains of one device a stage (:mod:`.straight`), chains of groups with memory actions
   (:mod:`.groups` where devices form few enough groups, :mod:`.large` elsewhere), stage graphs (:mod:`.graphs`) and
   virtual workers (:mod:`.workers`). What one found is what the next has to beat.
3. *The bound* speaks of all chains that the request permits where the plan is a chain, of graphs of single devices too
   where it is such a graph, and of plans of every kind where it has virtual workers.
4. *Answer*: the choice goes through :func:`ignite_scheduler.cost.evaluate`, the one place where figures come from; the
   reasons come from :mod:`.why` and :mod:`.unused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner import groups, large, straight, workers, workers_bound
from ignite_scheduler.planner.answers import no_chain, no_plan, with_freer
from ignite_scheduler.planner.build import alternative, bound_of, built
from ignite_scheduler.planner.coarse import MOST_LAYERS, search_in_runs
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.graphs import linear
from ignite_scheduler.planner.graphs import search as graphs
from ignite_scheduler.planner.neighbours import distinct
from ignite_scheduler.planner.pace import least_step
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.setup import goal_of, prepare
from ignite_scheduler.planner.terms import held
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.unused import unused_reasons
from ignite_scheduler.planner.weighed import value_of_choice
from ignite_scheduler.planner.why import reasons

NUM_ALTERNATIVES = 4

MANY_LAYERS = 160
"""Models of more layers are searched in blocks of them."""

MOST_LINEAR = 2_000
"""Models of more layers have no tables over all of them."""

START_SHARE = 20
"""Part of the budget that goes to straight chains where they are only a start for groups."""

LONG_SHARE = 4
"""Part of the budget that goes to straight chains of many layers where nothing else is permitted."""

Search = Callable[[Problem, Request, Assignment | None], Found]


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
    chain = _in_runs(request) if len(request.problem.profile.layers) > MOST_LAYERS else _chains(request)
    found = chain if isinstance(chain, Found) else None
    proven = 0.0 if found is None else found.bound
    for search in _beyond_chains(request):
        known = () if found is None or found.best is None else (found.best, *found.others)
        other = search(request.problem, request, known[0] if known else None)
        if other.best is not None and (found is None or other.value < found.value - TIE):
            low = workers_bound.least_value(request, other.value) if search is workers.search else other.bound
            proven = max(min(proven, low), _any_plan(request))
            found = replace(other, bound=proven, others=(*other.others, *known))
    return chain if found is None else found


def _in_runs(request: Request) -> Found | Infeasible:
    """The best chain over a model of very many layers: straight ones in blocks of layers, others in runs of them."""
    found = Found(best=None)
    if request.straight and not request.classes.wide and len(request.problem.profile.layers) <= MOST_LINEAR:
        share = LONG_SHARE if request.only_straight else START_SHARE
        problem = replace(request.problem, work=request.problem.work // share)
        found = linear.search(problem, request, None)
        if found.best is not None and request.only_straight:
            return found
    chain = search_in_runs(request, _chains, found.best)
    if found.best is None:
        return chain
    if isinstance(chain, Infeasible) or chain.best is None:
        return replace(found, bound=_any_plan(request))
    first, second = (found, chain) if found.value < chain.value + TIE else (chain, found)
    assert second.best is not None
    return replace(first, bound=min(chain.bound, first.value), others=(*first.others, second.best))


def _chains(request: Request, incumbent: Assignment | None = None) -> Found | Infeasible:
    """The best chain of stages, and what is proven about all chains that are permitted.

    With an incumbent straight chains have been looked at before, unless nothing else is permitted; where none is better
    nothing is found.
    """
    known = None
    if request.straight and not request.classes.wide and (incumbent is None or request.only_straight):
        if request.only_straight:
            return _straight(request)
        work = request.problem.work // START_SHARE  # proofs are left to the search for groups
        answer = _straight(replace(request, problem=replace(request.problem, work=work)))
        known = answer if isinstance(answer, Found) else None
    search = groups.search if groups.fits_here(request) else large.search
    found = search(request.problem, request, incumbent if known is None else known.best)
    if search is large.search and found.best is not None and request.problem.objective == "energy":
        found = replace(found, value=value_of_choice(request.problem, found.best))  # it looks at the step alone
    if known is None and incumbent is not None:
        return found
    if known is None:
        return found if found.best is not None else no_chain(request)
    assert known.best is not None
    if found.best is None or known.value <= found.value:
        return replace(known, bound=min(found.bound, known.value), method=found.method)
    return replace(found, others=(*found.others, known.best, *known.others))


def _beyond_chains(request: Request) -> Iterator[Search]:
    """Searches for plans that are no chains, as far as the request permits such plans."""
    if "graph" in request.problem.abilities:
        yield graphs.search
    few = len(request.problem.profile.layers) <= MOST_LAYERS
    if "workers" in request.problem.abilities and few:
        yield workers.search


def _any_plan(request: Request) -> float:
    """A value that no plan of any kind goes below."""
    if request.problem.objective == "energy":  # idle power may be nothing
        return 0.0
    goal = goal_of(request.problem, request.devices)
    return least_step(request) * (goal.base_rate + float(goal.rate.min()))


def _straight(request: Request) -> Found | Infeasible:
    if len(request.problem.profile.layers) > MANY_LAYERS:
        found = linear.search(request.problem, request, None)
        if found.best is not None:
            return found
    setup = prepare(request.problem)
    if isinstance(setup, Infeasible):
        return setup
    found = straight.search(setup)
    if found.best is not None:
        return found
    return with_freer(request, no_plan(request.problem, setup.classes, setup.model, setup.permit, setup.families))


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
        alternatives=tuple(sorted((alternative(problem, other) for other in others), key=lambda other: other.step)),
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
