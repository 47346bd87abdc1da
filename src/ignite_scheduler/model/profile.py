"""What was measured of a model: a graph of layers with sizes and, per kind of device, times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MODEL_INPUT: Final = "input"
"""Name under which a layer reads the sample itself instead of another layer's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds of one layer for one microbatch.

    ``backward`` is the whole backward pass. ``input_backward`` and ``weight_backward`` are its two parts where they
    were measured apart (zero-bubble schedules need them); None otherwise.
    """

    forward: float
    backward: float
    input_backward: float | None = None
    weight_backward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInput:
    """An edge of the layer graph: which output a layer reads.

    ``source`` is a layer's name or :data:`MODEL_INPUT`; ``bytes`` is for one sample, None = the whole output.
    """

    source: str
    bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The smallest unit that the planner may place.

    Bytes and FLOPs are for one sample, parameters apart. ``times`` maps kind of device → samples in a microbatch →
    :class:`LayerTimes`. ``update`` maps the name of an optimizer to the seconds of its update of this layer on the
    reference kind, where that was measured.

    ``activation_bytes`` stay kept until the layer's backward; a tensor that a later layer needs too counts there, and
    then the bytes are ``carried_bytes`` here: a stage that ends with this layer holds them too. ``transient_bytes``
    are filled for a moment while the layer is at work, ``workspace_bytes`` likewise, whatever the number of samples.
    """

    name: str
    parameter_bytes: float
    output_bytes: float
    activation_bytes: float
    carried_bytes: float = 0.0
    transient_bytes: float = 0.0
    workspace_bytes: float = 0.0
    forward_flops: float | None = None
    backward_flops: float | None = None
    times: Mapping[str, Mapping[int, LayerTimes]]
    inputs: tuple[LayerInput, ...]
    update: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model as the planner sees it.

    ``layers`` stand in a topological order of the graph (readers sort them; a cycle is refused). ``reference`` is the
    kind to which the ``speed`` of a device without times of its own relates. ``tied`` lists groups of layers that
    share one weight. ``action_overhead`` is what the engine adds to each action, in seconds on the reference kind,
    where that was measured. ``provenance`` says where and how it was measured.
    """

    name: str
    precision: str
    reference: str | None
    layers: tuple[Layer, ...]
    tied: tuple[tuple[str, ...], ...] = ()
    action_overhead: float = 0.0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def index(self, name: str) -> int:
        """Position of the layer called ``name``; KeyError if there is none."""
        for position, layer in enumerate(self.layers):
            if layer.name == name:
                return position
        raise KeyError(name)
