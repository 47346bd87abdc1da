"""One problem over a wide cluster in arrays: what does not depend on the family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ignite_scheduler.cost import byte_scale
from ignite_scheduler.planner.groups.costs import Actions, Costs, make_costs
from ignite_scheduler.planner.instance import model_arrays
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.large.chain import Net
from ignite_scheduler.planner.large.rows import Rows
from ignite_scheduler.planner.large.world import World, world_of
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request

MOST_SAMPLES: Final = 1024
"""Microbatches of more samples are covered by the bound but not searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a search stands on.

    ``both`` [kind, samples, layer] are prefix sums of a forward and a backward; ``ids`` are the devices' names.
    """

    request: Request
    world: World
    rows: Rows
    costs: Costs
    net: Net
    both: Floats
    ids: tuple[str, ...]

    def standing(self, devices: Iterable[int]) -> tuple[int, ...]:
        """The devices in the order in which samples are dealt out to a group of them: by block, then by id."""
        return tuple(sorted(devices, key=lambda device: (int(self.world.block[device]), device)))

    def permits(self, first: Sequence[int], groups: Sequence[Sequence[int]]) -> bool:
        """Whether the request lets a chain begin its stages there and hold these devices."""
        request = self.request
        held = [device for group in groups for device in group]
        if not request.min_stages <= len(groups) <= request.max_stages:
            return False
        if not request.min_devices <= len(held) <= request.max_devices:
            return False
        cuts = set(request.cuts)
        if any(i not in cuts for i in first[1:]) or (request.split and len(cuts) != len(first) - 1):
            return False
        if request.replicas is not None and any(len(group) != request.replicas for group in groups):
            return False
        if not request.any_of:
            return True
        kinds = Counter(self.world.devices[device].kind for device in held)
        return any(kinds == Counter(wanted) for wanted in request.any_of)


def ground_of(problem: Problem, request: Request) -> Ground:
    """The arrays of a problem: O(kinds · samples · layers)."""
    world = world_of(problem.cluster, request.devices)
    job, profile = problem.job, problem.profile
    most = min(MOST_SAMPLES, max(family.samples for family in request.families))
    actions = Actions(*((False in values, True in values) for values in _actions(request)))
    costs = make_costs(job, profile, world.kinds, most, problem.memory_margin, actions)
    rows = Rows(problem, world)
    return Ground(
        request=request,
        world=world,
        rows=rows,
        costs=costs,
        net=_net(problem, world, costs),
        both=costs.forward + costs.backward,
        ids=tuple(device.id for device in world.devices),
    )


def _actions(request: Request) -> tuple[tuple[bool, ...], ...]:
    return request.recompute, request.shard, request.offload


def _net(problem: Problem, world: World, costs: Costs) -> Net:
    model = model_arrays(problem.job, problem.profile, problem.memory_margin)
    saved = np.diff(costs.activations) - costs.reads
    forward = np.diff(costs.forward[:, costs.samples], axis=1)
    with np.errstate(divide="ignore"):
        worth = np.where(saved > 0, forward / np.maximum(saved, 1e-300), np.inf)
    base_rate, rate = 1.0, np.zeros(len(world.devices))
    if problem.objective == "cost":
        base_rate, rate = 0.0, np.array([device.price or 0.0 for device in world.devices])
    scale = byte_scale(problem.job, problem.profile)
    parameters = [layer.parameter_bytes for layer in problem.profile.layers]
    tied = [min(parameters[index] for index in group if index >= 0) * scale for group in costs.tied]
    return Net(
        kind=world.kind,
        block=world.block,
        latency=world.latency,
        per_byte=world.per_byte,
        single_bytes=model.single_bytes,
        tensors=model.tensors,
        readers=model.readers,
        reader_bytes=model.reader_bytes,
        order=np.argsort(worth, axis=1, kind="stable").astype(np.int64),
        tied_bytes=np.array(tied, dtype=np.float64),
        base_rate=base_rate,
        rate=rate,
    )
