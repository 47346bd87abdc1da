"""One stage of a choice on each of its devices: seconds for its share of a microbatch, and bytes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ignite_scheduler.cost.choice import StageChoice
from ignite_scheduler.cost.compute import LayerSeconds, action_overhead, held_update_seconds, layer_seconds
from ignite_scheduler.cost.memory import (
    NOT_OFFLOADED,
    Activations,
    byte_scale,
    held_activations,
    memory_factors,
    replica_memory,
    resolved_precision,
)
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Device, Job, Profile


class ReplicaSeconds(NamedTuple):
    """Seconds of one replica for its share of one microbatch; all 0 where its share is 0."""

    forward: float
    backward: float
    weight_backward: float


IDLE = ReplicaSeconds(0.0, 0.0, 0.0)


class LayerClock:
    """Seconds of layers on devices, each asked of the profile once for all devices with the same figures."""

    def __init__(self, job: Job, profile: Profile) -> None:
        self.profile, self.precision = profile, resolved_precision(job, profile)
        self._known: dict[tuple[tuple[int, ...], Hashable, int], tuple[LayerSeconds, ...]] = {}

    def seconds(self, layers: tuple[int, ...], device: Device, samples: int) -> tuple[LayerSeconds, ...]:
        """Of each of the layers for ``samples`` samples.

        Raises
        ------
        InputError
            One of them has no time on the device.
        """
        key = layers, _figures(device), samples
        found = self._known.get(key)
        if found is None:
            found = tuple(self._layer(index, device, samples) for index in layers)
            self._known[key] = found
        return found

    def _layer(self, index: int, device: Device, samples: int) -> LayerSeconds:
        seconds = layer_seconds(self.profile, index, device, samples, self.precision)
        if seconds is None:
            name = self.profile.layers[index].name
            raise InputError(
                f"layer {name!r} has no time on kind {device.kind!r} (device {device.id}): measure it there, or give "
                f"the device a speed relative to the profile's reference {self.profile.reference!r}"
            )
        return seconds


def _figures(device: Device) -> Hashable:
    """What the seconds of a layer depend on."""
    return (
        device.kind,
        device.speed,
        device.rate,
        device.peak_flops,
        device.memory_bandwidth,
        device.achievable_flops,
        device.achievable_bandwidth,
        device.launch_overhead,
    )


class TimedStage:
    """A stage of a choice with ``held`` microbatches in flight.

    Parameters
    ----------
    clock
        Of the job and the profile.
    choice
        What the stage holds.
    devices
        Its replicas, in the choice's order.
    held
        The most microbatches whose activations it holds at once.
    """

    def __init__(self, job: Job, clock: LayerClock, choice: StageChoice, devices: Sequence[Device], held: int) -> None:
        self.job, self.profile, self.clock = job, clock.profile, clock
        self.choice, self.devices, self.held = choice, tuple(devices), held
        self.scale = byte_scale(job, self.profile)
        self.activations: Activations = held_activations(self.profile, choice.layers, choice.recompute)
        self.again = tuple(any(first <= index < end for first, end in choice.recompute) for index in choice.layers)
        self.shards = len(self.devices) if choice.shard else 1

    @property
    def moves(self) -> bool:
        """Whether activations really leave for host memory: no stage moves what it needs next."""
        return self.choice.offload and self.held > NOT_OFFLOADED

    def seconds(self, device: Device, samples: int) -> ReplicaSeconds:
        """Of one replica for its share of a microbatch.

        What is recomputed adds its forward to the backward. What is offloaded goes over the link to the host while the
        stage computes; where the link takes longer than that, the stage waits for it.

        Raises
        ------
        InputError
            A layer has no time on the device, or activations are to leave it and its link to the host is unknown.
        """
        if not samples:
            return IDLE
        layers = self.clock.seconds(self.choice.layers, device, samples)
        overhead = action_overhead(self.profile, device)
        again = sum(layer.forward for layer, anew in zip(layers, self.again, strict=True) if anew)
        forward = sum(layer.forward for layer in layers) + overhead
        backward = sum(layer.backward for layer in layers) + again + overhead
        if self.moves:
            moved = samples * self.activations.kept * self.scale / _host_bandwidth(device)
            forward, backward = max(forward, moved), max(backward, moved)
        return ReplicaSeconds(forward, backward, sum(layer.weight_backward for layer in layers))

    def update(self, device: Device) -> float:
        """Seconds of the optimizer's update on the device."""
        return held_update_seconds(self.profile, self.choice.layers, device, self.job.optimizer.name)

    def memory(self, samples: int) -> float:
        """Bytes on a device that has a share of ``samples`` of each full microbatch."""
        return replica_memory(
            self.profile,
            self.choice.layers,
            memory_factors(self.job, self.profile),
            self.activations,
            held=min(self.held, NOT_OFFLOADED) if self.choice.offload else self.held,
            samples=samples,
            scale=self.scale,
            shards=self.shards,
        )

    def sources(self) -> dict[str, str]:
        """Which figures the layer times of each device come from."""
        found = {}
        for device, samples in zip(self.devices, self.choice.samples, strict=True):
            layers = self.clock.seconds(self.choice.layers, device, samples)
            found[device.id] = "; ".join(dict.fromkeys(layer.source for layer in layers))
        return found


def _host_bandwidth(device: Device) -> float:
    if device.host_bandwidth is None:
        raise InputError(
            f"activations cannot be offloaded from {device.id}: the bandwidth of its link to the host's memory is not "
            f"known; give the device host_bandwidth: 25GB/s in the cluster file, or leave offload out"
        )
    return device.host_bandwidth
