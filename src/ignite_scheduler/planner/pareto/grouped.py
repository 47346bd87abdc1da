"""Chains of groups of devices, with memory actions where they are permitted, on given multisets.

Of the chains on one multiset only the fastest matters to time, money and devices, as with straight ones
(:mod:`.exact`); it is found by the search over groups. The set over these three objectives is therefore exact if every
multiset is visited and every search ends; with energy or headroom it is made of good points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.groups.search import fits_here, search
from ignite_scheduler.planner.pace import least_step
from ignite_scheduler.planner.pareto.canonical import looks_of
from ignite_scheduler.planner.pareto.front import covers
from ignite_scheduler.planner.pareto.ladder import multisets
from ignite_scheduler.planner.pareto.multisets import Counts, price_of
from ignite_scheduler.planner.pareto.objectives import Criterion, figures, losses
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import requested
from ignite_scheduler.planner.setup import Setup

MOST_SETS: Final = 64
"""Multisets that are looked at."""

SET_WORK: Final = 20_000
"""Pipelines timed for the proof of each."""


class Grouped(NamedTuple):
    """Assignments that were met, whether none better is missing over time, money and devices, and the work spent."""

    met: tuple[Assignment, ...]
    complete: bool
    work: int


def on_exactly(problem: Problem, ids: Sequence[str], incumbent: Assignment | None, work: int) -> Found | None:
    """The best chain of groups on exactly these devices; None where they are not permitted or too many to list."""
    own = replace(problem, devices=tuple(ids), work=work)
    request = requested(own)
    if isinstance(request, Infeasible) or len(request.devices) < len(ids) or request.max_devices < len(ids):
        return None
    if not fits_here(request):
        return None
    return search(own, replace(request, min_devices=len(ids)), incumbent)


def members(setup: Setup, counts: Counts) -> tuple[str, ...]:
    """The devices that stand for a multiset: of every class those with the smallest ids."""
    chosen = [name for c, count in enumerate(counts) for name in setup.classes.members[c][:count]]
    return tuple(sorted(chosen))


def counts_of(setup: Setup, assignment: Assignment) -> Counts:
    """The multiset that an assignment holds."""
    class_of = {name: c for c, names in enumerate(setup.classes.members) for name in names}
    found = [0] * len(setup.classes.counts)
    for name in assignment.devices:
        found[class_of[name]] += 1
    return tuple(found)


def grouped(setup: Setup, criteria: Sequence[Criterion], straight: Sequence[Assignment], budget: int) -> Grouped:
    """The best chains of groups by multiset; ``straight`` are points of the set that are known already.

    Visited are all multisets where they are few, else those of the straight points and of a ladder. One whose best
    possible plan is covered by a known point is left out.
    """
    held: dict[Counts, list[Assignment]] = {}
    for assignment in straight:
        held.setdefault(counts_of(setup, assignment), []).append(assignment)
    wider = replace(setup, permit=setup.permit._replace(allowed=allowed_groups(setup)))
    visited = multisets(wider, looks_of(setup.classes), MOST_SETS)
    every = not setup.classes.wide and len(visited) == int(wider.permit.allowed.sum())
    visited = sorted({*visited, *held}, key=lambda counts: (sum(counts), counts))
    known = [losses(figures(setup.problem, assignment), criteria) for assignment in straight]
    met: list[Assignment] = []
    complete, work = every and set(criteria) <= {"time", "money", "devices"}, 0
    for counts in visited:
        least = _least(setup, criteria, counts)
        if least is not None and any(covers(point, least) for point in known):
            continue
        if work >= budget:
            complete = False
            break
        ids = members(setup, counts)
        incumbent = min(held.get(counts, []), key=lambda one: figures(setup.problem, one).time, default=None)
        found = on_exactly(setup.problem, ids, incumbent, SET_WORK)
        if found is None:
            complete = False
            continue
        work += found.work
        complete &= found.complete
        if found.best is not None:
            met.append(found.best)
            known.append(losses(figures(setup.problem, found.best), criteria))
    return Grouped(tuple(met), complete, work)


def allowed_groups(setup: Setup) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Multisets of as many devices as the request lets a chain of groups hold, more than it has layers included."""
    counts, request = setup.classes.counts, setup.request
    totals = np.arange(int(counts.sum()) + 1) if setup.classes.wide else setup.classes.counts_of().sum(axis=1)
    return (totals >= max(1, request.min_devices)) & (totals <= request.max_devices)


def _least(setup: Setup, criteria: Sequence[Criterion], counts: Counts) -> tuple[float, ...] | None:
    """Values that no chain on the multiset goes below; None where they are not known for all objectives."""
    if not set(criteria) <= {"time", "money", "devices"}:
        return None
    held = set(members(setup, counts))
    devices = tuple(device for device in setup.request.devices if device.id in held)
    step = least_step(replace(setup.request, devices=devices, max_devices=len(devices)))
    samples = setup.problem.job.batch.total
    values = {"time": step, "money": price_of(setup.classes, counts) * step / samples, "devices": float(len(devices))}
    return tuple(values[name] for name in criteria)
