"""Bytes that a stage needs on its device: a hard cap, never a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ignite_scheduler.model import Job, MemoryFactors, Profile

_ELEMENT_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
)

_STATE_ELEMENTS: Final[Mapping[str, int]] = MappingProxyType({"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2})
"""Numbers that an optimizer keeps for each parameter."""


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
    total = sum(layer.parameter_bytes for layer in profile.layers[first:last])
    names = {layer.name: layer.parameter_bytes for layer in profile.layers[first:last]}
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
    kept = highest = 0.0
    for layer in profile.layers[first:last]:
        kept += layer.activation_bytes
        highest = max(highest, kept + layer.transient_bytes)
    kept += profile.layers[last - 1].carried_bytes
    return Activations(kept=kept, peak=max(0.0, highest - kept))


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
    """Bytes of layers ``first`` … ``last`` − 1: P·(weights + gradients + optimizer) + K·A(u) + W.

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
    layers = profile.layers[first:last]
    activations = stage_activations(profile, first, last)
    workspace = max((layer.workspace_bytes for layer in layers), default=0.0)
    factor = factors.weights + factors.gradients + factors.optimizer
    grown = samples * (in_flight * activations.kept + activations.peak)
    return stage_parameters(profile, first, last) * factor + scale * (grown + workspace)
