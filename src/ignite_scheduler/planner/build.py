"""From a choice in class terms to a plan with all its figures."""

from __future__ import annotations

import math
from itertools import pairwise

from ignite_scheduler.cost import Assignment, evaluate, microbatch_sizes, resolved_precision, straight
from ignite_scheduler.cost.outlook import foretold
from ignite_scheduler.model import Alternative, Bound, Plan
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import Choice
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.units import format_duration


def assignment_of(setup: Setup, choice: Choice, family: Family) -> Assignment:
    """Devices, cuts and microbatches of a choice."""
    starts = [*reversed(choice.first), setup.model.num_layers]
    return straight(
        split=tuple(b - a for a, b in pairwise(starts)),
        devices=setup.classes.representatives(tuple(reversed(choice.classes))),
        microbatches=microbatch_sizes(setup.problem.job.batch.total, family.samples),
        schedule=family.schedule,
    )


def evaluated(setup: Setup, choice: Choice, family: Family) -> Plan:
    """The plan of a choice without bound or reasons."""
    problem = setup.problem
    plan = evaluate(
        problem.job,
        problem.profile,
        problem.cluster,
        assignment_of(setup, choice, family),
        memory_margin=problem.memory_margin,
    )
    return _ranged(setup, plan)


def build(setup: Setup, choice: Choice, family: Family, bound: float) -> Plan:
    """The plan of a choice; ``bound`` is what no choice goes below in the problem's objective."""
    problem = setup.problem
    bare = evaluated(setup, choice, family)
    assignment = assignment_of(setup, choice, family)
    plan = evaluate(
        problem.job,
        problem.profile,
        problem.cluster,
        assignment,
        memory_margin=problem.memory_margin,
        bound=_bound(setup, bare.predicted.step, choice.value, bound),
        warnings=_warnings(setup, bare),
        resolved=_resolved(setup, assignment, family),
    )
    return _ranged(setup, plan)


def _ranged(setup: Setup, plan: Plan) -> Plan:
    problem = setup.problem
    if problem.calibration is None:
        return plan
    return foretold(plan, problem.job, problem.profile, problem.calibration)


def alternative(setup: Setup, choice: Choice, family: Family) -> Alternative:
    """Another choice in short."""
    assignment = assignment_of(setup, choice, family)
    bare = evaluated(setup, choice, family)
    return Alternative(
        devices=assignment.devices,
        num_layers=assignment.split,
        schedule=family.schedule,
        num_microbatches=family.num_microbatches,
        step=bare.predicted.step,
        cost=bare.predicted.cost,
    )


def _warnings(setup: Setup, bare: Plan) -> tuple[str, ...]:
    job, step, duration = setup.problem.job, bare.predicted.step_high, bare.predicted.latest
    limit = job.queue.max_time
    if limit is None or duration is None or duration <= limit:
        return ()
    beside = max(0.0, duration - (job.steps or 0) * step)  # start-up and checkpoints, where they are known
    surely = "" if step == bare.predicted.step else "surely "
    return (
        f"max_time {format_duration(limit)} cannot {surely}hold the {job.steps} steps of {format_duration(step)}: "
        f"~{max(0, int((limit - beside) / step))} steps fit",
    )


def _bound(setup: Setup, step: float, value: float, bound: float) -> Bound:
    """What is proven, in terms of the step time."""
    objective = setup.problem.objective
    if setup.narrowed:
        method = "resources.any_of over many devices: the first of each kind by id were taken, others are not looked at"
        return Bound(step=0.0, gap=math.inf, method=method, optimal=False)
    if objective == "time":
        proven = bound >= step - TIE * max(1.0, step)
        lower = step if proven else bound
        end = "complete" if proven else "stopped by its budget of work"
        method = f"branch and bound on the exact step time, {end}"
        if setup.classes.contended:
            method = f"{method}; transfers that wait for a shared wire are in the step, not in the bound"
        if setup.classes.wide:
            method = "fill and pace of layers on their fastest devices; plan by local search on the exact step time"
    else:
        proven = bound >= value - TIE * max(1.0, abs(value)) and not setup.classes.contended
        lower = min(step, setup.least_step())
        end = "complete" if proven else "stopped by its budget of work"
        method = f"step: fill and pace of layers on their fastest devices; {objective}: branch and bound, {end}"
    return Bound(step=lower, gap=step / lower - 1 if lower > 0 else math.inf, method=method, optimal=proven)


def _resolved(setup: Setup, assignment: Assignment, family: Family) -> dict[str, object]:
    """Every value that was left to the planner, as it was resolved."""
    return {
        "stages": len(assignment.split),
        "split": list(assignment.split),
        "devices": list(assignment.devices),
        "schedule": family.schedule,
        "micro": family.samples,
        "num_microbatches": family.num_microbatches,
        "replicas": 1,
        "recompute": False,
        "shard": False,
        "offload": False,
        "precision": resolved_precision(setup.problem.job, setup.problem.profile),
        "objective": setup.problem.objective,
    }
