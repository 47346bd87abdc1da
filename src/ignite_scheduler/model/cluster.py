"""Devices, nodes and links of one cluster."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from ignite_scheduler.errors import NotFoundError

FREE_BANDWIDTH = math.inf
"""Bandwidth of a link that costs nothing: within one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (or CPU) that holds stages.

    ``memory`` is what our stages may fill: it is already net of what others use and of the reserve. ``speed`` relates
    to the profile's reference kind; None where the kind's own times or the catalogue must do. ``price`` is money per
    second held, powers are in watts; None = unknown.

    The rest is for the roofline, which times what nobody measured: ``peak_flops`` holds pairs (dtype, FLOP/s) without
    sparsity, ``memory_bandwidth`` is in bytes/s. ``achievable_flops`` and ``achievable_bandwidth`` are the shares of
    these peaks, in (0, 1], that layers really reach; ``launch_overhead`` are seconds that each pass over a layer takes
    beside them.

    ``host_bandwidth`` is what the link to the host's memory carries each way, in bytes/s; None = unknown, and then
    nothing is offloaded there.

    A calibration charges the last three: ``rate`` is a factor on the seconds of layers and on the profile's overhead of
    an action; ``action_launch`` and ``step_launch`` are further seconds of every action and of the end of every step,
    both on the reference kind (÷ ``speed``).
    """

    id: str
    node: str
    kind: str
    memory: float
    speed: float | None = None
    dtypes: frozenset[str] = frozenset({"fp32"})
    price: float | None = None
    busy_power: float | None = None
    idle_power: float | None = None
    peak_flops: tuple[tuple[str, float], ...] = ()
    memory_bandwidth: float | None = None
    achievable_flops: float = 1.0
    achievable_bandwidth: float = 1.0
    launch_overhead: float = 0.0
    host_bandwidth: float | None = None
    rate: float = 1.0
    action_launch: float = 0.0
    step_launch: float = 0.0

    def peak(self, dtype: str) -> float | None:
        """Peak FLOP/s in ``dtype``; None where unknown."""
        return next((rate for name, rate in self.peak_flops if name == dtype), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine and the devices in it."""

    name: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between two devices: seconds for n bytes are ``latency + n / bandwidth``.

    ``wire`` names the serial resource: transfers with the same wire queue up in order of readiness.
    """

    bandwidth: float
    latency: float
    wire: Hashable

    def seconds(self, num_bytes: float) -> float:
        """Seconds for one message of ``num_bytes``."""
        return self.latency + num_bytes / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRule:
    """One line of the cluster file's ``links``: for which ordered pairs, which link.

    ``sources`` and ``targets`` hold names of nodes or ids of devices; None = all. ``both_ways`` also covers the pairs
    turned round. ``within`` limits the rule to pairs inside one node. Later rules win over earlier ones.
    """

    bandwidth: float
    latency: float
    sources: frozenset[str] | None = None
    targets: frozenset[str] | None = None
    both_ways: bool = True
    within: bool = False
    shared: bool = False

    def is_forward(self, source: Device, target: Device) -> bool:
        """Whether the pair runs in the rule's own direction, from its sources to its targets."""
        return self._one_way(source, target)

    def covers(self, source: Device, target: Device) -> bool:
        """Whether the rule speaks of the ordered pair."""
        if self.within and source.node != target.node:
            return False
        return self._one_way(source, target) or (self.both_ways and self._one_way(target, source))

    def _one_way(self, source: Device, target: Device) -> bool:
        return _named(source, self.sources) and _named(target, self.targets)


def _named(device: Device, names: frozenset[str] | None) -> bool:
    return names is None or device.id in names or device.node in names


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A set of nodes and the rules for the links between their devices."""

    name: str
    nodes: tuple[Node, ...]
    links: tuple[LinkRule, ...]
    currency: str | None = None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in file order."""
        return tuple(device for node in self.nodes for device in node.devices)

    @cached_property
    def _by_id(self) -> dict[str, Device]:
        return {device.id: device for device in self.devices}

    def device(self, device_id: str) -> Device:
        """The device of that id; NotFoundError names the ids there are."""
        try:
            return self._by_id[device_id]
        except KeyError:
            known = ", ".join(self._by_id)
            raise NotFoundError(f"no device {device_id!r} in cluster {self.name!r}; there are: {known}") from None

    def place(self, device: Device) -> Hashable:
        """What decides about a device's links: two devices of one place have the same links to everybody else."""
        named = tuple(
            (_named(device, rule.sources), _named(device, rule.targets))
            for rule in self.links
            if rule.sources is not None or rule.targets is not None
        )
        return device.node, named

    def link(self, source: Device, target: Device) -> Link | None:
        """The link from ``source`` to ``target``; None where no rule covers the pair (they cannot talk)."""
        if source.id == target.id:
            return Link(bandwidth=FREE_BANDWIDTH, latency=0.0, wire=(source.id, target.id))
        for index in range(len(self.links) - 1, -1, -1):
            rule = self.links[index]
            if rule.covers(source, target):
                wire: Hashable = (source.id, target.id)
                if rule.shared:  # full duplex: each direction of the shared medium is its own resource
                    wire = ("shared", index, rule.is_forward(source, target))
                return Link(bandwidth=rule.bandwidth, latency=rule.latency, wire=wire)
        return None
