"""Everything that is the same for all families of one problem, and quick bounds that sort the families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Device, Infeasible, Unused
from ignite_scheduler.planner.instance import Arrays, Classes, Model, family_arrays, group, model_arrays
from ignite_scheduler.planner.kernel import Floats, Ints, Numbers
from ignite_scheduler.planner.permit import permit
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.solve import Goal, Permit, make_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A problem that has been checked, in arrays. ``narrowed``: not all devices that could be used are looked at."""

    request: Request
    classes: Classes
    model: Model
    permit: Permit
    goal: Goal
    families: tuple[Family, ...]
    barred: tuple[Unused, ...]
    narrowed: bool = False

    @property
    def problem(self) -> Problem:
        """What was asked."""
        return self.request.problem

    def arrays(self, family: Family) -> Arrays:
        """Times and memory limits of a family."""
        job, profile = self.problem.job, self.problem.profile
        return family_arrays(job, profile, self.classes, self.model, family, self.permit.max_stages)

    def numbers(self, family: Family, arrays: Arrays, permitted: Permit | None = None) -> Numbers:
        """The record for the compiled functions, under a narrower permit where one is given."""
        return make_numbers(self.classes, self.model, arrays, family, permitted or self.permit, self.goal)

    def as_value(self, step: float) -> float:
        """A bound on the objective from a bound on the step time."""
        if self.problem.objective == "time":
            return step
        return step * float(self.goal.rate.min()) if self.problem.objective == "cost" else 0.0

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
    request = requested(problem)
    if isinstance(request, Infeasible):
        return request
    if not request.straight:
        return Infeasible(
            code="replicas",
            text="more than a chain of one device a stage is demanded, which is not looked at here",
            cures=("leave pipeline.replicas, recompute, shard and offload to the planner",),
        )
    goal_of(problem, request.devices)
    classes = request.classes
    narrowed = classes.wide and bool(request.any_of)
    if narrowed:
        classes = group(problem.cluster, _requested(problem, request.devices))
    permitted = permit(problem, classes)
    if isinstance(permitted, Infeasible):
        return permitted
    return Setup(
        request=request,
        classes=classes,
        model=model_arrays(problem.job, problem.profile, problem.memory_margin),
        permit=permitted,
        goal=goal_of(problem, classes.devices),
        families=request.families,
        barred=request.barred,
        narrowed=narrowed,
    )


def _requested(problem: Problem, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """The first devices of each kind by id, as many as the first request that can be met asks for."""
    by_id = sorted(devices, key=lambda device: device.id)
    for request in problem.job.resources.any_of:
        found = {kind: [device for device in by_id if device.kind == kind][:count] for kind, count in request.items()}
        if all(len(found[kind]) == count for kind, count in request.items()):
            return tuple(device for group in found.values() for device in group)
    return devices


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


def quick_bound(setup: Setup, arrays: Arrays, family: Family, counts: Ints | None = None) -> float:
    """A step time that no plan of the family on at most ``counts`` devices goes below; see :func:`quick_figures`."""
    return quick_figures(setup, arrays, family, counts)[0]


def quick_figures(setup: Setup, arrays: Arrays, family: Family, counts: Ints | None = None) -> tuple[float, float]:
    """A bound on the step time of chains of a family on at most ``counts`` devices, and a guess at its best.

    The guess, fill of all layers and pace of M − 1 microbatches, only says what to look at first.
    """
    figures = layer_figures(setup, arrays, family, counts)
    fill = float(figures.fill.sum())
    bound = max(fill + figures.share * figures.pace, figures.pace)
    return bound, fill + (1 - 1 / family.num_microbatches) * figures.pace


class LayerFigures(NamedTuple):
    """What bounds of a family are made of: fill of each layer, pace, and the share of it that comes beside the fill."""

    fill: Floats
    pace: float
    share: float


def layer_figures(setup: Setup, arrays: Arrays, family: Family, counts: Ints | None = None) -> LayerFigures:
    """Fill, pace and share for plans of the family on at most ``counts`` devices.

    *Fill*: each layer on its fastest device, forward of the first and backward of the last microbatch. *Pace* T: the
    work of a step shared out as if layers could be cut anywhere, so that some stage is busy for T at least; with r =
    max over layers of (least work ÷ work on the class), a device of the class does at most r seconds of least work in
    a second. The fill of a path through the model and the pace are bounds. With equal microbatches more holds (see
    :func:`ignite_scheduler.planner.tables.stage_pace`): under 1F1B a step takes the fill and, for every stage, the
    larger of (M−1)·b + (M−K)·f and (M−1)·f + (M−K)·b, so at least their mean, (1 − (K+1) ÷ 2M) of the stage's busy
    time; under GPipe (1 − 1 ÷ M) of it.
    """
    counts = setup.classes.counts if counts is None else counts
    used = counts > 0
    first, back = np.diff(arrays.forward[used], axis=2), np.diff(arrays.backward[used], axis=2)
    none = np.where(arrays.timeless[used], np.inf, 0.0)
    fill = first[:, 0] + back[:, 1]
    work = (family.num_microbatches - 1) * (first[:, 0] + back[:, 0]) + first[:, 1] + back[:, 1]
    least = (work + none).min(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(work > 0, least / (work + none), 0.0).max(axis=1)
    rates = np.sort(np.repeat(ratio, counts[used]))[::-1][: setup.permit.max_stages]
    pace = float(least.sum() / rates.sum()) if rates.sum() > 0 else 0.0
    m = family.num_microbatches
    share = 0.0
    if family.samples == family.last_samples:
        held = 1 if family.schedule == "gpipe" else min(m, setup.permit.max_stages)
        share = 1 - (held + 1) / (2 * m)
    return LayerFigures(fill=(fill + none).min(axis=0), pace=pace, share=share)
