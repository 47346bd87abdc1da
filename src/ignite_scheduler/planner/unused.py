"""Why a device is left out: what the best plan with it would take."""

from __future__ import annotations

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Infeasible, Plan, Unused
from ignite_scheduler.planner.build import assignment_of, evaluated
from ignite_scheduler.planner.coarse import MOST_LAYERS
from ignite_scheduler.planner.joining import MAX_CLASSES, NOT_FASTER, joined, seconds
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.solve import Permit, first_plan, solve, table_work

REASON_WORK = 20_000
"""Pipelines timed for each class of unused devices."""

REASON_SWEEP = 6
"""Caps from which first plans are made here."""


def unused_reasons(request: Request, assignment: Assignment, plan: Plan) -> tuple[Unused, ...]:
    """A reason for every device of the cluster that was considered or barred and is not in the plan.

    Where straight chains are all that is permitted, the best of them with the device is searched for; elsewhere, and
    in models of very many layers, the device is put into the plan (:mod:`.joining`).
    """
    small = len(request.problem.profile.layers) <= MOST_LAYERS
    setup = prepare(request.problem) if request.only_straight and small else None
    if setup is None or isinstance(setup, Infeasible):
        return joined(request, assignment, plan).reasons
    held = set(plan.device_ids)
    classes, samples = setup.classes, plan.microbatches
    family = Family(plan.schedule, samples[0], len(samples), samples[-1])
    reasons = list(setup.barred)
    explained, most = 0, 0 if classes.wide else MAX_CLASSES
    for c, members in enumerate(classes.members):
        left = [device for device in members if device not in held]
        if not left:
            continue
        explained += 1
        text = NOT_FASTER
        if explained <= most:
            text = _reason(setup, plan, family, c, len(members) - len(left))
        reasons += [Unused(device=device, reason=text) for device in left]
    return tuple(sorted(reasons, key=lambda entry: entry.device))


def _reason(setup: Setup, plan: Plan, family: Family, c: int, used: int) -> str:
    counts = setup.classes.counts_of()
    allowed = setup.permit.allowed & (counts[:, c] > used)
    if not allowed.any():
        return _forbidden(setup)
    permitted = Permit(allowed, setup.permit.may_cut, setup.permit.max_stages)
    numbers = setup.numbers(family, setup.arrays(family), permitted)
    choice, bound = first_plan(numbers, sweep=REASON_SWEEP)
    if bound == np.inf:
        return "no permitted plan can use it: memory or links do not allow it"
    proven = False
    if table_work(numbers) < REASON_WORK:
        outcome = solve(numbers, choice, 0.0, REASON_WORK)
        choice, proven = outcome.choice, outcome.bound >= outcome.choice.value
    if not choice.classes:
        return "no permitted plan with it was found"
    other = evaluated(setup.problem, assignment_of(setup, choice, family))
    where = [q for q, name in enumerate(reversed(choice.classes)) if name == c]
    return _compare(plan, other, where, used, proven=proven)


def _forbidden(setup: Setup) -> str:
    job = setup.problem.job
    if job.resources.any_of:
        return "not among the devices that resources.any_of asks for"
    if job.pipeline.stages != "auto" or job.pipeline.split != "auto":
        return "the number of stages is fixed by the job and other devices are faster"
    if job.resources.max_devices is not None:
        return f"resources.max_devices is {job.resources.max_devices}"
    return "there are fewer layers than devices and other devices are faster"


def _compare(plan: Plan, other: Plan, where: list[int], used: int, *, proven: bool) -> str:
    """What ``other``, which has the device on the stages ``where``, would take."""
    layers = min(len(other.stages[s].layers) for s in where)
    pace = max(stage.forward + stage.backward for stage in other.stages)
    pace = max(pace, other.predicted.bottleneck.busy)
    more = "one more of its kind" if used else "it"
    found = "the best is" if proven else "the best found is"
    holding = f"with {_count(layers)} on {more}"
    return (
        f"{holding} {found} {seconds(pace)} a microbatch: "
        f"a step takes {seconds(other.predicted.step)} instead of {seconds(plan.predicted.step)}"
    )


def _count(layers: int) -> str:
    return "one layer" if layers == 1 else f"{layers} layers"
