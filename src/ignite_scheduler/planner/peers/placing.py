"""From what a peer cut to choices: stages on devices, equal shares, and the best order where its paper has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Final

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.model import Batch, Device, Infeasible, PipelineChoice, Resources
from ignite_scheduler.planner.kernel import make_room, value_of
from ignite_scheduler.planner.peers.cutting import runs
from ignite_scheduler.planner.peers.view import View
from ignite_scheduler.planner.setup import prepare

MOST_PERMUTED: Final = 8
"""Devices of which every order is tried."""


def equal_shares(samples: int, replicas: int) -> tuple[int, ...]:
    """Shares that differ by one at most, the larger first.

    >>> equal_shares(8, 3)
    (3, 3, 2)
    """
    each, more = divmod(samples, replicas)
    return tuple(each + (i < more) for i in range(replicas))


def choice(view: View, stages: Sequence[StageChoice], schedule: str | None = None) -> Assignment:
    """The stages with the family's microbatches; ``schedule`` unless the job fixes one."""
    microbatches = microbatch_sizes(view.request.problem.job.batch.total, view.samples)
    fixed = view.family.schedule
    return Assignment(stages=tuple(stages), microbatches=microbatches, schedule=schedule or fixed)


def layers_of(view: View, first: int, end: int) -> tuple[int, ...]:
    """Layers of the blocks ``first`` … ``end`` − 1."""
    return tuple(range(int(view.starts[first]), int(view.starts[end])))


def chain(
    view: View,
    bounds: Sequence[int],
    groups: Sequence[Sequence[Device]],
    shares: Sequence[tuple[int, ...]] | None = None,
) -> Assignment:
    """A chain of stages on groups of devices, with equal shares unless others are given."""
    shares = shares or [equal_shares(view.samples, len(group)) for group in groups]
    return choice(
        view,
        [
            StageChoice(layers=layers_of(view, first, end), devices=tuple(device.id for device in group), samples=dealt)
            for (first, end), group, dealt in zip(runs(bounds), groups, shares, strict=True)
        ],
    )


def permuted(view: View, bounds: Sequence[int]) -> tuple[Assignment, ...]:
    """The cut with one device a stage in the best order of all that fit; by id where there are many or none fits.

    All orders are tried on the exact step time, for papers whose devices are equal: more than they offer.
    """
    devices = view.chain_devices[: len(bounds) - 1]
    plain = chain(view, bounds, [(device,) for device in devices])
    best = _best_order(view, [int(view.starts[b]) for b in bounds], devices)
    if best is None:
        return (plain,)
    by_id = {device.id: device for device in devices}
    return (chain(view, bounds, [(by_id[name],) for name in best]), plain)


def _best_order(view: View, bounds: list[int], devices: tuple[Device, ...]) -> tuple[str, ...] | None:
    if len(devices) > MOST_PERMUTED:
        return None
    problem = view.request.problem
    setup = prepare(
        replace(
            problem,
            job=replace(
                problem.job,
                batch=Batch(total=problem.job.batch.total, micro=view.samples),
                pipeline=PipelineChoice(schedule=view.family.schedule),
                resources=Resources(),
            ),
            devices=tuple(device.id for device in devices),
            objective="time",
        )
    )
    assert not isinstance(setup, Infeasible)
    numbers = setup.numbers(setup.families[0], setup.arrays(setup.families[0]))
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    every = [c for c, count in enumerate(setup.classes.counts) for _ in range(int(count))]
    first = np.array(bounds[-2::-1], dtype=np.int64)
    best, order = np.inf, None
    for classes in sorted(set(permutations(every))):
        value = float(value_of(numbers, room, len(classes), np.array(classes, dtype=np.int64), first))
        if value < best:
            best, order = value, classes
    return None if order is None else setup.classes.representatives(tuple(reversed(order)))


def lines(view: View) -> tuple[tuple[Device, ...], ...]:
    """A few orders of all devices, for papers that fill equal devices one after the other.

    By node and id; by node, the fastest device of each first; nodes from the fastest to the slowest and back; all
    devices from the fastest to the slowest and back.
    """
    rank = {device.id: place for place, device in enumerate(view.by_speed)}
    sorted_nodes = [sorted(node, key=lambda device: rank[device.id]) for node in view.nodes]
    fast_nodes = sorted(
        sorted_nodes, key=lambda node: (sum(rank[device.id] for device in node) / len(node), node[0].id)
    )
    every = (
        [device for node in view.nodes for device in node],
        [device for node in sorted_nodes for device in node],
        [device for node in fast_nodes for device in node],
        [device for node in reversed(fast_nodes) for device in node],
        list(view.by_speed),
        list(reversed(view.by_speed)),
    )
    return tuple(dict.fromkeys(tuple(line) for line in every))


def filled(view: View, bounds: Sequence[int], sizes: Sequence[int]) -> tuple[Assignment, ...]:
    """A cut whose stages have so many replicas with equal shares, on each of the :func:`lines` in turn.

    With one device a stage the best of all orders.
    """
    if set(sizes) == {1} and len(sizes) <= len(view.chain_devices):
        return permuted(view, bounds)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    return tuple(chain(view, bounds, [line[a:b] for a, b in pairwise(ends)]) for line in lines(view))


def relaid(view: View, bounds: Sequence[int], groups: Sequence[Sequence[Device]]) -> tuple[Assignment, ...]:
    """A chain as its paper lays it on the devices by node and id, then with the other :func:`lines` in their places.

    With one device a stage also the best of all orders.
    """
    every = lines(view)
    places = {device.id: place for place, device in enumerate(every[0])}
    found = [chain(view, bounds, [[line[places[device.id]] for device in group] for group in groups]) for line in every]
    if all(len(group) == 1 for group in groups) and len(groups) <= len(view.chain_devices):
        found += permuted(view, bounds)
    return tuple(found)
