"""From a choice in class terms to a plan with all its figures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from ignite_scheduler.cost import Assignment, evaluate, microbatch_sizes, resolved_precision, straight
from ignite_scheduler.cost.iteration import UNBOUNDED
from ignite_scheduler.cost.outlook import foretold
from ignite_scheduler.model import Alternative, Bound, Plan
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.pace import least_step
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import Choice
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.units import format_duration

STRAIGHT = "branch and bound over chains of one device a stage"
"""How straight chains are searched."""


def assignment_of(setup: Setup, choice: Choice, family: Family) -> Assignment:
    """Devices, cuts and microbatches of a choice."""
    starts = [*reversed(choice.first), setup.model.num_layers]
    return straight(
        split=tuple(b - a for a, b in pairwise(starts)),
        devices=setup.classes.representatives(tuple(reversed(choice.classes))),
        microbatches=microbatch_sizes(setup.problem.job.batch.total, family.samples),
        schedule=family.schedule,
    )


def evaluated(problem: Problem, assignment: Assignment) -> Plan:
    """The plan of an assignment without bound or reasons."""
    return built(problem, assignment, UNBOUNDED)


def build(setup: Setup, choice: Choice, family: Family, bound: float) -> Plan:
    """The plan of a straight choice; ``bound`` is what no choice goes below in the problem's objective."""
    assignment = assignment_of(setup, choice, family)
    found = Found(best=assignment, value=choice.value, bound=bound, method=STRAIGHT)
    return built(setup.problem, assignment, bound_of(setup.request, found))


def built(problem: Problem, assignment: Assignment, bound: Bound) -> Plan:
    """The plan of an assignment, with its ranges where a calibration is known, warnings and resolved values."""
    plan = evaluate(
        problem.job,
        problem.profile,
        problem.cluster,
        assignment,
        memory_margin=problem.memory_margin,
        bound=bound,
        resolved=_resolved(problem, assignment),
    )
    if problem.calibration is not None:
        plan = foretold(plan, problem.job, problem.profile, problem.calibration)
    return replace(plan, warnings=(*_warnings(problem, plan), *plan.warnings))


def alternative(problem: Problem, assignment: Assignment) -> Alternative:
    """Another choice in short."""
    bare = evaluated(problem, assignment)
    return Alternative(
        devices=assignment.devices,
        num_layers=assignment.split,
        schedule=assignment.schedule,
        num_microbatches=len(assignment.microbatches),
        step=bare.predicted.step,
        cost=bare.predicted.cost,
    )


def _warnings(problem: Problem, bare: Plan) -> tuple[str, ...]:
    job, step, duration = problem.job, bare.predicted.step_high, bare.predicted.latest
    limit = job.queue.max_time
    if limit is None or duration is None or duration <= limit:
        return ()
    beside = max(0.0, duration - (job.steps or 0) * step)  # start-up and checkpoints, where they are known
    surely = "" if step == bare.predicted.step else "surely "
    return (
        f"max_time {format_duration(limit)} cannot {surely}hold the {job.steps} steps of {format_duration(step)}: "
        f"~{max(0, int((limit - beside) / step))} steps fit",
    )


def bound_of(request: Request, found: Found, step: float | None = None) -> Bound:
    """What is proven, in terms of the step time; ``step``, where it is known already, spares an evaluation."""
    problem = request.problem
    assert found.best is not None
    if step is None:
        step = evaluate(problem.job, problem.profile, problem.cluster, found.best).predicted.step
    value = step if problem.objective == "time" else found.value
    proven = found.bound >= value - TIE * max(1.0, abs(value))
    method = f"{found.method}, {'complete' if proven else 'stopped by its budget of work'}"
    if problem.objective == "time":
        lower = step if proven else min(step, found.bound)
    else:
        lower = min(step, least_step(request))
        method = f"step: work shared out among the devices; {problem.objective}: {method}"
    return Bound(step=lower, gap=step / lower - 1 if lower > 0 else math.inf, method=method, optimal=proven)


def _resolved(problem: Problem, assignment: Assignment) -> dict[str, object]:
    """Every value that was left to the planner, as it was resolved."""
    stages = assignment.stages
    widths = [len(stage.devices) for stage in stages]
    return {
        "stages": len(stages),
        "split": list(assignment.split),
        "devices": list(assignment.devices),
        "schedule": assignment.schedule,
        "micro": assignment.microbatches[0],
        "num_microbatches": len(assignment.microbatches),
        "replicas": widths[0] if len(set(widths)) == 1 else widths,
        "recompute": any(stage.recompute for stage in stages),
        "shard": any(stage.shard for stage in stages),
        "offload": any(stage.offload for stage in stages),
        "precision": resolved_precision(problem.job, problem.profile),
        "objective": problem.objective,
    }
