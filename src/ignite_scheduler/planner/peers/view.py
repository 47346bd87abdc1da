"""What a peer sees of a problem: seconds, bytes and links as arrays, of every device or of a mean one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import byte_scale, layer_seconds, resolved_precision, ring_seconds
from ignite_scheduler.model import Device
from ignite_scheduler.planner.instance import Model, model_arrays
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.request import Request

MOST_BLOCKS: Final = 128
"""Longer models are seen as so many blocks of consecutive layers; several papers' programs are cubic in the layers."""

NO_LINK: Final = 1e15
"""Seconds for a message between devices without a link: more than any plan takes, and finite in every sum."""


class Seconds(NamedTuple):
    """Prefix sums over blocks, [block] from 0 to B: seconds of the blocks before."""

    forward: Floats
    backward: Floats

    @property
    def total(self) -> Floats:
        """Both passes."""
        return self.forward + self.backward


class Wire(NamedTuple):
    """A link as seconds: ``latency + bytes / bandwidth``."""

    latency: float
    bandwidth: float

    def seconds(self, num_bytes: Floats) -> Floats:
        """Seconds for messages of these sizes; one without bytes costs nothing."""
        return np.where((num_bytes > 0) | (self.latency >= NO_LINK), self.latency + num_bytes / self.bandwidth, 0.0)


