"""What plans are compared by: the five objectives, as the plan's own figures and as losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, get_args

from ignite_scheduler.cost import Assignment, evaluate
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Device, Plan
from ignite_scheduler.planner.problem import Problem

Criterion = Literal["time", "money", "energy", "devices", "headroom"]

CRITERIA: Final[tuple[Criterion, ...]] = get_args(Criterion)
"""All objectives, in the order of :class:`Figures`."""

DEFAULT: Final[tuple[Criterion, ...]] = ("time", "money", "devices")
"""What a Pareto set is over unless something else is asked for."""


class Figures(NamedTuple):
    """The objectives of one plan; None = a price or power is unknown.

    Parameters
    ----------
    time
        Seconds of a step.
    money, energy
        Of a sample, in the cluster's currency and in joules, for all devices held.
    devices
        Number of devices held.
    headroom
        Share of its memory that the fullest device has left; negative where a plan does not fit.
    """

    time: float
    money: float | None
    energy: float | None
    devices: int
    headroom: float

    def known(self) -> dict[str, float]:
        """The figures by name, without those that are unknown."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def figures(problem: Problem, assignment: Assignment) -> Figures:
    """The objectives of a choice, from the same evaluation that makes its plan."""
    plan = evaluate(
        replace(problem.job, steps=1, epochs=None),
        problem.profile,
        problem.cluster,
        assignment,
        memory_margin=problem.memory_margin,
    )
    samples = sum(assignment.microbatches)
    predicted = plan.predicted
    return Figures(
        time=predicted.step,
        money=None if predicted.cost is None else predicted.cost / samples,
        energy=None if predicted.energy is None else predicted.energy / samples,
        devices=len(plan.device_ids),
        headroom=headroom(plan),
    )


def headroom(plan: Plan) -> float:
    """The least share of its memory that a device of the plan has left; 1 where memory is unlimited."""
    return min(
        1.0 if math.isinf(share.memory_limit) else 1.0 - share.memory / share.memory_limit
        for stage in plan.stages
        for share in stage.devices
    )


def losses(found: Figures, criteria: Sequence[Criterion]) -> tuple[float, ...]:
    """The figures of ``criteria`` so that less is better: headroom with its sign changed.

    >>> losses(Figures(2.0, 0.5, None, 3, 0.25), ("headroom", "time"))
    (-0.25, 2.0)
    """
    values = []
    for name in criteria:
        value = getattr(found, name)
        assert value is not None, f"{name} is checked to be known before plans are compared by it"
        values.append(-float(value) if name == "headroom" else float(value))
    return tuple(values)


def checked(asked: Sequence[str] | None, devices: Iterable[Device]) -> tuple[Criterion, ...]:
    """The objectives to compare by, in the order of :data:`CRITERIA`.

    None asks for :data:`DEFAULT`, without money where a price is unknown.

    Raises
    ------
    InputError
        There is no such objective, one comes twice, none is left, or it needs a figure that a device does not give.
    """
    devices = sorted(devices, key=lambda device: device.id)
    if asked is None:
        return tuple(name for name in DEFAULT if not _unknown(name, devices))
    wrong = [name for name in asked if name not in CRITERIA]
    if wrong or not asked or len(set(asked)) < len(asked):
        found = ", ".join(asked) or "nothing"
        raise InputError(f"a Pareto set is over one or more of {', '.join(CRITERIA)}, each once; found {found}")
    for name in asked:
        missing = _unknown(name, devices)
        if missing:
            figure = "a price" if name == "money" else "busy and idle power"
            raise InputError(
                f"a Pareto set over {name} needs {figure} of every allowed device; missing for {', '.join(missing)}"
            )
    return tuple(name for name in CRITERIA if name in asked)


def _unknown(name: str, devices: Iterable[Device]) -> list[str]:
    """Ids of devices that lack a figure which the objective needs."""
    if name == "money":
        return [device.id for device in devices if device.price is None]
    if name == "energy":
        return [device.id for device in devices if device.busy_power is None or device.idle_power is None]
    return []
