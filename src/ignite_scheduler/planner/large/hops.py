"""The least seconds of the links between stages, by what stands at both ends.

A stage is of the class of its device's kind, or of the last class if it has several devices. A link between two devices
is *near* if its seconds per byte, there and back, are no more than a threshold of the class. All stages of a run that
is joined by near links have devices in one component of near links: for a stage of several devices follow the first
sample of the microbatch, whose holder sends it to its next holder. These devices are distinct, so that no run has more
stages than the largest component has devices; and of a link that is not near some pair of devices pays for a far one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.world import World, largest_component

MOST_RUN: Final = 12
"""Near runs of more stages than this are not counted: they may go on."""


class Hops(NamedTuple):
    """Least seconds over the cut in front of a layer, there and back.

    Parameters
    ----------
    near, far
        [class, layer] between two stages of one class.
    between
        [layer, class, class] between two stages of unlike classes.
    runs
        [class]: most stages in a row that near links join.
    """

    near: Floats
    far: Floats
    between: Floats
    runs: Ints


def hops_of(world: World, crossing: Floats, samples: int) -> Hops:
    """The links of microbatches of so many samples; ``crossing`` [layer] bytes a sample."""
    kinds, blocks = world.num_kinds, len(world.block_kind)
    latency = world.latency + world.latency.T
    per_byte = np.where(np.isfinite(latency), world.per_byte + world.per_byte.T, np.inf)
    members = [world.block_kind == kind for kind in range(kinds)] + [np.ones(blocks, dtype=bool)]
    between = np.full((len(crossing), kinds + 1, kinds + 1), np.inf)
    near, far = np.full((2, kinds + 1, len(crossing)), np.inf)
    runs = np.zeros(kinds + 1, dtype=np.int64)
    for a, sources in enumerate(members):
        for b, targets in enumerate(members):
            held = samples if max(a, b) < kinds else 1  # a stage of several devices sends or takes one at least
            pairs = np.ix_(sources, targets)
            if a != b:
                between[:, a, b] = _least(latency[pairs], per_byte[pairs], held * crossing)
        pairs = np.ix_(sources, sources)
        held = samples if a < kinds else 1
        runs[a], threshold = _threshold(per_byte[pairs], world.block_counts[sources])
        inside = per_byte[pairs] <= threshold
        near[a] = _least(latency[pairs], np.where(inside, per_byte[pairs], np.inf), held * crossing)
        far[a] = _least(latency[pairs], np.where(inside, np.inf, per_byte[pairs]), held * crossing)
    return Hops(near, far, between, runs)


def _least(latency: Floats, per_byte: Floats, num_bytes: Floats) -> Floats:
    """[layer]: seconds over the links with finite figures; infinite if there are none."""
    real = np.isfinite(per_byte)
    if not real.any():
        return np.full(len(num_bytes), np.inf)
    return np.asarray(latency[real].min() + num_bytes * per_byte[real].min())


def _threshold(per_byte: Floats, counts: Ints) -> tuple[int, float]:
    """The largest near component, and the threshold by which a stage of a long chain pays most for far links."""
    levels = np.unique(per_byte[np.isfinite(per_byte)])
    best, chosen = 0.0, (MOST_RUN + 1, np.inf)
    for level in levels:
        size = largest_component(per_byte <= level, counts)
        beyond = levels[levels > level]
        if size <= MOST_RUN and len(beyond) and (beyond[0] - levels[0]) / size > best:
            best, chosen = float(beyond[0] - levels[0]) / size, (size, float(level))
    return chosen
