"""A wide cluster by what its devices have in common: kinds of equal figures, blocks of equal kind, node and links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ignite_scheduler.model import Cluster, Device
from ignite_scheduler.planner.kernel import Floats, Ints

NO_LINK: Final = np.inf
"""Latency of a link that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The devices that may be used, in order of their ids.

    Parameters
    ----------
    devices
        By id. ``kind`` and ``block`` [device] say what each belongs to.
    kinds
        One device of each kind; ``kind_counts`` of them there are. Devices of a kind have the same figures.
    block_kind, block_counts
        [block] kind and number of devices. Devices of a block have the same links to everybody else.
    latency, per_byte
        [block, block] of the link between a device of the first and another one of the second.
    """

    devices: tuple[Device, ...]
    kind: Ints
    block: Ints
    kinds: tuple[Device, ...]
    kind_counts: Ints
    block_kind: Ints
    block_counts: Ints
    latency: Floats
    per_byte: Floats

    @property
    def num_kinds(self) -> int:
        """Number of kinds of unlike figures."""
        return len(self.kinds)


def world_of(cluster: Cluster, devices: tuple[Device, ...]) -> World:
    """The world of these devices; the order of the listing does not matter.

    Notes
    -----
    Which link joins two devices follows from their nodes and from which rules of the cluster name them, so that the
    links of one pair stand for those of two whole blocks: O(blocks²) look-ups.
    """
    devices = tuple(sorted(devices, key=lambda device: device.id))
    kinds: dict[Device, int] = {}
    blocks: dict[tuple[object, ...], int] = {}
    kind, block = np.zeros(len(devices), np.int64), np.zeros(len(devices), np.int64)
    members: list[list[int]] = []
    for d, device in enumerate(devices):
        figures = replace(device, id="", node="")
        kind[d] = kinds.setdefault(figures, len(kinds))
        named = tuple(
            (_is_in(device, rule.sources), _is_in(device, rule.targets))
            for rule in cluster.links
            if rule.sources is not None or rule.targets is not None
        )
        block[d] = blocks.setdefault((int(kind[d]), device.node, named), len(blocks))
        if block[d] == len(members):
            members.append([])
        members[block[d]].append(d)
    latency, per_byte = _links(cluster, devices, members)
    firsts = [int(np.flatnonzero(kind == k)[0]) for k in range(len(kinds))]
    return World(
        devices=devices,
        kind=kind,
        block=block,
        kinds=tuple(devices[first] for first in firsts),
        kind_counts=np.bincount(kind, minlength=len(kinds)),
        block_kind=np.array([kind[inside[0]] for inside in members], dtype=np.int64),
        block_counts=np.array([len(inside) for inside in members], dtype=np.int64),
        latency=latency,
        per_byte=per_byte,
    )


def _is_in(device: Device, names: frozenset[str] | None) -> bool:
    return names is None or device.id in names or device.node in names


def _links(cluster: Cluster, devices: tuple[Device, ...], members: list[list[int]]) -> tuple[Floats, Floats]:
    size = len(members)
    latency, per_byte = np.full((size, size), NO_LINK), np.zeros((size, size))
    for a, sources in enumerate(members):
        for b, targets in enumerate(members):
            if a == b and len(sources) == 1:
                continue
            link = cluster.link(devices[sources[0]], devices[targets[1 if a == b else 0]])
            if link is not None:
                latency[a, b], per_byte[a, b] = link.latency, 1.0 / link.bandwidth
    return latency, per_byte


def reach(world: World) -> list[tuple[int, float, float]]:
    """How large a group can be for what links: (most devices, least seconds per byte, least latency), best links first.

    In a group of more devices than an entry says some pair of them has links no better than those of the next entry:
    the devices of a group that all have links of some bandwidth to each other are connected by such links.
    """
    best_latency = float(world.latency.min(initial=NO_LINK))
    found: list[tuple[int, float, float]] = []
    both = np.maximum(world.per_byte, world.per_byte.T)
    both[(world.latency == NO_LINK) | (world.latency.T == NO_LINK)] = np.inf
    for level in np.unique(both[np.isfinite(both)]):
        size = largest_component(both <= level, world.block_counts)
        if size > (found[-1][0] if found else 1):
            found.append((size, float(level), best_latency))
    return found


def largest_component(near: np.ndarray[tuple[int, int], np.dtype[np.bool_]], counts: Ints) -> int:
    """Number of devices in the largest group of blocks that are near each other by way of others."""
    left = set(range(len(counts)))
    largest = 1
    for start in range(len(counts)):
        if start not in left:
            continue
        left.discard(start)
        inside, todo = [start], [start]
        while todo:
            for b in np.flatnonzero(near[todo.pop()]):
                if int(b) in left:
                    left.discard(int(b))
                    inside.append(int(b))
                    todo.append(int(b))
        whole = len(inside) > 1 or near[start, start]
        largest = max(largest, int(counts[inside].sum()) if whole else 1)
    return largest
