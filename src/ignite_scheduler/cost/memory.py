"""Bytes that a stage needs on its device: a hard cap, never a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ignite_scheduler.model import MODEL_INPUT, Job, MemoryFactors, Profile

_ELEMENT_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
)

_STATE_ELEMENTS: Final[Mapping[str, int]] = MappingProxyType({"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2})
"""Numbers that an optimizer keeps for each parameter."""


NOT_OFFLOADED: Final = 2
"""Microbatches whose activations stay on the device under offload: one at work, and one on its way over the link."""


def element_bytes(precision: str) -> float:
    """Bytes of one number in that precision."""
    return _ELEMENT_BYTES[precision]


def resolved_precision(job: Job, profile: Profile) -> str:
    """The job's precision; ``auto`` is the profile's own, so that measured times hold."""
    return profile.precision if job.precision == "auto" else job.precision


def byte_scale(job: Job, profile: Profile) -> float:
    """Factor from the profile's tensor bytes to the job's."""
    return element_bytes(resolved_precision(job, profile)) / element_bytes(profile.precision)


def memory_factors(job: Job, profile: Profile) -> MemoryFactors:
    """Bytes kept for each byte of the profile's parameters.

    fp32: weights 1, gradients 1, optimizer 0 (sgd), 1 (momentum) or 2 (adam, adamw). A 16-bit job keeps 16-bit
    weights and gradients, and in the optimizer's part an fp32 master copy and fp32 states. ``optimizer.memory`` in
    the job overrides all of this and multiplies the profile's bytes as written.
    """
    if job.optimizer.memory is not None:
        return job.optimizer.memory
    base = element_bytes(profile.precision)
    states = _STATE_ELEMENTS[job.optimizer.name]
    own = element_bytes(resolved_precision(job, profile))
    if own < 4.0:
        return MemoryFactors(weights=own / base, gradients=own / base, optimizer=(4.0 + 4.0 * states) / base)
    return MemoryFactors(weights=own / base, gradients=own / base, optimizer=states * own / base)


def stage_parameters(profile: Profile, first: int, last: int) -> float:
    """Parameter bytes of layers ``first`` … ``last`` − 1; weights tied within the range count once."""
    return held_parameters(profile, range(first, last))


def held_parameters(profile: Profile, layers: Sequence[int]) -> float:
    """Parameter bytes of these layers, by position; weights tied among them count once."""
    names = {profile.layers[index].name: profile.layers[index].parameter_bytes for index in layers}
    total = sum(names.values())
    for group in profile.tied:
        held = [names[name] for name in group if name in names]
        if len(held) > 1:
            total -= (len(held) - 1) * min(held)
    return total


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes for one sample that a stage keeps from a forward to its backward, and how far above that it rises.

    ``kept`` is A(1) of the formula below, once for each microbatch in flight. ``peak`` is above it: what the microbatch
    that is being computed on fills for a moment, at the layer where that is most beside what layers up to it keep.
    """

    kept: float
    peak: float


def stage_activations(profile: Profile, first: int, last: int) -> Activations:
    """Activations of layers ``first`` … ``last`` − 1. O(number of layers).

    Where a profile gives activations only, ``kept`` is their sum and ``peak`` is 0.
    """
    return held_activations(profile, range(first, last))


def held_activations(profile: Profile, layers: Sequence[int], recompute: Sequence[tuple[int, int]] = ()) -> Activations:
    """Activations of these layers, of which some segments are not kept but computed again before their backward.

    Parameters
    ----------
    layers
        Positions in the profile, rising, at least one.
    recompute
        Disjoint segments as (first, end) positions; of each, its layers are those among ``layers``.

    Returns
    -------
    Activations
        ``kept``: those of the layers outside segments, and the input of each segment. ``peak``: of the segment where
        that is most, what its layers would keep, and how far they rise above it; or that of the stage outside
        segments where it is more.

    Notes
    -----
    Where the stage does not go on with the layer behind, it holds what the layer carries over too, as part of the
    segment where the layer is in one.
    """
    segments = [tuple(index for index in layers if first <= index < end) for first, end in recompute]
    again = {index for segment in segments for index in segment}
    held = set(layers)
    outside = _activations(profile, [index for index in layers if index not in again], held)
    inputs = sum(segment_input_bytes(profile, segment) for segment in segments)
    full = [_activations(profile, segment, held) for segment in segments]
    most = max((segment.kept + segment.peak for segment in full), default=0.0)
    return Activations(kept=outside.kept + inputs, peak=max(outside.peak, most))


def _activations(profile: Profile, layers: Sequence[int], held: Set[int]) -> Activations:
    kept = highest = carried = 0.0
    for index in layers:
        layer = profile.layers[index]
        kept += layer.activation_bytes
        highest = max(highest, kept + layer.transient_bytes)
        if index + 1 not in held:
            carried += layer.carried_bytes
    kept += carried
    return Activations(kept=kept, peak=max(0.0, highest - kept))


def segment_input_bytes(profile: Profile, layers: Sequence[int]) -> float:
    """Bytes of one sample of the tensors that these layers read from others; the model's own input counts 0.

    A tensor that several of them read counts once, with the largest part that one of them reads.
    """
    output_bytes = {layer.name: layer.output_bytes for layer in profile.layers}
    inside = {profile.layers[index].name for index in layers}
    read: dict[str, float] = {}
    for index in layers:
        for edge in profile.layers[index].inputs:
            if edge.source != MODEL_INPUT and edge.source not in inside:
                num_bytes = output_bytes[edge.source] if edge.bytes is None else edge.bytes
                read[edge.source] = max(read.get(edge.source, 0.0), num_bytes)
    return sum(read.values())


def stage_memory(
    profile: Profile,
    first: int,
    last: int,
    factors: MemoryFactors,
    *,
    in_flight: int,
    samples: int,
    scale: float = 1.0,
) -> float:
    """Bytes of layers ``first`` … ``last`` − 1 without any action: P·(weights + gradients + optimizer) + K·A(u) + W.

    Parameters
    ----------
    in_flight
        K, the most microbatches whose activations are held at once.
    samples
        u, samples of a full microbatch.
    scale
        Factor on activation and workspace bytes for a precision other than the profile's (:func:`byte_scale`).

    Notes
    -----
    W is the largest ``workspace_bytes`` in the stage, and where the profile knows what grows with the samples and is
    there for a moment only, that too (:func:`stage_activations`).
    """
    layers = range(first, last)
    return replica_memory(
        profile, layers, factors, stage_activations(profile, first, last), held=in_flight, samples=samples, scale=scale
    )


def replica_memory(
    profile: Profile,
    layers: Sequence[int],
    factors: MemoryFactors,
    activations: Activations,
    *,
    held: int,
    samples: int,
    scale: float = 1.0,
    shards: int = 1,
) -> float:
    """Bytes of one replica of a stage: P·(weights + gradients + optimizer ÷ shards) + K·A(share) + peak + W.

    Parameters
    ----------
    activations
        Those of the layers, as :func:`held_activations` counts them with the stage's segments.
    held
        K: microbatches whose activations are on the device; with offload at most :data:`NOT_OFFLOADED`.
    samples
        The replica's share of a full microbatch.
    scale
        As in :func:`stage_memory`.
    shards
        Over how many replicas the optimizer's part is spread.
    """
    workspace = max((profile.layers[index].workspace_bytes for index in layers), default=0.0)
    factor = factors.weights + factors.gradients + factors.optimizer / shards
    grown = samples * (held * activations.kept + activations.peak)
    return held_parameters(profile, layers) * factor + scale * (grown + workspace)
