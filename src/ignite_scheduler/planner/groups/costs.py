"""What a run of layers costs on a group of devices: the figures that the compiled functions of :mod:`.stage` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.cost import (
    action_overhead,
    byte_scale,
    layer_seconds,
    memory_factors,
    resolved_precision,
    update_seconds,
)
from ignite_scheduler.model import MODEL_INPUT, Device, Job, Layer, Profile
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.request import Request

ALIKE: Final = 8
"""Layers are looked for among so many earlier unlike ones before they are timed anew."""


class Actions(NamedTuple):
    """Which values each memory action may take, as (off, on)."""

    recompute: tuple[bool, bool] = (True, False)
    shard: tuple[bool, bool] = (True, False)
    offload: tuple[bool, bool] = (True, False)


def permitted(request: Request) -> Actions:
    """The actions of the request's stages."""
    return Actions(*((False in v, True in v) for v in (request.recompute, request.shard, request.offload)))


class Costs(NamedTuple):
    """Seconds and bytes of layers by class of devices, for one number of samples a microbatch.

    Parameters
    ----------
    samples, last
        Samples of a full and of the last microbatch.
    forward, backward
        [class, samples, layer]: prefix sums of seconds, from 0 samples (all 0) up.
    whole
        [class, samples]: seconds of a forward and a backward of the whole model, by which samples are shared out.
    overhead, closing
        [class]: seconds on top of every action, and of every update.
    update
        [class, layer]: prefix sums of the optimizer's seconds.
    barrier
        [class, end]: first layer from which the class has times for all layers before ``end``.
    memory, host
        [class]: bytes, and bytes/s to host memory (0 = no offload).
    parameters
        Prefix sums of the profile's bytes; ``tied`` [group, member] are layers that share a weight (−1: none).
    working, state
        Bytes kept for each parameter byte: weights and gradients, and the optimizer's part.
    scale, factor
        From the profile's tensor bytes to the job's; safety factor on memory.
    activations, carried
        Prefix sums of the bytes that layers keep for a sample; [end] what a stage keeps that ends there on top.
    momentary
        [layer]: bytes a sample that the layer fills while it is at work.
    peak, workspace
        [first, end]: what a microbatch fills for a moment, by sample; the largest workspace. Of shape (1, 1): none.
    reads, entering
        [layer] and [first, end]: bytes a sample of the tensors that a layer or a run of layers reads from others.
        ``entering`` is of shape (1, 1) where nothing may be recomputed.
    """

    num_layers: int
    samples: int
    last: int
    forward: Floats
    backward: Floats
    whole: Floats
    overhead: Floats
    closing: Floats
    update: Floats
    barrier: Ints
    memory: Floats
    host: Floats
    parameters: Floats
    tied: Ints
    working: float
    state: float
    scale: float
    factor: float
    activations: Floats
    carried: Floats
    momentary: Floats
    peak: Floats
    workspace: Floats
    reads: Floats
    entering: Floats
    recompute: npt.NDArray[np.bool_]
    shard: npt.NDArray[np.bool_]
    offload: npt.NDArray[np.bool_]


