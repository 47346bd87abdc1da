"""The problem as arrays: classes of interchangeable devices, prefix sums of times, links, memory limits.

Two devices are interchangeable if exchanging them changes no figure: equal kind, speed, memory, dtypes, price and
powers, and the same links to everybody else, and to each other both ways. A plan then only depends on the class of
each stage, and the search runs over sequences of classes instead of sequences of devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

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
from ignite_scheduler.model import MODEL_INPUT, Cluster, Device, Job, Profile
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.problem import Family

MAX_SETS: Final = 10_000
"""Multisets of devices that tables are made over at most: 13 distinct devices, or 64 of three kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Devices grouped by what makes them interchangeable.

    ``members[c]`` are ids in order; ``member_rank[c, m]`` is the place of a member among all ids. ``latency`` and
    ``per_byte`` [class, class] are of the link from the first to the second; infinite latency = no link. ``wires``
    are -1, or the number of the wire that several pairs share. ``unlimited`` leaves memory limits out.
    """

    devices: tuple[Device, ...]
    members: tuple[tuple[str, ...], ...]
    counts: Ints
    strides: Ints
    member_rank: Ints
    latency: Floats
    per_byte: Floats
    wires: Ints
    unlimited: bool = False

    @property
    def num_sets(self) -> int:
        """Number of multisets of devices, the empty one included."""
        return math.prod(int(count) + 1 for count in self.counts)

    @property
    def wide(self) -> bool:
        """Whether there are too many multisets to list: then a multiset's number is its number of devices."""
        return self.num_sets > MAX_SETS

    @property
    def contended(self) -> bool:
        """Whether links share a wire, so that transfers of different stages wait for each other."""
        return bool((self.wires >= 0).any())

    def counts_of(self) -> Ints:
        """[multiset, class]: how many devices of each class a multiset holds."""
        sets = np.arange(self.num_sets)
        return (sets[:, None] // self.strides[None, :]) % (self.counts[None, :] + 1)

    def representatives(self, sequence: tuple[int, ...]) -> tuple[str, ...]:
        """Device ids for the classes of the stages, first stage first: members in order."""
        used = [0] * len(self.members)
        ids = []
        for c in sequence:
            ids.append(self.members[c][used[c]])
            used[c] += 1
        return tuple(ids)


def group(cluster: Cluster, devices: tuple[Device, ...]) -> Classes:
    """The classes of ``devices``; the order of the listing does not matter."""
    devices = tuple(sorted(devices, key=lambda device: device.id))
    latency, per_byte, wires = _link_arrays(cluster, devices)
    firsts: list[int] = []
    members: list[list[int]] = []
    alike: dict[Device, list[int]] = {}  # figures → classes that have them
    for i, device in enumerate(devices):
        classes = alike.setdefault(replace(device, id="", node=""), [])
        for c in classes:
            if _same_links((latency, per_byte, wires), i, firsts[c]):
                members[c].append(i)
                break
        else:
            classes.append(len(firsts))
            firsts.append(i)
            members.append([i])
    num_classes = len(firsts)
    counts = np.array([len(group) for group in members], dtype=np.int64)
    ranks = np.full((num_classes, max(counts, default=1)), -1, dtype=np.int64)
    for c, indices in enumerate(members):
        ranks[c, : len(indices)] = indices
    pick = np.array(firsts, dtype=np.int64)
    seconds = np.array([indices[1] if len(indices) > 1 else indices[0] for indices in members], dtype=np.int64)
    columns = np.repeat(pick[None, :], num_classes, axis=0)
    columns[np.arange(num_classes), np.arange(num_classes)] = seconds  # within a class: the link between two members
    rows = pick[:, None]
    return Classes(
        devices=tuple(devices[first] for first in firsts),
        members=tuple(tuple(devices[i].id for i in indices) for indices in members),
        counts=counts,
        strides=_strides(counts),
        member_rank=ranks,
        latency=latency[rows, columns],
        per_byte=per_byte[rows, columns],
        wires=wires[rows, columns],
    )


def _strides(counts: Ints) -> Ints:
    if math.prod(int(count) + 1 for count in counts) > MAX_SETS:
        return np.ones(len(counts), dtype=np.int64)
    return np.concatenate(([1], np.cumprod(counts[:-1] + 1))).astype(np.int64)


def _link_arrays(cluster: Cluster, devices: tuple[Device, ...]) -> tuple[Floats, Floats, Ints]:
    """[device, device] latency, seconds per byte and shared wire (−1: none); one look-up a pair of places."""
    places: dict[object, list[int]] = {}
    for i, device in enumerate(devices):
        places.setdefault(cluster.place(device), []).append(i)
    size = len(devices)
    latency, per_byte = np.zeros((size, size)), np.zeros((size, size))
    names = np.full((size, size), -1, dtype=np.int64)
    shared: dict[object, int] = {}
    for sources in places.values():
        for targets in places.values():
            source, target = sources[0], targets[-1]
            if source == target:
                continue
            link = cluster.link(devices[source], devices[target])
            block = np.ix_(sources, targets)
            latency[block] = np.inf if link is None else link.latency
            per_byte[block] = 0.0 if link is None else 1.0 / link.bandwidth
            if link is not None and link.wire != (devices[source].id, devices[target].id):
                names[block] = shared.setdefault(link.wire, len(shared))
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(per_byte, 0.0)
    np.fill_diagonal(names, -1)
    return latency, per_byte, names


def _same_links(matrices: tuple[Any, ...], i: int, j: int) -> bool:
    for matrix in matrices:
        others = np.ones(len(matrix), dtype=bool)
        others[[i, j]] = False
        if matrix[i, j] != matrix[j, i]:
            return False
        if not np.array_equal(matrix[i, others], matrix[j, others]):
            return False
        if not np.array_equal(matrix[others, i], matrix[others, j]):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What does not depend on the microbatch: bytes by layer and cut, tied weights, updates.

    ``single_bytes[j]`` are bytes a sample over the cut in front of layer j of tensors that one layer reads;
    ``once_bytes[j]`` counts every tensor once, which no split can go below. ``tensors`` are those with several
    readers: (producer, first, last) index into ``readers`` and ``reader_bytes``. ``need_fixed[i, j]`` is P·factor + W
    of the layers i…j−1, ``need_sample[i, j]`` the bytes of activations a sample and ``need_peak[i, j]`` what one
    microbatch fills above them for a moment, by sample, all with the margin.
    """

    num_layers: int
    single_bytes: Floats
    once_bytes: Floats
    tensors: Ints
    readers: Ints
    reader_bytes: Floats
    tied: Ints
    tied_bytes: Floats
    need_fixed: Floats
    need_sample: Floats
    need_peak: Floats

    def need(self, in_flight: int, samples: int) -> Floats:
        """Bytes [i, j] of the layers i…j−1 as a stage with so many microbatches of so many samples in flight."""
        return self.need_fixed + samples * (in_flight * self.need_sample + self.need_peak)


def model_arrays(job: Job, profile: Profile, margin: float) -> Model:
    """The byte figures of ``profile`` for ``job``."""
    scale = byte_scale(job, profile)
    num_layers = len(profile.layers)
    singles, tensors, readers, reader_bytes = _reading(profile)
    single = np.zeros(num_layers + 1)
    for producer, reader, num_bytes in singles:
        single[producer + 1 : reader + 1] += num_bytes * scale
    once = single.copy()
    for producer, first, last in tensors:
        for j in range(producer + 1, num_layers):
            later = [b for r, b in zip(readers[first:last], reader_bytes[first:last], strict=True) if r >= j]
            once[j] += max(later, default=0.0) * scale
    fixed, sample, peak = _needs(job, profile, scale)
    tied = [[profile.index(name) for name in group] for group in profile.tied if len(group) > 1]
    width = max((len(group) for group in tied), default=1)
    return Model(
        num_layers=num_layers,
        single_bytes=single,
        once_bytes=once,
        tensors=np.array(tensors, dtype=np.int64).reshape(-1, 3),
        readers=np.array(readers, dtype=np.int64),
        reader_bytes=np.array(reader_bytes, dtype=np.float64) * scale,
        tied=np.array([group + [-1] * (width - len(group)) for group in tied], dtype=np.int64).reshape(-1, width),
        tied_bytes=np.array(
            [min(profile.layers[index].parameter_bytes for index in group) * scale for group in tied], dtype=np.float64
        ),
        need_fixed=fixed * (1 + margin),
        need_sample=sample * (1 + margin),
        need_peak=peak * (1 + margin),
    )


def _reading(
    profile: Profile,
) -> tuple[list[tuple[int, int, float]], list[tuple[int, int, int]], list[int], list[float]]:
    """Tensors with one reader as (producer, reader, bytes), and the others with their readers in order."""
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    by_producer: dict[int, dict[int, float]] = {}
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source != MODEL_INPUT:
                producer = position[edge.source]
                num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
                found = by_producer.setdefault(producer, {})
                found[index] = max(found.get(index, 0.0), num_bytes)
    singles: list[tuple[int, int, float]] = []
    tensors: list[tuple[int, int, int]] = []
    readers: list[int] = []
    reader_bytes: list[float] = []
    for producer, found in sorted(by_producer.items()):
        if len(found) == 1:
            singles += [(producer, reader, num_bytes) for reader, num_bytes in found.items()]
        else:
            tensors.append((producer, len(readers), len(readers) + len(found)))
            readers += sorted(found)
            reader_bytes += [found[reader] for reader in sorted(found)]
    return singles, tensors, readers, reader_bytes


def _needs(job: Job, profile: Profile, scale: float) -> tuple[Floats, Floats, Floats]:
    """Bytes of every run of layers, as :func:`ignite_scheduler.cost.stage_memory` counts them."""
    factors = memory_factors(job, profile)
    factor = factors.weights + factors.gradients + factors.optimizer
    size = len(profile.layers)
    parameters = np.concatenate(([0.0], np.cumsum([layer.parameter_bytes for layer in profile.layers])))
    held = parameters[None, :] - parameters[:, None]
    for group in profile.tied:
        indices = sorted(profile.index(name) for name in group)
        for second in range(1, len(indices)):  # a run that holds k of the group counts it once
            for first_layer in range(indices[second - 1] + 1):
                inside = [profile.layers[m].parameter_bytes for m in indices[: second + 1] if m >= first_layer]
                end = indices[second + 1] if second + 1 < len(indices) else size
                held[first_layer, indices[second] + 1 : end + 1] -= (len(inside) - 1) * min(inside)
    workspace = np.zeros((size + 1, size + 1))
    loads = np.array([layer.workspace_bytes for layer in profile.layers])
    if loads.any():
        for i in range(size):
            workspace[i, i + 1 :] = np.maximum.accumulate(loads[i:])
    kept, peak = _activations(profile)
    return held * factor + scale * workspace, scale * kept, scale * peak


def _activations(profile: Profile) -> tuple[Floats, Floats]:
    """Kept and momentary bytes a sample of every run of layers, as :func:`~ignite_scheduler.cost.stage_activations`."""
    size = len(profile.layers)
    until = np.concatenate(([0.0], np.cumsum([layer.activation_bytes for layer in profile.layers])))
    carried = np.array([0.0] + [layer.carried_bytes for layer in profile.layers])
    momentary = np.array([layer.transient_bytes for layer in profile.layers])
    kept = until[None, :] - until[:, None] + carried[None, :]
    peak = np.zeros((size + 1, size + 1))
    if momentary.any():
        for i in range(size):
            highest = np.maximum.accumulate(until[i + 1 :] - until[i] + momentary[i:])
            peak[i, i + 1 :] = np.maximum(0.0, highest - kept[i, i + 1 :])
    return kept, peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """One family in numbers.

    ``forward`` and ``backward`` [class, full or last, layer] are prefix sums of seconds; ``overhead[class]`` comes
    on top of every action; ``update[class, layer]`` are prefix sums of the optimizer's seconds, ``closing[class]``
    comes on top at the end of every step. ``sizes`` are the samples of a full and of the last microbatch.
    ``first_fit[class, n, j]`` is the first layer with which a stage that ends before layer j and is the n-th from
    the end fits the memory. ``timeless[class, layer]``: the profile has no time for that pair.
    """

    forward: Floats
    backward: Floats
    overhead: Floats
    update: Floats
    closing: Floats
    sizes: Floats
    first_fit: Ints
    timeless: npt.NDArray[np.bool_]


def family_arrays(
    job: Job, profile: Profile, classes: Classes, model: Model, family: Family, max_stages: int
) -> Arrays:
    """Times and memory limits of one family."""
    num_classes, size = len(classes.devices), model.num_layers
    forward = np.zeros((num_classes, 2, size + 1))
    backward = np.zeros((num_classes, 2, size + 1))
    update = np.zeros((num_classes, size + 1))
    timeless = np.zeros((num_classes, size), dtype=bool)
    precision = resolved_precision(job, profile)
    for c, device in enumerate(classes.devices):
        for e, samples in enumerate((family.samples, family.last_samples)):
            if e == 1 and family.last_samples == family.samples:
                forward[c, 1], backward[c, 1] = forward[c, 0], backward[c, 0]
                continue
            seconds = [layer_seconds(profile, index, device, samples, precision) for index in range(size)]
            timeless[c] |= [found is None for found in seconds]
            forward[c, e, 1:] = np.cumsum([0.0 if found is None else found.forward for found in seconds])
            backward[c, e, 1:] = np.cumsum([0.0 if found is None else found.backward for found in seconds])
        updates = [layer.update.get(job.optimizer.name, 0.0) / (device.speed or 1.0) for layer in profile.layers]
        update[c, 1:] = np.cumsum(updates)
    return Arrays(
        forward=forward,
        backward=backward,
        overhead=np.array([action_overhead(profile, device) for device in classes.devices]),
        update=update,
        closing=np.array([update_seconds(profile, 0, 0, device, job.optimizer.name) for device in classes.devices]),
        sizes=np.array([family.samples, family.last_samples], dtype=np.float64),
        first_fit=_first_fit(classes, model, family, max_stages, timeless),
        timeless=timeless,
    )


def _first_fit(classes: Classes, model: Model, family: Family, max_stages: int, timeless: Any) -> Ints:
    size = model.num_layers
    fit = np.zeros((len(classes.devices), max_stages + 1, size + 1), dtype=np.int64)
    upper = np.triu(np.ones((size + 1, size + 1), dtype=bool), k=1)
    for n in range(1, max_stages + 1):
        held = family.num_microbatches if family.schedule == "gpipe" else min(family.num_microbatches, n)
        if n > 1 and held == (
            family.num_microbatches if family.schedule == "gpipe" else min(family.num_microbatches, n - 1)
        ):
            fit[:, n] = fit[:, n - 1]
            continue
        need = model.need(held, family.samples)
        for c, device in enumerate(classes.devices):
            fit[c, n] = 0 if classes.unlimited else ((need > device.memory) & upper).sum(axis=0)
    for c in range(len(classes.devices)):
        barrier = 0
        for j in range(1, size + 1):
            if timeless[c, j - 1]:
                barrier = j
            fit[c, :, j] = np.maximum(fit[c, :, j], barrier)
    return fit
