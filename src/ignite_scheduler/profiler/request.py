"""What is asked of the process that measures, and what it answers. Plain data: needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Reference


class OtherMeasurementError(InputError):
    """What an interrupted measurement has left is that of another model, version or machine."""


Pairs = tuple[tuple[float, float], ...]
"""(forward, backward) seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Passes of a measurement that is not done: what an interrupted one goes on from.

    ``layers`` maps size → pass → layer, ``begun`` and ``whole`` size → pass; ``own`` and ``wall`` are the seconds that
    they took by the measurement's clock and on the wall. ``structure`` is the fingerprint of the model.
    """

    structure: str
    layers: Mapping[int, tuple[Pairs, ...]]
    begun: Mapping[int, Pairs]
    whole: Mapping[int, Pairs]
    own: float
    wall: float

    @property
    def num_passes(self) -> int:
        """Passes that are done at every size."""
        return min(len(passes) for passes in self.layers.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one of several processes has measured, with what others did before it."""

    partial: Partial


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure.

    ``samples`` are the microbatch sizes, ``repeats`` the passes over the chain at each size, ``time_limit`` the
    seconds after which no further pass is begun once :data:`~ignite_scheduler.profiler.passes.LEAST_PASSES` are done,
    ``partial`` what an interrupted measurement of the same has left. ``passes_only``: another process will go on, so
    the answer is a :class:`Share`.
    """

    model: Reference
    data: Reference
    loss: str
    precision: str
    samples: tuple[int, ...]
    repeats: int
    time_limit: float
    device: str
    seed: int
    partial: Partial | None = None
    passes_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a measurement is: ``done`` of ``total`` units of work, and what is being measured now."""

    done: int
    total: int
    doing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes and FLOPs of one layer; for one sample, parameters and workspace apart.

    ``carried_bytes`` are kept for this layer's backward but count as a later layer's activations; ``transient_bytes``
    and ``workspace_bytes`` are filled for a moment while the layer is at work, for each sample and in any case.
    """

    parameter_bytes: float
    output_bytes: float
    activation_bytes: float
    forward_flops: float
    backward_flops: float
    carried_bytes: float = 0.0
    transient_bytes: float = 0.0
    workspace_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Seconds of one thing, pass by pass."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Raw measurements of one chain.

    Attributes
    ----------
    layers
        Names, in order.
    series
        Size → the layers' seconds, layer by layer.
    parts
        Size → layer → typical seconds of (input part, weight part) of the backward pass, measured apart.
    begun
        Size → seconds of all layers, the core rested before each.
    whole
        Size → seconds of the whole chain run as one stage, the core rested before.
    wall_over_cpu
        Wall time ÷ the reported time over all passes; 1 where nobody else wanted the core.
    updates
        Layer → optimizer → seconds of an update.
    saved_bytes_whole
        Bytes for one sample that autograd keeps for the whole chain, parameters excluded: checks the sum of layers.
    warnings
        What should be known of the model, in sentences.
    """

    layers: tuple[str, ...]
    sizes: tuple[Sizes, ...]
    series: Mapping[int, tuple[Series, ...]]
    parts: Mapping[int, tuple[tuple[float, float], ...]]
    begun: Mapping[int, Series]
    whole: Mapping[int, Series]
    wall_over_cpu: float
    updates: tuple[Mapping[str, float], ...]
    saved_bytes_whole: float
    tied: tuple[tuple[str, ...], ...]
    fingerprint: str
    sample_shape: str
    machine: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
