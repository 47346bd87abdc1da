"""Why there is no plan: which limit binds, by how much, and what would cure it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.planner.groups import fits_here
from ignite_scheduler.planner.groups.shortfall import binding, shortfall
from ignite_scheduler.planner.instance import Classes, Model, family_arrays
from ignite_scheduler.planner.permit import unmet_request
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request, requested
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


def no_chain(request: Request) -> Infeasible:
    """The reason why no chain of groups was found: what binds, with the exact shortfall where that is memory."""
    if not _counts_exist(request):
        return _unmet(request)
    if not fits_here(request):
        return not_found(request.classes)
    least, family = shortfall(request)
    if family is None:
        limit = binding(request)
        return _unmet(request) if limit == "devices" and request.any_of else _bound_by(limit)
    if least == 0:
        return Infeasible(
            code="memory",
            text="no plan was found within the budget of work; it is not proven that there is none",
            cures=("a larger budget of work", "add memory", "smaller microbatches"),
        )
    return Infeasible(
        code="memory",
        text=(
            f"no permitted plan fits the memory: {format_memory(least)} are missing in all, "
            f"at best with {family.schedule} and microbatches of {family.samples}"
        ),
        shortfall=least,
        cures=(*_memory_cures(request.problem, least), *_freer(request, least)),
    )


def _counts_exist(request: Request) -> bool:
    """Whether the allowed devices hold one of the exact counts that are asked for."""
    kinds = [device.kind for device in request.devices]
    wanted = request.any_of
    return not wanted or any(all(kinds.count(kind) >= n for kind, n in counts.items()) for counts in wanted)


def _unmet(request: Request) -> Infeasible:
    stages = request.problem.job.pipeline.stages
    num_layers = len(request.problem.profile.layers)
    return unmet_request(request.classes, request.any_of, num_layers, request.max_devices, stages)


def _bound_by(limit: str) -> Infeasible:
    """The refusal where memory would not help."""
    if limit == "links":
        return Infeasible(
            code="links",
            text="no permitted choice of devices forms groups and a chain in which all neighbours have links both ways",
            cures=("add a default to the cluster's links", "allow other devices"),
        )
    if limit == "offload":
        return Infeasible(
            code="offload",
            text="pipeline.offload is demanded, but no permitted choice of devices has a known way to host memory",
            cures=(
                "give the devices their host_bandwidth in the cluster file",
                "set pipeline.offload to auto or false",
            ),
        )
    if limit == "times":
        return Infeasible(
            code="devices",
            text="no permitted choice of devices has times for all layers of its stages",
            cures=("measure the missing layers on the allowed kinds", "allow other devices"),
        )
    return Infeasible(
        code="devices",
        text="the allowed devices cannot be dealt to stages as resources and pipeline ask",
        cures=("allow more devices", "leave pipeline.stages and pipeline.replicas to the planner"),
    )


def _freer(request: Request, least: float) -> Iterator[str]:
    """What the job could leave to the planner so that less memory is missing."""
    problem = request.problem
    for name in ("recompute", "shard", "offload", "replicas"):
        if name not in problem.abilities or getattr(problem.job.pipeline, name) == "auto":
            continue
        wish: dict[str, Any] = {name: "auto"}
        pipeline = replace(problem.job.pipeline, **wish)
        freer = requested(replace(problem, job=replace(problem.job, pipeline=pipeline)))
        if isinstance(freer, Infeasible) or not fits_here(freer):
            continue
        lacking = shortfall(freer, least).bytes
        if lacking == 0:
            yield f"pipeline.{name}: auto, with which it fits"
        elif lacking < least:
            yield f"pipeline.{name}: auto, with which only {format_memory(lacking)} are missing"


def with_freer(request: Request, refusal: Infeasible) -> Infeasible:
    """The refusal of straight chains with what else the job could leave to the planner."""
    if refusal.shortfall is None or not fits_here(request):
        return refusal
    return replace(refusal, cures=(*refusal.cures, *_freer(request, refusal.shortfall)))


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
