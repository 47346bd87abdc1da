"""Everything that the compiled search over stage graphs needs of one family, in one record."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.cost import byte_scale, memory_factors
from ignite_scheduler.planner.graphs.atoms import Atoms
from ignite_scheduler.planner.graphs.dag import Tensor, reach_of
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup


class Field(NamedTuple):
    """Atoms, devices and one family.

    Parameters
    ----------
    forward, backward
        [device, full or last, atom]: seconds; infinite where the profile has no time.
    overhead, closing, update
        [device] seconds on top of every action and at the end of the step; [device, atom] seconds of the update.
    latency, per_byte
        [device, device]: of the link from the first to the second; infinite latency where there is none.
    memory, fixed, kept, peak, workspace
        [device] limit; [atom] bytes that are there once, that each microbatch in flight keeps, and that are there for a
        moment: at most, so that what fits here fits.
    tensor_atom, tensor_start, reader_atom, reader_bytes
        Tensors by the atom that makes them, and who reads how many bytes a sample: readers of tensor t are
        ``tensor_start[t]`` … ``tensor_start[t + 1]`` − 1.
    reach
        [atom, atom]: whether a path leads from the first to the second.
    parts
        [part, atom]: branches, sets of atoms that may well stand beside others.
    kind, wanted
        [device] number of its kind; [request, kind] counts of which one row must be met; no row: any devices.
    base_rate, rate, extra, price
        Objective ``(base_rate + Σ rate[device]) · step + Σ extra[device] · busy``; price for ties.
    """

    num_microbatches: int
    gpipe: bool
    max_stages: int
    min_devices: int
    forward: Floats
    backward: Floats
    overhead: Floats
    closing: Floats
    update: Floats
    latency: Floats
    per_byte: Floats
    memory: Floats
    fixed: Floats
    kept: Floats
    peak: Floats
    workspace: Floats
    sizes: Floats
    tensor_atom: Ints
    tensor_start: Ints
    reader_atom: Ints
    reader_bytes: Floats
    reach: npt.NDArray[np.bool_]
    parts: npt.NDArray[np.bool_]
    kind: Ints
    wanted: Ints
    base_rate: float
    rate: Floats
    extra: Floats


def field_of(
    setup: Setup, family: Family, arrays: Arrays, atoms: Atoms, tensors: tuple[Tensor, ...], parts: Any, max_stages: int
) -> Field:
    """The family over ``atoms`` of the setup's profile; devices in order of their classes' members."""
    classes, request = setup.classes, setup.request
    class_of = np.repeat(np.arange(len(classes.counts)), classes.counts)
    tensor_atom, tensor_start, reader_atom, reader_bytes = read_by_atoms(
        atoms, tensors, byte_scale(setup.problem.job, setup.problem.profile)
    )
    edges = [
        (int(tensor_atom[t]), int(reader_atom[r]))
        for t in range(len(tensor_atom))
        for r in range(tensor_start[t], tensor_start[t + 1])
    ]
    kinds = sorted({device.kind for device in classes.devices} | {kind for wish in request.any_of for kind in wish})
    found = Field(
        num_microbatches=family.num_microbatches,
        gpipe=family.schedule == "gpipe",
        max_stages=min(max_stages, len(atoms), request.max_devices),
        min_devices=request.min_devices,
        forward=_by_atom(arrays.forward, arrays.timeless, atoms)[class_of],
        backward=_by_atom(arrays.backward, arrays.timeless, atoms)[class_of],
        overhead=arrays.overhead[class_of],
        closing=arrays.closing[class_of],
        update=_by_atom(arrays.update[:, None], arrays.timeless & False, atoms)[class_of][:, 0],
        latency=classes.latency[class_of][:, class_of],
        per_byte=classes.per_byte[class_of][:, class_of],
        memory=np.array([device.memory for device in classes.devices])[class_of],
        **_bytes(setup, atoms),
        sizes=arrays.sizes,
        tensor_atom=tensor_atom,
        tensor_start=tensor_start,
        reader_atom=reader_atom,
        reader_bytes=reader_bytes,
        reach=reach_of(len(atoms), edges),
        parts=np.asarray(parts, dtype=bool).reshape(-1, len(atoms)),
        kind=np.array([kinds.index(device.kind) for device in classes.devices], dtype=np.int64)[class_of],
        wanted=np.array([[wish.get(kind, 0) for kind in kinds] for wish in request.any_of], dtype=np.int64).reshape(
            -1, len(kinds)
        ),
        base_rate=setup.goal.base_rate,
        rate=setup.goal.rate[class_of],
        extra=setup.goal.extra[class_of],
    )
    # one memory layout for all: another would be compiled anew
    return Field._make(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in found)


def _by_atom(sums: Floats, timeless: Any, atoms: Atoms) -> Floats:
    """[class, …, atom] from prefix sums over layers; infinite where a layer has no time."""
    layers = np.diff(sums, axis=2) + np.where(timeless, np.inf, 0.0)[:, None, :]
    return np.stack([layers[:, :, list(atom)].sum(axis=2) for atom in atoms], axis=2)


def _bytes(setup: Setup, atoms: Atoms) -> dict[str, Floats]:
    """Bytes of each atom with the margin, none of them less than what the stage that holds it needs for it."""
    job, profile = setup.problem.job, setup.problem.profile
    scale, margin = byte_scale(job, profile), 1 + setup.problem.memory_margin
    factors = memory_factors(job, profile)
    factor = factors.weights + factors.gradients + factors.optimizer
    layers = [[profile.layers[index] for index in atom] for atom in atoms]
    return {
        "fixed": margin * factor * np.array([sum(layer.parameter_bytes for layer in atom) for atom in layers]),
        "kept": margin
        * scale
        * np.array([sum(layer.activation_bytes + layer.carried_bytes for layer in atom) for atom in layers]),
        "peak": margin * scale * np.array([max(layer.transient_bytes for layer in atom) for atom in layers]),
        "workspace": margin * scale * np.array([max(layer.workspace_bytes for layer in atom) for atom in layers]),
    }


def read_by_atoms(atoms: Atoms, tensors: tuple[Tensor, ...], scale: float) -> tuple[Ints, Ints, Ints, Floats]:
    """Tensors that leave their atom: maker, first reader of each, readers, and the largest part that each reads."""
    atom_of = {layer: index for index, atom in enumerate(atoms) for layer in atom}
    makers, starts, readers, sizes = [], [0], [], []
    for tensor in tensors:
        own = atom_of[tensor.producer]
        found: dict[int, float] = {}
        for reader, num_bytes in tensor.readers:
            atom = atom_of[reader]
            if atom != own:
                found[atom] = max(found.get(atom, 0.0), num_bytes * scale)
        if found:
            makers.append(own)
            readers += sorted(found)
            sizes += [found[atom] for atom in sorted(found)]
            starts.append(len(readers))
    return (
        np.array(makers, dtype=np.int64),
        np.array(starts, dtype=np.int64),
        np.array(readers, dtype=np.int64),
        np.array(sizes, dtype=np.float64),
    )
