"""Iterations of GPT models under tensor, data and pipeline parallelism: vTrain's points, from shapes alone.

A point is a shape, a batch and three degrees; nothing was profiled. A layer's two passes take the longer of the host's
launches and the GPU's work (matrix products at one rate, other operations at one bandwidth, and a fixed part for
kernels too small to fill the GPU), and then the all-reduces of tensor parallelism. The head is a product with the
vocabulary at a rate of its own: 50,257 ÷ t columns fit the matrix units badly. Pipelines are 1F1B, and go through
:func:`ignite_scheduler.pipeline.timeline`, with a ring all-reduce of 16-bit gradients and the update at the end.

The constants of the machine are fitted on points with one stage, whose step is a plain sum. No point with a pipeline
is ever fitted.

References
----------
J. Bang et al., "vTrain: a simulation framework for evaluating cost-effective and compute-optimal large language model
training", MICRO 2024. D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", SC 2021 (FLOPs and parameters). V. Korthikanti et al., "Reducing activation recomputation in large
transformer models", MLSys 2023 (activation bytes).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from ignite_scheduler.cost import ring_seconds
from ignite_scheduler.errors import InputError
from published.pipeline import step_seconds

VOCABULARY = 50257  # GPT-2's, what vTrain's configurations say
ELEMENT = 2.0  # bytes of a 16-bit number


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A model, a batch and how it is spread; ``seconds`` an iteration. Fields may be arrays of many points."""

    gpus: Any
    batch: Any
    micro: Any
    hidden: Any
    heads: Any
    layers: Any
    sequence: Any
    tensor: Any
    data: Any
    pipeline: Any
    seconds: Any

    @property
    def num_microbatches(self) -> Any:
        """Microbatches of each pipeline."""
        return self.batch // (self.micro * self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is not in the points: GPUs in a node, bytes of a GPU, bytes/s of all the node's network together.

    Defaults are those of vTrain's own configuration: eight A100-80GB, 800 Gbit/s a node.
    """

    gpus: int = 8
    memory: float = 80e9
    bandwidth: float = 100e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Constants of one kind of GPU. Seconds, FLOP/s, bytes/s; the defaults are guesses from which a fit starts.

    ``rate`` of products in a layer, ``head_rate`` in the head, ``elementwise`` for the activation bytes of
    Korthikanti et al. (each is moved several times, so that it is below the memory's bandwidth), ``fixed`` and
    ``launch`` for both passes of a layer, ``head`` for both of the head, ``collective`` and ``latency`` of all-reduces
    in a tensor-parallel group, ``gradients`` of those between replicas, ``update`` for a parameter, ``step`` once.
    """

    rate: float = 200e12
    head_rate: float = 100e12
    elementwise: float = 300e9
    fixed: float = 1e-3
    launch: float = 3e-3
    head: float = 1e-3
    collective: float = 150e9
    latency: float = 20e-6
    gradients: float = 250e9
    update: float = 20e-12
    step: float = 1e-3


_COLUMNS = {
    "gpus": "gpus",
    "batch": "global batch",
    "micro": "micro",
    "hidden": "hidden",
    "heads": "heads",
    "layers": "layers",
    "sequence": "sequence",
    "tensor": "tensor",
    "data": "data par",
    "pipeline": "pipeline",
    "seconds": "iteration time",
}


LARGEST = 1e9  # neither a count nor a step's seconds are larger


def read_points(path: Path) -> list[Point]:
    """The points of a table whose head names its columns; columns that we do not know are left alone.

    Raises
    ------
    InputError
        A column is missing, or a line is malformed; says which.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head, *lines = list(csv.reader(file)) or [[]]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: expected a table of text ({error})") from None
    names = [name.strip().lower() for name in head]
    where = {}
    for field, name in _COLUMNS.items():
        found = [index for index, column in enumerate(names) if name in column]
        if len(found) != 1:
            raise InputError(f"{path}: expected one column for {name!r}, found the columns {', '.join(head)}")
        where[field] = found[0]
    unit = 1e-3 if "(ms)" in names[where["seconds"]] else 1.0
    return [_point(path, number, line, where, unit) for number, line in enumerate(lines, 2) if line]


def _point(path: Path, number: int, line: Sequence[str], where: dict[str, int], unit: float) -> Point:
    try:
        values = {field: float(line[index]) for field, index in where.items()}
        seconds = values.pop("seconds") * unit
        counts = {field: int(value) for field, value in values.items()}
    except (ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path}:{number}: expected numbers ({error})") from None
    if any(value != counts[field] for field, value in values.items()) or not 1 / LARGEST < seconds < LARGEST > max(
        values.values()
    ):
        raise InputError(f"{path}:{number}: expected whole numbers and a finite positive time, found {line}")
    point = Point(**counts, seconds=seconds)
    degrees = point.tensor * point.data * point.pipeline
    if min(counts.values()) < 1:
        raise InputError(f"{path}:{number}: expected counts of 1 or more, found {line}")
    if point.gpus != degrees or point.num_microbatches < 1 or point.layers < point.pipeline:
        raise InputError(
            f"{path}:{number}: {point.gpus} GPUs, {point.batch} samples and {point.layers} layers do not fit degrees "
            f"{point.tensor}·{point.data}·{point.pipeline} and microbatches of {point.micro}"
        )
    return point


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What an iteration is made of. Seconds; of both passes where nothing else is said; arrays where the point is."""

    layer: Any
    collectives: Any  # in both passes of a layer, half in each
    head: Any
    layer_parameters: Any  # on one GPU
    edge_parameters: Any  # of the embedding, and again of the head, on one GPU
    message: Any  # bytes of a boundary tensor on one GPU
    kept: Any  # bytes of activations that a layer keeps of a microbatch, on one GPU