def make_costs(
    job: Job, profile: Profile, devices: Sequence[Device], most_samples: int, margin: float, actions: Actions
) -> Costs:
    """The figures for up to ``most_samples`` a microbatch, one row for each of ``devices``.

    Set ``samples`` and ``last`` with :func:`for_family`. O(devices · samples · layers).
    """
    forward, backward, barrier = _rows(job, profile, devices, most_samples)
    factors = memory_factors(job, profile)
    overhead = np.array([action_overhead(profile, device) for device in devices])
    updates = [
        [layer.update.get(job.optimizer.name, 0.0) / (device.speed or 1.0) for layer in profile.layers]
        for device in devices
    ]
    whole = forward[:, :, -1] + backward[:, :, -1] + 2 * overhead[:, None]
    whole[:, 0] = 0.0
    tied = [[profile.index(name) for name in group] for group in profile.tied if len(group) > 1]
    width = max((len(group) for group in tied), default=1)
    reads, entering = _entering(profile, wanted=actions.recompute[1])
    return Costs(
        num_layers=len(profile.layers),
        samples=most_samples,
        last=most_samples,
        forward=forward,
        backward=backward,
        whole=whole,
        overhead=overhead,
        closing=np.array([update_seconds(profile, 0, 0, device, job.optimizer.name) for device in devices]),
        update=np.pad(np.cumsum(np.array(updates), axis=1), ((0, 0), (1, 0))),
        barrier=barrier,
        memory=np.array([device.memory for device in devices], dtype=np.float64),
        host=np.array([device.host_bandwidth or 0.0 for device in devices], dtype=np.float64),
        parameters=_prefix([layer.parameter_bytes for layer in profile.layers]),
        tied=np.array([group + [-1] * (width - len(group)) for group in tied], dtype=np.int64).reshape(-1, width),
        working=factors.weights + factors.gradients,
        state=factors.optimizer,
        scale=byte_scale(job, profile),
        factor=1 + margin,
        activations=_prefix([layer.activation_bytes for layer in profile.layers]),
        carried=np.array([0.0] + [layer.carried_bytes for layer in profile.layers]),
        momentary=np.array([layer.transient_bytes for layer in profile.layers], dtype=np.float64),
        peak=_peaks(profile),
        workspace=_workspaces(profile),
        reads=reads,
        entering=entering,
        recompute=np.array(actions.recompute),
        shard=np.array(actions.shard),
        offload=np.array(actions.offload),
    )


def for_family(costs: Costs, samples: int, last: int) -> Costs:
    """The same figures for microbatches of so many samples."""
    return costs._replace(samples=samples, last=last)


def _prefix(values: Sequence[float]) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.array(values, dtype=np.float64))))


def _rows(job: Job, profile: Profile, devices: Sequence[Device], most_samples: int) -> tuple[Floats, Floats, Ints]:
    """Prefix sums of seconds by class and samples, and the barriers of what has no time."""
    size, precision = len(profile.layers), resolved_precision(job, profile)
    same = _alike(profile.layers)
    seconds = np.zeros((2, len(devices), most_samples + 1, size + 1))
    barrier = np.zeros((len(devices), size + 1), dtype=np.int64)
    for c, device in enumerate(devices):
        for index in range(size):
            if same[index] < index:
                seconds[:, c, :, index + 1] = seconds[:, c, :, same[index] + 1]
                missing = barrier[c, same[index] + 1] == same[index] + 1
            else:
                found = [layer_seconds(profile, index, device, u, precision) for u in range(1, most_samples + 1)]
                missing = None in found
                seconds[0, c, 1:, index + 1] = [0.0 if f is None else f.forward for f in found]
                seconds[1, c, 1:, index + 1] = [0.0 if f is None else f.backward for f in found]
            barrier[c, index + 1] = index + 1 if missing else barrier[c, index]
    seconds = np.cumsum(seconds, axis=3)
    return np.ascontiguousarray(seconds[0]), np.ascontiguousarray(seconds[1]), barrier


def _alike(layers: Sequence[Layer]) -> list[int]:
    """For each layer the first one that takes the same time, itself if there is none near."""
    unlike: list[tuple[Layer, int]] = []
    first = []
    for index, layer in enumerate(layers):
        bare = replace(layer, name="", inputs=(), update={})
        match = next((place for other, place in reversed(unlike[-ALIKE:]) if other == bare), index)
        if match == index:
            unlike.append((bare, index))
        first.append(match)
    return first


