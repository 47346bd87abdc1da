"""A choice held against memory and objective by its evaluated plan: for searches that try few of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from ignite_scheduler.cost import Assignment, evaluate
from ignite_scheduler.model import Cluster, Plan
from ignite_scheduler.planner.problem import Problem


def overflow(made: Plan) -> float:
    """Bytes above the limits, summed over all devices of a plan."""
    return sum(max(0.0, share.memory - share.memory_limit) for stage in made.stages for share in stage.devices)


def value_of_choice(problem: Problem, assignment: Assignment) -> float:
    """The problem's objective for one step of the choice; infinite where it does not fit or a figure is unknown."""
    job = replace(problem.job, steps=1, epochs=None)
    made = evaluate(job, problem.profile, problem.cluster, assignment, memory_margin=problem.memory_margin)
    if overflow(made) > 0:
        return math.inf
    found = made.predicted
    value = {"time": found.step, "cost": found.cost, "energy": found.energy}[problem.objective]
    return math.inf if value is None else value


def missing_link(cluster: Cluster, assignment: Assignment) -> tuple[str, str] | None:
    """Two devices that the choice lets talk and that have no link; None if all have.

    Neighbouring stages of a chain send to each other, and devices that hold the same layer add up gradients.
    """
    stages = assignment.stages
    pairs: dict[tuple[str, str], None] = {}
    for before, after in pairwise(stages):
        if after.inputs is None:
            pairs |= {pair: None for a in before.devices for b in after.devices for pair in ((a, b), (b, a))}
    holders: dict[int, list[str]] = {}
    for stage in stages:
        for layer in stage.layers:
            holders.setdefault(layer, []).extend(stage.devices)
    groups = dict.fromkeys(tuple(held) for held in holders.values())
    pairs |= {(a, b): None for group in groups for a in group for b in group if a != b}
    for a, b in pairs:
        if cluster.link(cluster.device(a), cluster.device(b)) is None:
            return a, b
    return None
