"""Why a device is left out: what the best plan with it would take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ignite_scheduler.model import Plan, Unused
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import Choice, Permit, first_plan, solve, table_work

REASON_WORK = 20_000
"""Pipelines timed for each class of unused devices."""

REASON_SWEEP = 6
"""Caps from which first plans are made here."""

MAX_CLASSES = 24
"""Classes of unused devices for which a plan is made; the others get a shorter reason."""


class Without(NamedTuple):
    """The plan that the reasons compare with."""

    plan: Plan
    choice: Choice
    family: Family


def unused_reasons(setup: Setup, best: Without) -> tuple[Unused, ...]:
    """A reason for every device of the cluster that was considered or barred and is not in the plan."""
    classes = setup.classes
    used = [best.choice.classes.count(c) for c in range(len(classes.counts))]
    reasons = list(setup.barred)
    explained, most = 0, 0 if classes.wide else MAX_CLASSES
    for c, members in enumerate(classes.members):
        if used[c] == len(members):
            continue
        explained += 1
        text = _reason(setup, best, c, used[c]) if explained <= most else "no faster plan with it was found"
        reasons += [Unused(device=device, reason=text) for device in members[used[c] :]]
    return tuple(sorted(reasons, key=lambda entry: entry.device))


def _reason(setup: Setup, best: Without, c: int, used: int) -> str:
    counts = setup.classes.counts_of()
    allowed = setup.permit.allowed & (counts[:, c] > used)
    if not allowed.any():
        return _forbidden(setup)
    permitted = Permit(allowed, setup.permit.may_cut, setup.permit.max_stages)
    numbers = setup.numbers(best.family, setup.arrays(best.family), permitted)
    choice, bound = first_plan(numbers, sweep=REASON_SWEEP)
    if bound == np.inf:
        return "no permitted plan can use it: memory or links do not allow it"
    proven = False
    if table_work(numbers) < REASON_WORK:
        outcome = solve(numbers, choice, 0.0, REASON_WORK)
        choice, proven = outcome.choice, outcome.bound >= outcome.choice.value
    if not choice.classes:
        return "no permitted plan with it was found"
    return _compare(setup, best, choice, c, used, proven=proven)


def _forbidden(setup: Setup) -> str:
    job = setup.problem.job
    if job.resources.any_of:
        return "not among the devices that resources.any_of asks for"
    if job.pipeline.stages != "auto" or job.pipeline.split != "auto":
        return "the number of stages is fixed by the job and other devices are faster"
    if job.resources.max_devices is not None:
        return f"resources.max_devices is {job.resources.max_devices}"
    return "there are fewer layers than devices and other devices are faster"


def _compare(setup: Setup, best: Without, choice: Choice, c: int, used: int, *, proven: bool) -> str:
    from ignite_scheduler.planner.build import evaluated

    other = evaluated(setup, choice, best.family)
    where = [q for q, name in enumerate(reversed(choice.classes)) if name == c]
    layers = min(len(other.stages[s].layers) for s in where)
    pace = max(stage.forward + stage.backward for stage in other.stages)
    pace = max(pace, other.predicted.bottleneck.busy)
    more = "one more of its kind" if used else "it"
    found = "the best is" if proven else "the best found is"
    holding = f"with {_count(layers)} on {more}"
    return (
        f"{holding} {found} {seconds(pace)} a microbatch: "
        f"a step takes {seconds(other.predicted.step)} instead of {seconds(best.plan.predicted.step)}"
    )


def _count(layers: int) -> str:
    return "one layer" if layers == 1 else f"{layers} layers"


def seconds(value: float) -> str:
    """Seconds with three figures, trailing zeros kept.

    >>> seconds(10.0), seconds(0.01234), seconds(1234.5)
    ('10.0 s', '0.0123 s', '1230 s')
    """
    if value == 0:
        return "0 s"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    return f"{round(value, digits):.{max(digits, 0)}f} s"
