"""Seconds of one layer on one device for a microbatch of u samples."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ignite_scheduler.cost.memory import element_bytes
from ignite_scheduler.model import Device, Layer, LayerTimes, Profile


class LayerSeconds(NamedTuple):
    """Seconds of one layer for one microbatch, and which figures they come from.

    ``weight_backward`` is the part of ``backward`` that belongs to the weights: half where it was not measured apart.
    """

    forward: float
    backward: float
    weight_backward: float
    source: str


def layer_seconds(
    profile: Profile, layer_index: int, device: Device, samples: int, precision: str | None = None
) -> LayerSeconds | None:
    """Seconds of a layer on a device for ``samples`` samples; None where no figure applies to the device.

    In this order: the profile's times for the device's kind; its reference times ÷ the device's ``speed``; a roofline,
    max(FLOPs ÷ achievable FLOP/s, bytes moved ÷ achievable memory bandwidth) + launch overhead, with the device's
    figures for ``precision`` (None = the profile's). A device of the reference kind with a ``speed`` of its own (an
    emulated one) is scaled too. Measured times are kept whatever the precision. All are multiplied by the device's
    ``rate``.

    Notes
    -----
    Between measured sizes linear; beyond them affine through the two nearest, never negative, never falling with the
    size; a single measured size scales in proportion. Every measured curve is taken part by part (forward, backward).
    Roofline: the forward pass moves weights, kept activations and output once, the backward pass twice; where the
    backward's FLOPs are unknown they are twice the forward's.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", CACM 52(4), 2009. We add the launch overhead, and take a share of either peak.
    """
    layer = profile.layers[layer_index]
    scaled = device.speed is not None and profile.reference is not None
    own = layer.times.get(device.kind)
    if own and not (scaled and device.kind == profile.reference):
        return _from_table(own, samples, 1.0 / device.rate, f"measured on {device.kind}")
    reference = layer.times.get(profile.reference) if profile.reference is not None else None
    if reference and device.speed is not None:
        source = f"{profile.reference} ÷ speed {device.speed:g}"
        return _from_table(reference, samples, device.speed / device.rate, source)
    return _roofline(layer, device, samples, profile.precision, precision or profile.precision)


def action_overhead(profile: Profile, device: Device) -> float:
    """Seconds that every action takes on the device beside its layers."""
    return (profile.action_overhead * device.rate + device.action_launch) / (device.speed or 1.0)


def update_seconds(profile: Profile, first: int, last: int, device: Device, optimizer: str) -> float:
    """Seconds of the optimizer's update of layers ``first`` … ``last`` − 1 on the device, and of the end of a step."""
    return held_update_seconds(profile, range(first, last), device, optimizer)


def held_update_seconds(profile: Profile, layers: Sequence[int], device: Device, optimizer: str) -> float:
    """Seconds of the optimizer's update of these layers, by position, on the device, and of the end of a step."""
    seconds = sum(profile.layers[index].update.get(optimizer, 0.0) for index in layers)
    return (seconds + device.step_launch) / (device.speed or 1.0)


def _from_table(table: Mapping[int, LayerTimes], samples: int, speed: float, source: str) -> LayerSeconds:
    sizes = sorted(table)
    forward = _interpolate(sizes, [table[u].forward for u in sizes], samples) / speed
    backward = _interpolate(sizes, [table[u].backward for u in sizes], samples) / speed
    weights = [w for u in sizes if (w := table[u].weight_backward) is not None]
    if len(weights) == len(sizes):
        weight = min(_interpolate(sizes, weights, samples) / speed, backward)
    else:
        weight = backward / 2
    return LayerSeconds(forward, backward, weight, source)


def _interpolate(sizes: list[int], values: list[float], samples: int) -> float:
    if len(sizes) == 1:
        return values[0] * samples / sizes[0]
    right = min(max(bisect_left(sizes, samples), 1), len(sizes) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (sizes[right] - sizes[left])
    if sizes[left] <= samples <= sizes[right]:
        return values[left] + slope * (samples - sizes[left])
    slope = max(slope, 0.0)
    anchor = left if samples < sizes[left] else right
    return max(values[anchor] + slope * (samples - sizes[anchor]), 0.0)


def _roofline(layer: Layer, device: Device, samples: int, own: str, precision: str) -> LayerSeconds | None:
    peak, bandwidth = device.peak(precision), device.memory_bandwidth
    if peak is None or bandwidth is None or layer.forward_flops is None:
        return None
    backward_flops = layer.backward_flops if layer.backward_flops is not None else 2 * layer.forward_flops
    rate, pace = peak * device.achievable_flops, bandwidth * device.achievable_bandwidth
    moved = layer.parameter_bytes + samples * (layer.activation_bytes + layer.output_bytes)
    moved *= element_bytes(precision) / element_bytes(own)
    forward = device.rate * (max(samples * layer.forward_flops / rate, moved / pace) + device.launch_overhead)
    backward = device.rate * (max(samples * backward_flops / rate, 2 * moved / pace) + device.launch_overhead)
    source = f"roofline of {device.kind} at {device.achievable_flops:.0%} of its {precision} peak"
    return LayerSeconds(forward, backward, backward / 2, source.replace("%", " %"))
