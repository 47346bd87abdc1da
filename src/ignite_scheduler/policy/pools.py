"""Groups of devices that a demand may draw from without telling them apart.

Two levels. A *fine pool* holds devices that may be swapped in any plan without changing its timing: same kind, speed,
memory, price, powers and dtypes, and the same links to everybody outside the pool and among themselves. A *kind pool*
above holds all devices of one kind, which is what a throughput-table job asks for.

Whether two devices may be swapped is read off the link rules instead of comparing all pairs of links: a rule speaks
of a device through its id or its node only, so devices that stand in the same sources and targets of every rule have
the same links, provided that they also share a node or no rule that is limited to one node can apply to them. This
costs O(devices × rules), never joins two devices that differ, and may keep apart two that a longer proof would join.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ignite_scheduler.model import Cluster, Device, LinkRule

KIND_PREFIX: Final = "*/"
"""Begins the ids of kind pools; fine pools are named after a device, whose id begins with its node."""


def kind_pool(kind: str) -> str:
    """Id of the pool of all devices of a kind.

    >>> kind_pool("T4")
    '*/T4'
    """
    return KIND_PREFIX + kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one set of devices.

    ``pool_of`` maps device id → fine pool id (the id of the pool's first device, in file order); ``kind_of`` maps
    fine pool id → kind pool id; ``members`` maps fine and kind pool ids → device ids, in file order.
    """

    pool_of: Mapping[str, str]
    kind_of: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]

    def expand(self, demand: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """All counters that the demand lowers: a device taken from a fine pool is taken from its kind's pool too."""
        needs: dict[str, int] = {}
        for pool, count in demand:
            needs[pool] = needs.get(pool, 0) + count
            kind = self.kind_of.get(pool)
            if kind is not None:
                needs[kind] = needs.get(kind, 0) + count
        return tuple(sorted(needs.items()))


def pools_of(cluster: Cluster) -> Pools:
    """The pools of the cluster's devices. O(devices × link rules)."""
    by_signature: dict[Hashable, list[str]] = {}
    sizes = {node.name: len(node.devices) for node in cluster.nodes}
    local = any(rule.within for rule in cluster.links)
    members: dict[str, list[str]] = {}
    pool_of: dict[str, str] = {}
    kind_of: dict[str, str] = {}
    for device in cluster.devices:
        alone = not local or sizes[device.node] == 1
        signature = _signature(device, cluster.links, None if alone else device.node)
        pool = by_signature.setdefault(signature, [])
        pool.append(device.id)
        pool_of[device.id] = pool[0]
        kind_of[pool[0]] = kind_pool(device.kind)
        members.setdefault(kind_pool(device.kind), []).append(device.id)
    members.update({pool[0]: pool for pool in by_signature.values()})
    return Pools(
        pool_of=MappingProxyType(pool_of),
        kind_of=MappingProxyType(kind_of),
        members=MappingProxyType({pool: tuple(ids) for pool, ids in members.items()}),
    )


def _signature(device: Device, rules: tuple[LinkRule, ...], node: str | None) -> Hashable:
    named = tuple((_stands_in(device, rule.sources), _stands_in(device, rule.targets)) for rule in rules)
    return replace(device, id="", node=""), node, named


def _stands_in(device: Device, names: frozenset[str] | None) -> bool:
    return names is None or device.id in names or device.node in names
