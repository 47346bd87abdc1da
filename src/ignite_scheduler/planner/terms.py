"""Deadline and budget of the job: a plan that breaks them is exchanged for one that keeps them, or refused."""

from __future__ import annotations

from dataclasses import replace

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.answers import late, too_dear
from ignite_scheduler.planner.catalogue import catalogue
from ignite_scheduler.planner.problem import Problem


def held(problem: Problem, made: Plan, fastest: Plan | None) -> Plan | Infeasible:
    """``made`` if it keeps deadline and budget; else the best plan of the catalogue that does, or the refusal.

    ``fastest`` is the plan of least step time where ``made`` has another objective, else None.
    """
    queue = problem.job.queue
    if queue.budget is not None and made.predicted.cost is None:
        return replace(made, warnings=(*made.warnings, "queue.budget cannot be held: prices or steps are unknown"))
    if _in_time(problem, made) and _in_budget(problem, made):
        return made
    quickest = fastest or made
    if not _in_time(problem, quickest):
        assert queue.deadline is not None
        return late(quickest, queue.deadline, quickest.bound.optimal)
    offers = catalogue(replace(problem, objective="time"))
    if isinstance(offers, Infeasible):  # it is made over fewer plans than the search
        offers = ()
    fitting = [offer for offer in (*offers, quickest) if _in_time(problem, offer) and _in_budget(problem, offer)]
    if not fitting:
        assert queue.budget is not None
        return too_dear((*offers, quickest), queue.budget, problem.cluster.currency)
    chosen = min(fitting, key=lambda offer: _worth(problem, offer))
    limit = "queue.budget" if _in_time(problem, made) else "queue.deadline"
    return replace(chosen, warnings=(*chosen.warnings, f"{limit} rules out the best plan without it"))


def _in_time(problem: Problem, made: Plan) -> bool:
    deadline, duration = problem.job.queue.deadline, made.predicted.latest
    return deadline is None or duration is None or duration <= deadline


def _in_budget(problem: Problem, made: Plan) -> bool:
    budget, cost = problem.job.queue.budget, made.predicted.cost
    return budget is None or cost is None or cost <= budget


def _worth(problem: Problem, made: Plan) -> tuple[float, float]:
    """The objective, then the step."""
    found = made.predicted
    value = {"time": found.step, "cost": found.cost, "energy": found.energy}[problem.objective]
    return (found.step if value is None else value, found.step)