def _peaks(profile: Profile) -> Floats:
    """[first, end] of :class:`~ignite_scheduler.cost.memory.Activations`' ``peak``."""
    momentary = np.array([layer.transient_bytes for layer in profile.layers])
    if not momentary.any():
        return np.zeros((1, 1))
    size = len(profile.layers)
    until = _prefix([layer.activation_bytes for layer in profile.layers])
    carried = np.array([0.0] + [layer.carried_bytes for layer in profile.layers])
    peak = np.zeros((size + 1, size + 1))
    for i in range(size):
        highest = np.maximum.accumulate(until[i + 1 :] - until[i] + momentary[i:])
        peak[i, i + 1 :] = np.maximum(0.0, highest - (until[i + 1 :] - until[i] + carried[i + 1 :]))
    return peak


def _workspaces(profile: Profile) -> Floats:
    loads = np.array([layer.workspace_bytes for layer in profile.layers])
    if not loads.any():
        return np.zeros((1, 1))
    size = len(profile.layers)
    most = np.zeros((size + 1, size + 1))
    for i in range(size):
        most[i, i + 1 :] = np.maximum.accumulate(loads[i:])
    return most


def _entering(profile: Profile, *, wanted: bool) -> tuple[Floats, Floats]:
    """Bytes that each layer, and each run of layers, reads from layers outside it; every tensor once."""
    size = len(profile.layers)
    readers: dict[int, dict[int, float]] = {}
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    reads = np.zeros(size)
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source == MODEL_INPUT:
                continue
            producer = position[edge.source]
            num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
            found = readers.setdefault(producer, {})
            found[index] = max(found.get(index, 0.0), num_bytes)
    if not wanted:
        return reads, np.zeros((1, 1))
    entering = np.zeros((size + 1, size + 1))
    for producer, found in sorted(readers.items()):
        for reader, num_bytes in found.items():
            reads[reader] += num_bytes
        by_layer = np.zeros(size)
        by_layer[list(found)] = list(found.values())
        for first in range(producer + 1, max(found) + 1):
            entering[first, first + 1 :] += np.maximum.accumulate(by_layer[first:])
    return reads, entering


class Groups(NamedTuple):
    """Groups of devices that a stage may be put on.

    Parameters
    ----------
    members
        [group, replica]: class of each replica, in the order in which samples are dealt; −1 behind the last.
    size
        [group]: number of replicas.
    base
        [group, replica]: shares of a full microbatch where memory does not matter.
    ring_per_byte, ring_latency
        [group]: seconds a byte over its slowest link, and its largest latency.
    order
        [group, layer]: layers by forward seconds for each byte that recomputing them saves, cheapest first.
    """

    members: Ints
    size: Ints
    base: Ints
    ring_per_byte: Floats
    ring_latency: Floats
    order: Ints


def ring_figures(latency: Any, per_byte: Any, members: Sequence[int]) -> tuple[float, float]:
    """Seconds a byte over the slowest link between any two of the members, and the largest latency.

    ``latency`` and ``per_byte`` [class, class]; two members of one class are linked as [class, class] says.
    """
    pairs = [(a, b) for p, a in enumerate(members) for q, b in enumerate(members) if p != q]
    return (
        max((float(per_byte[a, b]) for a, b in pairs), default=0.0),
        max((float(latency[a, b]) for a, b in pairs), default=0.0),
    )


def class_order(devices: Sequence[Device], costs: Costs) -> list[int]:
    """Classes in the order in which a group's replicas stand: by node, then speed, then id."""
    return sorted(range(len(devices)), key=lambda c: (devices[c].node, float(costs.whole[c, 1]), devices[c].id))


def layer_order(costs: Costs, members: Ints, shares: Ints) -> Ints:
    """Layers by forward seconds on the slowest replica for each byte that recomputing them saves, cheapest first."""
    saved = np.diff(costs.activations) - costs.reads
    rows = [np.diff(costs.forward[c, s]) for c, s in zip(members, shares, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(saved > 0, np.max(rows, axis=0) / saved, np.inf)
    return np.argsort(ratio, kind="stable")
