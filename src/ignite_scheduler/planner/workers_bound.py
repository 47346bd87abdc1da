"""A value that no plan of virtual workers goes below.

Of V workers one sees at least a V-th of every microbatch, and leaves at least one device to each of the others.
Without them and without the all-reduce, its chain is a straight one for that part on at most N − V + 1 devices, so that
the step is no shorter than the least step of such chains: tables of least fill know it with memory and links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from ignite_scheduler.model import Infeasible, Resources
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import Setup, prepare, quick_bound
from ignite_scheduler.planner.solve import first_plan

REFINED: Final = 16
"""Families for which tables are made."""

SWEEP: Final = 4
"""Caps on the busiest stage in the tables of each."""


class Part(NamedTuple):
    """The worker with the largest part of one family: what is known of its value, and on how many devices it may be."""

    bound: float
    refined: bool
    most_devices: int
    family: Family


def least_value(request: Request, value: float) -> float:
    """A value of the objective that no plan of virtual workers goes below, at most ``value``.

    The parts with the smallest quick bounds get their tables first, as far as :data:`REFINED` goes.
    """
    setup = _alone(request)
    if isinstance(setup, Infeasible) or setup.classes.wide:
        return 0.0
    parts = []
    for most_devices, part in sorted({part for family in request.families for part in _parts(request, family)}):
        quick = setup.as_value(quick_bound(setup, setup.arrays(part), part))
        parts.append(Part(quick, False, most_devices, part))
    heapify(parts)
    left = REFINED
    while parts:
        least = heappop(parts)
        if least.refined or least.bound >= value or left == 0:
            return min(least.bound, value)
        left -= 1
        heappush(parts, least._replace(bound=max(least.bound, _by_tables(setup, least)), refined=True))
    return value


def _alone(request: Request) -> Setup | Infeasible:
    """The problem of one worker on any of the devices."""
    problem = request.problem
    pipeline = replace(
        problem.job.pipeline, stages="auto", split="auto", replicas=1, recompute=False, shard=False, offload=False
    )
    job = replace(problem.job, resources=Resources(), pipeline=pipeline)
    return prepare(replace(problem, job=job, devices=tuple(device.id for device in request.devices)))


def _parts(request: Request, family: Family) -> Iterator[tuple[int, Family]]:
    """The largest part of V workers, for every V: its full microbatches, which all workers have."""
    full = family.num_microbatches - (family.last_samples < family.samples)
    for count in range(2, min(request.max_devices, family.samples) + 1):
        samples = -(-family.samples // count)
        yield request.max_devices - count + 1, Family(family.schedule, samples, full, samples)


def _by_tables(setup: Setup, part: Part) -> float:
    """The bound of tables of least fill; infinite where nothing fits."""
    permitted = setup.permit.allowed & (setup.classes.counts_of().sum(axis=1) <= part.most_devices)
    numbers = setup.numbers(
        part.family, setup.arrays(part.family), setup.permit._replace(allowed=permitted, max_stages=part.most_devices)
    )
    return setup.as_value(first_plan(numbers, sweep=SWEEP)[1])
