"""From a chain of groups in numbers to an assignment, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice, evaluate, microbatch_sizes
from ignite_scheduler.planner.groups.costs import Costs, Groups, layer_order
from ignite_scheduler.planner.groups.field import Made, in_flight
from ignite_scheduler.planner.groups.layout import Layout
from ignite_scheduler.planner.groups.stage import EACH, KEEP, NO_FIT, OFFLOAD, SHARD, WHOLE, cheapest
from ignite_scheduler.planner.kernel import Ints
from ignite_scheduler.planner.problem import Problem


class Choice(NamedTuple):
    """A chain of groups from the end: group and first layer of each stage, and what it is worth."""

    value: float
    groups: tuple[int, ...]
    first: tuple[int, ...]


def assignment_of(layout: Layout, made: Made, choice: Choice, total: int) -> Assignment:
    """The choice in its family with devices, shares and memory actions."""
    family = made.family
    devices = layout.devices_of(tuple(reversed(choice.groups)))
    stages = []
    end = made.field.num_layers
    for q, (g, first) in enumerate(zip(choice.groups, choice.first, strict=True)):
        held = in_flight(family, q + 1)
        plain = made.field.status[g, made.field.row[q + 1], end, first] == 0
        stages.append(_stage(made, g, first, end, 0 if plain else held, devices[len(choice.groups) - 1 - q]))
        end = first
    return Assignment(
        stages=tuple(reversed(stages)),
        microbatches=microbatch_sizes(total, family.samples),
        schedule=family.schedule,
    )


def _stage(made: Made, g: int, i: int, j: int, held: int, devices: tuple[str, ...]) -> StageChoice:
    """One stage with so many microbatches in flight; 0: it fits without more ado."""
    size = int(made.groups.size[g])
    members, base = made.groups.members[g, :size], made.groups.base[g, :size]
    if held:
        acted = acted_stage(made.costs, members, base, i, j, held, devices)
        assert acted is not None
        return acted
    return StageChoice(layers=tuple(range(i, j)), devices=devices, samples=tuple(base.tolist()))


def acted_stage(
    costs: Costs, members: Ints, base: Ints, i: int, j: int, held: int, devices: tuple[str, ...]
) -> StageChoice | None:
    """The layers i … j − 1 on a group with the cheapest actions that fit; None where none does."""
    size = len(members)
    chosen = np.zeros(costs.num_layers, dtype=np.bool_)
    shares, order = base.copy(), layer_order(costs, members, base)
    code = cheapest(costs, members, size, base, order, i, j, held, chosen, shares, np.zeros(4))
    if code == NO_FIT:
        return None
    again: tuple[tuple[int, int], ...] = ()
    if code & EACH == WHOLE:
        again = ((i, j),)
    elif code & EACH != KEEP:
        again = tuple((index, index + 1) for index in range(i, j) if chosen[index])
    return StageChoice(
        layers=tuple(range(i, j)),
        devices=devices,
        samples=tuple(shares.tolist()),
        recompute=again,
        offload=bool(code & OFFLOAD),
        shard=bool(code & SHARD),
    )


def choice_of(layout: Layout, groups: Groups, assignment: Assignment) -> Choice | None:
    """The groups and cuts of a chain, worth not yet known; None where it is none that the layout knows."""
    found: list[int] = []
    first: list[int] = []
    position = 0
    known = {device for members in layout.classes.members for device in members}
    for index, stage in enumerate(assignment.stages):
        chained = stage.inputs is None or stage.inputs == ((index - 1,) if index else ())
        run = tuple(range(position, position + len(stage.layers)))
        if not chained or stage.layers != run or not known.issuperset(stage.devices):
            return None
        g = layout.group_of(stage.devices)
        if g < 0 or groups.base[g, 0] == 0:
            return None
        found.append(g)
        first.append(position)
        position += len(run)
    return Choice(np.inf, tuple(reversed(found)), tuple(reversed(first)))


def value_of(problem: Problem, assignment: Assignment) -> float:
    """What the assignment is worth in the problem's objective, by the full timeline, shared wires included."""
    found = evaluate(replace(problem.job, steps=1), problem.profile, problem.cluster, assignment).predicted
    value = {"time": found.step, "cost": found.cost, "energy": found.energy}[problem.objective]
    assert value is not None
    return value
