"""What any stage of a family costs at least: the figures from which lower bounds are made."""

from __future__ import annotations

from typing import Final

import numpy as np

from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.hops import hops_of
from ignite_scheduler.planner.large.priced import Offers
from ignite_scheduler.planner.large.rows import Rows
from ignite_scheduler.planner.large.world import reach
from ignite_scheduler.planner.request import Request

FEW: Final = 8
"""Shares of up to so many samples are told apart; larger ones count in fractions."""


def offers_of(ground: Ground, samples: int, num_microbatches: int) -> Offers:
    """The least costs of stages for so many microbatches of so many samples."""
    rows, request, world = ground.rows, ground.request, ground.world
    single = np.array([rows.layers(kind, samples).sum(axis=0) for kind in range(world.num_kinds)])
    rate = rows.rates(samples)
    return Offers(
        samples=samples,
        num_microbatches=num_microbatches,
        single=_sums(single),
        single_over=2 * rows.overhead,
        few=_sums(_few(rows, samples)),
        rate=_sums(rate),
        rate_over=2 * rows.overhead / samples,
        over=2 * rows.overhead,
        single_end=_ends(rows, request, single, samples),
        group_end=_ends(rows, request, rate, 1),
        hops=hops_of(world, rows.crossing, samples),
        weights=rows.weights,
        ring=_rings(rows, request, samples),
        least_size=request.replicas or 2,
        straight=request.replicas in (None, 1),
        forward=_forward(ground, samples),
    )


def _forward(ground: Ground, samples: int) -> Floats:
    """φ and δ such that no forward takes more than φ times forward and backward, and δ.

    φ is that of the whole model where it is most; layers with more of it add to δ what they have above. Memory actions
    only add to the backward, but for offloading, which may make both equal.
    """
    costs = ground.costs
    if samples > costs.forward.shape[1] - 1:
        return np.array([1.0, 0.0])
    forward = np.diff(costs.forward[:, 1 : samples + 1], axis=2)
    both = np.diff(ground.both[:, 1 : samples + 1], axis=2)
    whole = both.sum(axis=2)
    part = float((forward.sum(axis=2) / np.where(whole > 0, whole, np.inf)).max()) if whole.size else 1.0
    part = max(part, 0.5) if True in ground.request.offload else part
    above = np.maximum(0.0, forward - part * both).max(axis=1).sum(axis=1)
    above += np.maximum(0.0, 1 - 2 * part) * costs.overhead
    return np.array([part, float(above.max())])


def _sums(values: Floats) -> Floats:
    """Prefix sums; a layer without a time adds nothing, since no stage that is offered holds it."""
    known = np.where(np.isfinite(values), values, 0.0)
    return np.concatenate((np.zeros((*values.shape[:-1], 1)), np.cumsum(known, axis=-1)), axis=-1)


def _few(rows: Rows, samples: int) -> Floats:
    """[kind, samples, layer]: least seconds for a share of at least so many samples, none of them falling."""
    most = min(FEW, samples)
    few = np.zeros((rows.world.num_kinds, most + 1, rows.num_layers))
    larger = [size for size in rows.sizes(samples) if size > most]
    for kind in range(rows.world.num_kinds):
        least = np.full(rows.num_layers, np.inf)
        for share in sorted({*range(1, most + 1), *larger}, reverse=True):
            np.minimum(least, rows.layers(kind, share).sum(axis=0), out=least)
            if share <= most:
                few[kind, share] = least
    return few


def _rings(rows: Rows, request: Request, samples: int) -> Floats:
    """[replicas, 2]: least seconds a byte, and on top, of an all-reduce between so many devices."""
    most = min(samples, request.max_devices, int(rows.world.kind_counts.sum()))
    if request.replicas is not None:
        most = request.replicas if 1 < request.replicas <= most else 1
    ring = np.full((most + 1, 2), np.inf)
    ring[:2] = 0.0
    size = 2
    for largest, per_byte, latency in reach(rows.world):
        while size <= min(largest, most):
            ring[size] = 2 * (size - 1) / size * per_byte, 2 * (size - 1) * latency
            size += 1
    return ring[:size]


def _ends(rows: Rows, request: Request, seconds: Floats, samples: int) -> Ints:
    """[kind, layer]: behind the last layer of the longest stage from here that fits with so many samples in flight."""
    need = rows.least_need(request, samples)
    ends = np.zeros((rows.world.num_kinds, rows.num_layers), dtype=np.int64)
    for kind, device in enumerate(rows.world.kinds):
        limit = device.memory / (1 + rows.problem.memory_margin) + 1e-9 * need[-1]  # room for rounding
        reached = np.searchsorted(need, need[:-1] + limit, side="right") - 1
        missing = np.append(np.flatnonzero(~np.isfinite(seconds[kind])), rows.num_layers)
        stop = missing[np.searchsorted(missing, np.arange(rows.num_layers))]
        ends[kind] = np.minimum(reached, stop)
    return ends