@dataclass(frozen=True, kw_only=True)
class View:
    """One family of one request, as peers see it. Each of ``devices`` has times for every layer.

    ``starts`` are the first layers of the blocks that peers cut between, and the number of layers at the end.
    """

    request: Request
    family: Family
    devices: tuple[Device, ...]
    starts: Ints
    model: Model
    _seconds: dict[tuple[Device, int], Seconds] = field(default_factory=dict)
    _means: dict[int, Seconds] = field(default_factory=dict)
    _wires: dict[tuple[Device, ...], Wire] = field(default_factory=dict)
    _links: dict[tuple[Device, Device], Wire] = field(default_factory=dict)

    @property
    def num_blocks(self) -> int:
        """Number of blocks, the layers that a peer may tell apart."""
        return len(self.starts) - 1

    @property
    def samples(self) -> int:
        """Samples of a full microbatch."""
        return self.family.samples

    @property
    def num_microbatches(self) -> int:
        """Microbatches of a step."""
        return self.family.num_microbatches

    @property
    def most_replicas(self) -> int:
        """Devices that a stage may have: each takes at least one sample of every microbatch."""
        return min(self.request.replicas or len(self.devices), self.samples)

    @cached_property
    def by_speed(self) -> tuple[Device, ...]:
        """Devices, the fastest on the whole model first; equal ones by id."""
        return tuple(sorted(self.devices, key=lambda device: (self.seconds(device).total[-1], device.id)))

    @property
    def chain_devices(self) -> tuple[Device, ...]:
        """As many devices as a chain may have stages, the fastest if not all; by id."""
        most = min(len(self.devices), self.request.max_stages, self.num_blocks)
        return tuple(sorted(self.by_speed[:most], key=lambda device: device.id))

    @cached_property
    def nodes(self) -> tuple[tuple[Device, ...], ...]:
        """Devices by node, both by id."""
        names = dict.fromkeys(device.node for device in self.devices)
        return tuple(tuple(device for device in self.devices if device.node == name) for name in sorted(names))

    def seconds(self, device: Device, samples: int | None = None) -> Seconds:
        """Seconds of the blocks on a device for a microbatch, or for a share of it."""
        share = self.samples if samples is None else samples
        key = (replace(device, id="", node="", memory=0.0), share)
        if key not in self._seconds:
            problem = self.request.problem
            precision = resolved_precision(problem.job, problem.profile)
            indices = range(len(problem.profile.layers))
            found = [layer_seconds(problem.profile, index, device, share, precision) for index in indices]
            known = [entry for entry in found if entry is not None]
            assert len(known) == len(found), device.id
            self._seconds[key] = Seconds(
                self._prefix(np.array([entry.forward for entry in known])),
                self._prefix(np.array([entry.backward for entry in known])),
            )
        return self._seconds[key]

    def mean(self, replicas: int = 1) -> Seconds:
        """Seconds of the blocks on a device of mean speed that is one of so many replicas with equal shares."""
        share = -(-self.samples // replicas)
        if share not in self._means:
            every = [self.seconds(device, share) for device in self.devices]
            self._means[share] = Seconds(_mean([one.forward for one in every]), _mean([one.backward for one in every]))
        return self._means[share]

    def _prefix(self, per_layer: Floats) -> Floats:
        found: Floats = np.concatenate(([0.0], np.cumsum(per_layer)))[self.starts]
        return found

    @cached_property
    def parameters(self) -> Floats:
        """Prefix sums of parameter bytes in the job's precision, as gradients are sent."""
        problem = self.request.problem
        layers = problem.profile.layers
        return self._prefix(np.array([layer.parameter_bytes for layer in layers])) * byte_scale(
            problem.job, problem.profile
        )

    @cached_property
    def cuts(self) -> Floats:
        """Bytes one way over the cut in front of each block for a full microbatch; 0 at both ends."""
        found: Floats = self.model.once_bytes[self.starts] * self.samples
        found[0] = found[-1] = 0.0
        return found

    def need(self, in_flight: int, share: int) -> Floats:
        """Bytes [i, j] of blocks i…j−1 with so many microbatches of ``share`` samples in flight."""
        found: Floats = self.model.need(min(in_flight, self.num_microbatches), share)[np.ix_(self.starts, self.starts)]
        return found

    def link(self, source: Device, target: Device) -> Wire:
        """The link of two devices; hopelessly slow where there is none."""
        if (source, target) not in self._links:
            found = self.request.problem.cluster.link(source, target)
            self._links[source, target] = (
                Wire(NO_LINK, math.inf) if found is None else Wire(found.latency, found.bandwidth)
            )
        return self._links[source, target]

    def between(self, senders: tuple[Device, ...], receivers: tuple[Device, ...]) -> Wire:
        """The least bandwidth and the largest latency from any sender to any receiver."""
        wires = [self.link(a, b) for a in senders for b in receivers]
        return Wire(max(wire.latency for wire in wires), min(wire.bandwidth for wire in wires))

    def slowest(self, devices: tuple[Device, ...]) -> Wire:
        """The least bandwidth and the largest latency over all pairs that have a link; a free link if none has."""
        if devices not in self._wires:
            cluster = self.request.problem.cluster
            pairs = [(a, b) for a in devices for b in devices if a.id != b.id]
            links = [found for a, b in pairs if (found := cluster.link(a, b)) is not None]
            self._wires[devices] = Wire(
                max((link.latency for link in links), default=0.0),
                min((link.bandwidth for link in links), default=math.inf),
            )
        return self._wires[devices]

    def ring(self, devices: tuple[Device, ...]) -> Wire:
        """A ring all-reduce over the devices as seconds of the bytes that it reduces; free for one device."""
        wire, count = self.slowest(devices), len(devices)
        if count == 1:
            return Wire(0.0, math.inf)
        start = ring_seconds(0.0, wire.bandwidth, wire.latency, count)
        return Wire(
            start, 1.0 / ring_seconds(1.0, wire.bandwidth, 0.0, count) if wire.bandwidth < math.inf else math.inf
        )

    def reduce(self, devices: tuple[Device, ...]) -> Floats:
        """Seconds [i, j] of the ring all-reduce of the gradients of blocks i…j−1 over the devices; 0 for one device."""
        return self.ring(devices).seconds(np.maximum(self.parameters[None, :] - self.parameters[:, None], 0.0))

    @cached_property
    def slowest_wire(self) -> Wire:
        """The slowest link among all devices: what a planner for equal devices takes for any link."""
        return self.slowest(self.devices)


def see(request: Request, devices: tuple[Device, ...], family: Family, model: Model | None = None) -> View:
    """The view of one family; ``model`` where the byte figures are known already."""
    problem = request.problem
    num_layers = len(problem.profile.layers)
    count = min(num_layers, MOST_BLOCKS)
    return View(
        request=request,
        family=family,
        devices=devices,
        starts=np.arange(count + 1) * num_layers // count,
        model=model or model_arrays(problem.job, problem.profile, problem.memory_margin),
    )


def _mean(prefixes: list[Floats]) -> Floats:
    """Prefix sums of 1 ÷ (mean of 1 ÷ seconds) by block; a block that takes no time on one device takes none."""
    blocks = np.diff(np.array(prefixes), axis=1)
    with np.errstate(divide="ignore"):
        mean = 1.0 / (1.0 / blocks).mean(axis=0)
    return np.concatenate(([0.0], np.cumsum(mean)))
