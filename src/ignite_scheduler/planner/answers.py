"""Why there is no plan: which limit binds, by how much, and what would cure it."""

from __future__ import annotations

import math

import numpy as np

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.instance import Classes, Model, family_arrays
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.solve import Goal, Permit, make_numbers
from ignite_scheduler.planner.tables import least_overflow
from ignite_scheduler.units import format_duration, format_memory


def no_plan(
    problem: Problem, classes: Classes, model: Model, permit: Permit, open_families: tuple[Family, ...]
) -> Infeasible:
    """The reason why no choice is permitted: memory with its exact shortfall, or links."""
    roomy = Classes(
        devices=classes.devices,
        members=classes.members,
        counts=classes.counts,
        strides=classes.strides,
        member_rank=classes.member_rank,
        latency=classes.latency,
        per_byte=classes.per_byte,
        wires=classes.wires,
        unlimited=True,
    )
    zeros = np.zeros(len(classes.counts))
    goal = Goal(1.0, zeros, zeros, zeros)
    memory = np.array([device.memory for device in classes.devices])
    least, best = math.inf, None
    for family in open_families:
        arrays = family_arrays(problem.job, problem.profile, roomy, model, family, permit.max_stages)
        numbers = make_numbers(roomy, model, arrays, family, permit, goal)
        held = [
            family.num_microbatches if family.schedule == "gpipe" else min(family.num_microbatches, n)
            for n in range(permit.max_stages + 1)
        ]
        need = np.stack([model.need(k, family.samples) for k in held])
        overflow = float(least_overflow(numbers, need, memory))
        if overflow < least:
            least, best = overflow, family
    if best is None:
        return Infeasible(
            code="links",
            text="no permitted choice of devices forms a chain in which neighbours have links both ways",
            cures=("add a default to the cluster's links", "allow other devices"),
        )
    return Infeasible(
        code="memory",
        text=(
            f"no permitted plan fits the memory: {format_memory(least)} are missing in all, "
            f"at best with {best.schedule} and microbatches of {best.samples}"
        ),
        shortfall=least,
        cures=_memory_cures(problem, least),
    )


def _memory_cures(problem: Problem, least: float) -> tuple[str, ...]:
    job = problem.job
    cures = [f"{format_memory(least)} more memory on the allowed devices", "allow or add another device"]
    if job.batch.micro is not None and job.batch.micro > 1:
        cures.append("smaller microbatches (batch.micro)")
    if job.batch.micro is None and job.batch.total > 1 and job.pipeline.schedule == "gpipe":
        cures.append("schedule 1f1b, which keeps fewer microbatches")
    if job.optimizer.name in ("adam", "adamw") and job.optimizer.memory is None:
        cures.append("an optimizer with less state (sgd keeps none)")
    if job.pipeline.stages != "auto" or job.pipeline.split != "auto":
        cures.append("leave pipeline.stages and pipeline.split to the planner")
    if problem.memory_margin > 0:
        cures.append("a smaller memory margin")
    return tuple(cures)


def late(plan: Plan, deadline: float, proven: bool) -> Infeasible:
    """The refusal of a deadline that even the fastest plan misses."""
    finish = plan.predicted.latest
    assert finish is not None
    best = "the earliest finish is" if proven else "the earliest finish found is"
    return Infeasible(
        code="deadline",
        text=(
            f"the deadline of {format_duration(deadline)} cannot be met: {best} {format_duration(finish)} "
            f"after the start{'' if finish == plan.predicted.duration else ', at the late end of its range'}"
        ),
        earliest_finish=finish,
        cures=(f"a deadline of at least {format_duration(finish)}", "fewer steps", "more or faster devices"),
    )


def not_found(classes: Classes) -> Infeasible:
    """The answer for a large cluster on which no plan was found; nothing is proven."""
    return Infeasible(
        code="memory",
        text=(
            f"no plan was found over {int(classes.counts.sum())} devices of {len(classes.counts)} classes; "
            "with so many it is not proven that there is none"
        ),
        cures=("allow fewer devices, so that the search is complete", "add memory", "smaller microbatches"),
    )


def too_dear(plans: tuple[Plan, ...], budget: float, currency: str | None) -> Infeasible:
    """The refusal of a budget that no plan in time keeps."""
    costs = [made.predicted.cost for made in plans if made.predicted.cost is not None]
    money = f" {currency}" if currency else ""
    return Infeasible(
        code="budget",
        text=f"the budget of {budget:g}{money} is too small: the cheapest plan found costs {min(costs):.4g}{money}",
        cures=(f"a budget of at least {min(costs):.4g}{money}", "fewer steps", "cheaper devices"),
    )
