"""Everything that is the same for all families of one problem, and quick bounds that sort the families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Device, Infeasible, Unused
from ignite_scheduler.planner.instance import Arrays, Classes, Model, family_arrays, group, model_arrays
from ignite_scheduler.planner.kernel import Numbers
from ignite_scheduler.planner.permit import allowed_devices, check, check_times, permit, refuse
from ignite_scheduler.planner.problem import Family, Problem, families
from ignite_scheduler.planner.solve import Goal, Permit, make_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A problem that has been checked, in arrays."""

    problem: Problem
    classes: Classes
    model: Model
    permit: Permit
    goal: Goal
    families: tuple[Family, ...]
    barred: tuple[Unused, ...]

    def arrays(self, family: Family) -> Arrays:
        """Times and memory limits of a family."""
        job, profile = self.problem.job, self.problem.profile
        return family_arrays(job, profile, self.classes, self.model, family, self.permit.max_stages)

    def numbers(self, family: Family, arrays: Arrays, permitted: Permit | None = None) -> Numbers:
        """The record for the compiled functions, under a narrower permit where one is given."""
        return make_numbers(self.classes, self.model, arrays, family, permitted or self.permit, self.goal)

    def least_step(self) -> float:
        """A step time that no plan goes below, from the quick bounds alone."""
        return min(quick_bound(self, self.arrays(family), family) for family in self.families)


def prepare(problem: Problem) -> Setup | Infeasible:
    """Check the request and turn it into arrays.

    Raises
    ------
    InputError, NotFoundError
        The request contradicts itself or names what does not exist.
    """
    check(problem)
    refusal = refuse(problem.job)
    if refusal is not None:
        return refusal
    allowed = allowed_devices(problem)
    if isinstance(allowed, Infeasible):
        return allowed
    check_times(problem, allowed.devices)
    goal_of(problem, allowed.devices)
    classes = group(problem.cluster, allowed.devices)
    permitted = permit(problem, classes)
    if isinstance(permitted, Infeasible):
        return permitted
    return Setup(
        problem=problem,
        classes=classes,
        model=model_arrays(problem.job, problem.profile, problem.memory_margin),
        permit=permitted,
        goal=goal_of(problem, classes.devices),
        families=families(problem.job),
        barred=allowed.unused,
    )


def goal_of(problem: Problem, devices: tuple[Device, ...]) -> Goal:
    """The objective as rates by device; InputError where a figure that it needs is unknown."""
    zeros = np.zeros(len(devices))
    prices = [device.price for device in devices]
    price = zeros if None in prices else np.array(prices, dtype=np.float64)
    if problem.objective == "time":
        return Goal(1.0, zeros, zeros, price)
    if problem.objective == "cost":
        if None in prices:
            names = ", ".join(device.id for device in devices if device.price is None)
            raise InputError(f"objective 'cost' needs a price for every allowed device; none is given for {names}")
        return Goal(0.0, price, zeros, price)
    unknown = [device.id for device in devices if device.busy_power is None or device.idle_power is None]
    if unknown:
        raise InputError(
            f"objective 'energy' needs busy and idle power of every allowed device; missing for {', '.join(unknown)}"
        )
    idle = np.array([device.idle_power for device in devices], dtype=np.float64)
    busy = np.array([device.busy_power for device in devices], dtype=np.float64)
    return Goal(0.0, idle, busy - idle, price)


class Sketch(NamedTuple):
    """A family with a step time that none of its plans goes below."""

    bound: float
    family: Family
    arrays: Arrays


def quick_bound(setup: Setup, arrays: Arrays, family: Family) -> float:
    """A step time that no plan of the family goes below, from layer times alone.

    The larger of two: the fill of all layers, each on its fastest device; and the work of a step shared out over the devices
    as if layers could be cut anywhere. With r = max over layers of (least work ÷ work on the class), a device of the class
    does at most r seconds of least work in a second.
    """
    extra = np.where(arrays.timeless, np.inf, 0.0)
    first = np.diff(arrays.forward, axis=2)
    back = np.diff(arrays.backward, axis=2)
    fill = float((first[:, 0] + back[:, 1] + extra).min(axis=0).sum())
    work = (family.num_microbatches - 1) * (first[:, 0] + back[:, 0]) + first[:, 1] + back[:, 1] + extra
    least = work.min(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(work > 0, least / work, 0.0).max(axis=1)
    rates = np.sort(np.repeat(ratio, setup.classes.counts))[::-1][: setup.permit.max_stages]
    pace = float(least.sum() / rates.sum()) if rates.sum() > 0 else 0.0
    return max(fill, pace)