def pieces(point: Point, machine: Machine) -> Pieces:
    """Durations and sizes of a point's layers on one GPU of a tensor-parallel group."""
    u, s, h, t = point.micro, point.sequence, point.hidden, point.tensor
    products = 3 * (24 * u * s * h**2 + 4 * u * s**2 * h) / t
    kept = s * u * h * (10 + 24 / t + 5 * point.heads * s / (h * t))
    work = machine.fixed + products / machine.rate + kept / machine.elementwise
    message = ELEMENT * u * s * h
    reduced = 4 * ((t > 1) * machine.latency + 2 * (t - 1) / t * message / machine.collective)
    head = machine.head + 3 * 2 * u * s * h * (VOCABULARY / t) / machine.head_rate
    return Pieces(
        layer=np.maximum(machine.launch, work),
        collectives=reduced,
        head=head,
        layer_parameters=(12 * h**2 + 13 * h) / t,
        edge_parameters=h * VOCABULARY / t,
        message=message,
        kept=kept,
    )


def one_stage_seconds(point: Point, machine: Machine) -> Any:
    """An iteration without a pipeline: a sum."""
    own = pieces(point, machine)
    passes = point.num_microbatches * (point.layers * (own.layer + own.collectives) + own.head)
    parameters = point.layers * own.layer_parameters + own.edge_parameters
    reduction = ring_seconds(ELEMENT * parameters, machine.gradients, 0.0, point.data)
    return passes + reduction + parameters * machine.update + machine.step


def fit(points: Sequence[Point]) -> Machine:
    """The machine's constants, from those of the points that have one stage and one node's links.

    Errors are relative, weighted against 5 %, and robust (soft L1: noise of launches is one-sided and large). Each
    constant is also held to its starting guess, with a factor of two as one standard deviation, so that one that the
    points do not show stays physical.

    Raises
    ------
    InputError
        None of the points has one stage.
    """
    single = [point for point in points if point.pipeline == 1]
    if not single:
        raise InputError("expected points with one pipeline stage to fit the machine on, found none")
    stacked = Point(
        **{field.name: np.array([getattr(p, field.name) for p in single], float) for field in fields(Point)}
    )
    start = np.array(astuple(Machine()))
    names = [field.name for field in fields(Machine)]

    def machine(logs: Any) -> Machine:
        return Machine(**dict(zip(names, start * np.exp(logs), strict=True)))

    def residuals(logs: Any) -> Any:
        errors = np.log(one_stage_seconds(stacked, machine(logs)) / stacked.seconds)
        return np.concatenate([errors / 0.05, logs / np.log(2.0)])

    found = least_squares(residuals, np.zeros(len(start)), loss="soft_l1")
    fitted = astuple(machine(found.x))
    return Machine(**{name: float(value) for name, value in zip(names, fitted, strict=True)})


def predict(point: Point, machine: Machine, node: Node) -> float:
    """Seconds of an iteration, by the timeline of one pipeline with its all-reduce and update."""
    own = pieces(point, machine)
    stages = point.pipeline
    each, rest = divmod(point.layers, stages)
    layers = [each + (s < rest) for s in range(stages)]
    again = needs_recompute(point, own, node)
    forward = [n * (own.layer / 3 + own.collectives / 2) for n in layers]
    backward = [n * (own.layer * 2 / 3 + own.collectives / 2) + again * f for n, f in zip(layers, forward, strict=True)]
    forward[-1] += own.head / 3
    backward[-1] += own.head * 2 / 3
    messages = [own.message / stage_bandwidth(point, cut, machine, node) for cut in range(stages - 1)]
    held = [n * own.layer_parameters + (s in (0, stages - 1)) * own.edge_parameters for s, n in enumerate(layers)]
    bandwidth = replica_bandwidth(point, machine, node)
    finish = [ring_seconds(ELEMENT * n, bandwidth, 0.0, point.data) + n * machine.update + machine.step for n in held]
    return step_seconds(forward, backward, messages, finish, point.num_microbatches, receive_first=False)


def needs_recompute(point: Point, own: Pieces, node: Node) -> bool:
    """Whether the first stage does not fit unless activations are computed again.

    18 bytes a parameter (weights in 16 bits; gradients, master copy and Adam's two states in 32 bits), and the
    activations of each layer and microbatch in flight.
    """
    layers = -(-point.layers // point.pipeline)
    state = 18.0 * (layers * own.layer_parameters + own.edge_parameters)
    return bool(state + layers * own.kept * min(point.pipeline, point.num_microbatches) > node.memory)


def replica_bandwidth(point: Point, machine: Machine, node: Node) -> float:
    """Bytes/s of each ring over replicas. Ranks: tensor inside data inside pipeline, as in Megatron-LM."""
    if point.tensor * point.data <= node.gpus:
        return machine.gradients
    rings = min(point.tensor, node.gpus)  # rings that leave a node side by side
    return min(machine.gradients, node.bandwidth / rings)


def stage_bandwidth(point: Point, cut: int, machine: Machine, node: Node) -> float:
    """Bytes/s from one GPU of a stage to its counterpart in the next."""
    width = point.tensor * point.data
    if (cut * width) // node.gpus == ((cut + 2) * width - 1) // node.gpus:
        return machine.collective
    return min(machine.collective, node.bandwidth / min(width, node.gpus))
