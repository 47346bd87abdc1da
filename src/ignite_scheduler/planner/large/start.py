"""First plans of a family: lines of devices in several orders, cut into stages under falling caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np

from ignite_scheduler.planner.kernel import Ints
from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.judge import Chain, Judge
from ignite_scheduler.planner.large.line import Line, least_fill

HALVINGS: Final = 8
"""Caps tried for the least one under which there is a chain."""
EASED: Final = (1.0, 1.03, 1.08, 1.2, 1.5)
"""Multiples of that cap under which chains are taken."""
MOST_UNITS: Final = 256
SHIFTS: Final = (0.0, 0.17, 0.38)
"""Shifts of kinds against each other in lines that mix them."""
SIZES: Final = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256)


def lines(ground: Ground, judge: Judge, unit_size: int) -> Iterator[tuple[Line, list[tuple[int, ...]]]]:
    """Lines of units of so many devices, in several orders, with the devices of each unit."""
    world, costs = ground.world, judge.costs
    members: list[list[int]] = [[] for _ in world.block_counts]
    for device, block in enumerate(world.block):
        members[block].append(device)
    nodes = {name: n for n, name in enumerate(sorted({device.node for device in world.devices}))}
    units = []
    for inside in members:
        for at in range(0, len(inside) - unit_size + 1, unit_size):
            units.append(tuple(inside[at : at + unit_size]))
    whole = costs.whole[:, costs.samples]
    speed = [float(whole[world.kind[unit[0]]]) for unit in units]
    memory = [float(costs.memory[world.kind[unit[0]]]) for unit in units]
    rank: dict[int, int] = {}
    turn = []
    for unit in units:
        kind = int(world.kind[unit[0]])
        turn.append(rank.get(kind, 0))
        rank[kind] = turn[-1] + 1
    orders: list[Callable[[int], tuple[float, ...]]] = [
        lambda n: (speed[n], n),
        lambda n: (-speed[n], n),
        lambda n: (memory[n], n),
        lambda n: (turn[n], speed[n], n),
    ]
    for shift in SHIFTS:
        orders.append(partial(_mixed, shift=shift, turn=turn, rank=rank, kinds=[int(world.kind[u[0]]) for u in units]))
    known = set()
    for key in orders:
        order = tuple(sorted(range(len(units)), key=key))
        if order in known:
            continue
        known.add(order)
        kinds = np.array([world.kind[units[n][0]] for n in order], dtype=np.int64)
        stands = np.array([nodes[world.devices[units[n][0]].node] for n in order], dtype=np.int64)
        yield _line(ground, judge, kinds, stands, unit_size), [units[n] for n in order]


def _mixed(n: int, *, shift: float, turn: list[int], rank: dict[int, int], kinds: list[int]) -> tuple[float, ...]:
    """Place of a unit where each kind is spread evenly over the line, the kinds shifted against each other."""
    kind = kinds[n]
    return ((turn[n] + 0.5) / rank[kind] + shift * kind) % 1.0, float(n)


def _line(ground: Ground, judge: Judge, kind: Ints, node: Ints, unit_size: int) -> Line:
    world, costs, request = ground.world, judge.costs, ground.request
    linked = world.per_byte[np.isfinite(world.latency)]
    far = float(linked.max(initial=0.0))
    inside = np.diag(world.per_byte)[np.isfinite(np.diag(world.latency))]
    sharded = True in request.shard
    again = True in request.recompute
    kept = np.minimum(np.diff(costs.activations), costs.reads) if again else np.diff(costs.activations)
    factor = costs.factor
    sizes = (1,) if request.replicas == 1 else SIZES
    if request.replicas is not None and request.replicas > 1:
        sizes = (request.replicas // unit_size,) if request.replicas % unit_size == 0 else ()
    return Line(
        kind=kind,
        node=node,
        unit_size=unit_size,
        samples=judge.kin.samples,
        num_microbatches=judge.kin.num_microbatches,
        gpipe=judge.family.gpipe,
        seconds=ground.both,
        overhead=2 * costs.overhead,
        memory=costs.memory,
        fixed=costs.parameters * (costs.working + (0.0 if sharded else costs.state)) * factor,
        spread=costs.parameters * (costs.state if sharded else 0.0) * factor,
        kept=np.concatenate(([0.0], np.cumsum(kept))) * costs.scale * factor,
        weights=costs.parameters * costs.scale,
        near=float(inside.max(initial=0.0)) if len(inside) else far,
        far=far,
        link=2 * ground.rows.crossing * judge.kin.samples * far,
        sizes=np.array([size for size in sizes if size <= len(kind)], dtype=np.int64),
    )


def first_chains(ground: Ground, line: Line, units: list[tuple[int, ...]], eased: tuple[float, ...]) -> list[Chain]:
    """Chains along the line: under the least cap that some chain keeps, and under multiples of it."""
    size = len(line.weights) - 1
    most = min(ground.request.max_stages, size, len(units))
    first, taken = np.zeros(most + 2, np.int64), np.zeros((most + 2, 2), np.int64)
    each = line.seconds[:, line.samples, size] + line.overhead
    high = float(each.max()) * 1.01 + 1e-12
    low = 0.9 / float((line.unit_size / np.maximum(each, 1e-12)[line.kind]).sum())  # all devices share all work
    if not least_fill(line, high, most, first, taken):
        return []
    high = min(high, 4 * low) if least_fill(line, 4 * low, most, first, taken) else high
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        if least_fill(line, middle, most, first, taken):
            high = middle
        else:
            low = middle
    found = []
    for factor in eased:
        stages = least_fill(line, high * factor, most, first, taken)
        groups = []
        for begin, end in taken[:stages][::-1]:
            inside = [device for unit in units[begin:end] for device in unit]
            groups.append(ground.standing(inside))
        if stages:
            found.append(Chain(tuple(int(i) for i in first[:stages][::-1]), tuple(groups)))
    return found
