"""First plans whose groups are of one kind each: the least fill under a cap, with prices for scarce kinds.

Under a cap on the seconds of a stage the step is about the fill plus the cap for every further microbatch. The least
fill that holds no more devices of a kind than there are is looked for with prices per device (Everett, "Generalized
Lagrange multiplier method", Operations Research 11, 1963): a shortest path over the layers at these prices says which
kinds are asked for too much, and the same table with what is left of each kind beside every layer gives a chain.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.judge import Chain
from ignite_scheduler.planner.large.line import Line

CAPS: Final = 16
"""Caps tried, from ``LOOSEST`` times the pace at which all devices share all work down to it, closer and closer."""
LOOSEST: Final = 4.0
FINER: Final = 24
"""Caps tried about the best one of those, as far as ``ABOUT`` times more or less."""
ABOUT: Final = 1.1
ROUNDS: Final = 20
"""Rounds of prices under each cap."""
SPARING: Final = 1.6
"""What prices are multiplied with where no chain fits, so that the next ones are shorter."""
TAKEN: Final = 8
"""Chains handed out, of unlike caps."""


@compiled
def least_priced(
    line: Any, ring: Any, counts: Any, prices: Any, cap: float, most_stages: int, taken: Any, used: Any
) -> float:
    """The fill of the cheapest chain at these prices; infinite where there is none.

    ``ring`` [kind, size]: seconds a byte of a ring, by place in ``line.sizes``. ``taken`` [layer]: kind, size and end
    of the stage that begins there; ``used`` [layer, kind]: devices behind it, ``counts`` at most.
    """
    size, kinds = line.weights.shape[0] - 1, len(counts)
    least, fill = np.full(size + 1, np.inf), np.zeros(size + 1)
    depth = np.zeros(size + 1, np.int64)
    used[:] = 0
    least[size] = 0.0
    for j in range(size, 0, -1):
        if least[j] == np.inf or depth[j] >= most_stages:
            continue
        deep = line.num_microbatches if line.gpipe else min(line.num_microbatches, depth[j] + 1)
        for k in range(kinds):
            for n in range(len(line.sizes)):
                r = line.sizes[n]
                if used[j, k] + r > counts[k]:
                    break
                share = -(-line.samples // r)
                link = line.link[j] / r if j < size else 0.0
                paid = least[j] - fill[j] + prices[k] * r
                for i in range(j - 1, -1, -1):
                    busy = line.seconds[k, share, j] - line.seconds[k, share, i] + line.overhead[k]
                    need = line.fixed[j] - line.fixed[i] + (line.spread[j] - line.spread[i]) / r
                    need += deep * share * (line.kept[j] - line.kept[i])
                    reduced = ring[k, n] * (line.weights[j] - line.weights[i])
                    if busy + reduced > cap or need > line.memory[k]:
                        break
                    if fill[j] + link + busy + paid < least[i]:
                        least[i], fill[i], depth[i] = fill[j] + link + busy + paid, fill[j] + link + busy, depth[j] + 1
                        taken[i, 0], taken[i, 1], taken[i, 2] = k, r, j
                        used[i] = used[j]
                        used[i, k] += r
    return float(fill[0]) if least[0] < np.inf else np.inf


def alike_chains(ground: Ground, line: Line) -> list[Chain]:
    """Chains of groups of one kind each, likely best first, over the devices of any line of one family."""
    line = line._replace(sizes=_sizes(line.samples, ground.request.replicas))
    counts, size = ground.world.kind_counts, ground.rows.num_layers
    whole = line.seconds[:, line.samples, size] + line.overhead
    speed = 1 / np.maximum(whole, 1e-12)
    if not len(line.sizes) or not speed.any():
        return []
    pace = 1 / float(counts @ speed)
    prices = speed / speed.max()
    ring = _ring(ground, line)
    found = []
    for step in range(CAPS, 0, -1):
        cap = pace * (1 + (LOOSEST - 1) * (step / CAPS) ** 2)
        entry = _under(ground, line, ring, prices, cap)
        if entry is None:
            break  # nor is there one under a lower cap
        found.append(entry)
    if not found:
        return []
    middle = min(found, key=lambda entry: entry[0])[1]
    for power in np.linspace(-1.0, 1.0, FINER):
        entry = _under(ground, line, ring, prices, middle * ABOUT**power)
        if entry is not None:
            found.append(entry)
    found.sort(key=lambda entry: entry[:2])
    return [_placed(ground, steps) for _, _, steps in found[:TAKEN]]


def _under(ground: Ground, line: Line, ring: Floats, speed: Floats, cap: float) -> tuple[float, float, Ints] | None:
    """About how long a step of the best chain under the cap takes, the cap, and its stages."""
    counts, size = ground.world.kind_counts, ground.rows.num_layers
    most = min(ground.request.max_stages, size)
    taken, used = np.zeros((size + 1, 3), np.int64), np.zeros((size + 1, len(counts)), np.int64)
    prices = speed * cap / line.sizes[-1]
    best, steps = math.inf, None
    for turn in range(ROUNDS):
        fill = least_priced(line, ring, counts, prices, cap, most, taken, used)
        if fill < best:
            best, steps = fill, _path(taken, size)
        if math.isinf(least_priced(line, ring, counts * (size + 1), prices, cap, most, taken, used)):
            prices = prices * SPARING  # chains as deep as these hold too many microbatches in their memory
            continue
        asked = np.minimum(used[0] / counts, 3.0) - 1.0
        prices = prices * np.exp(asked * 0.8 / (1 + turn) ** 0.5)
    return None if steps is None else (best + (line.num_microbatches - 1) * cap, cap, steps)


def _sizes(samples: int, replicas: int | None) -> Ints:
    """Sizes of groups of which none has a smaller one that is done as soon."""
    if replicas is not None:
        return np.array([replicas] if replicas <= samples else [], dtype=np.int64)
    return np.array(sorted({-(-samples // share) for share in range(1, samples + 1)}), dtype=np.int64)


def _ring(ground: Ground, line: Line) -> Floats:
    """[kind, size]: seconds a byte of the all-reduce of a group, shared out over the microbatches."""
    world = ground.world
    sizes = line.sizes.astype(np.float64)
    inside = np.diag(world.per_byte)
    rows = []
    for kind in range(world.num_kinds):
        own = (world.block_kind == kind) & np.isfinite(np.diag(world.latency))
        room = int(world.block_counts[own].max(initial=1))
        rows.append(np.where(line.sizes <= room, float(inside[own].max(initial=0.0)), line.far))
    return np.asarray(2 * (sizes - 1) / sizes * np.array(rows) / line.num_microbatches)


def _path(taken: Ints, size: int) -> Ints:
    """[stage]: first layer, kind and number of devices."""
    rows, i = [], 0
    while i < size:
        rows.append((i, int(taken[i, 0]), int(taken[i, 1])))
        i = int(taken[i, 2])
    return np.array(rows, dtype=np.int64)


def _placed(ground: Ground, steps: Ints) -> Chain:
    """The chain on real devices: large groups first, each in the fullest block that has room for all of it."""
    world = ground.world
    free: list[list[int]] = [[] for _ in world.block_counts]
    for device in range(len(ground.ids) - 1, -1, -1):
        free[world.block[device]].append(device)
    groups: list[tuple[int, ...]] = [() for _ in steps]
    for s in sorted(range(len(steps)), key=lambda s: (-int(steps[s, 2]), s)):
        kind, wanted = int(steps[s, 1]), int(steps[s, 2])
        own = [b for b in range(len(free)) if world.block_kind[b] == kind]
        fitting = [b for b in own if len(free[b]) >= wanted]
        order = [min(fitting, key=lambda b: (len(free[b]), b))] if fitting else own
        group: list[int] = []
        for block in order:
            while free[block] and len(group) < wanted:
                group.append(free[block].pop())
        groups[s] = ground.standing(group)
    return Chain(tuple(int(i) for i in steps[:, 0]), tuple(groups))
