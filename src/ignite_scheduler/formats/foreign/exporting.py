"""What the writers of foreign profiles share: which times are taken, what is lost on the way, the files that result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Texts by path relative to the place that is written to ("" = that place itself), and what the format loses."""

    texts: Mapping[str, str]
    lost: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kind's times at one size of microbatch, layer by layer."""

    kind: str
    samples: int
    times: tuple[LayerTimes, ...]


def measured(profile: Profile, kind: str | None, samples: int | None) -> Measured:
    """The times that are exported: of the kind asked for, the reference or the only one; at the size asked for or the
    largest that every layer was measured at.

    Raises
    ------
    InputError
        Not every layer has times of that kind or at that size; the message names what there is.
    """
    kind = _kind(profile, kind)
    sizes = set.intersection(*(set(layer.times[kind]) for layer in profile.layers))
    if not sizes:
        raise InputError(f"the layers have no size of microbatch in common on {kind!r}")
    if samples is not None and samples not in sizes:
        known = ", ".join(str(size) for size in sorted(sizes))
        raise InputError(f"no times for {samples} samples on {kind!r}; measured: {known} (--samples)")
    size = max(sizes) if samples is None else samples
    return Measured(kind=kind, samples=size, times=tuple(layer.times[kind][size] for layer in profile.layers))


def _kind(profile: Profile, kind: str | None) -> str:
    kinds = [one for one in profile.layers[0].times if all(one in layer.times for layer in profile.layers)]
    if kind is None and profile.reference in kinds:
        return str(profile.reference)
    if kind is None and len(kinds) == 1:
        return kinds[0]
    if kind is not None and kind in kinds:
        return kind
    known = ", ".join(kinds) or "none for every layer"
    asked = "say which kind of device to export (--kind)" if kind is None else f"no times of the kind {kind!r}"
    raise InputError(f"{asked}; kinds with times: {known}")


def _is_split(rows: Mapping[int, LayerTimes]) -> bool:
    return any(times.weight_backward is not None for times in rows.values())


def _reads_both(layer: Layer) -> bool:
    return len(layer.inputs) > 1 and any(edge.source == MODEL_INPUT for edge in layer.inputs)


_LAYER_LOSSES: Final[Mapping[str, tuple[str, Callable[[Layer], bool]]]] = {
    "kinds": ("times of other kinds and sizes", lambda layer: sum(len(rows) for rows in layer.times.values()) > 1),
    "parts": ("the split of the backward pass", lambda layer: any(map(_is_split, layer.times.values()))),
    "kept": ("activation_bytes (an import takes the inputs' bytes)", lambda layer: layer.activation_bytes > 0),
    "partial": ("reads of a part of an output", lambda layer: any(edge.bytes is not None for edge in layer.inputs)),
    "sample": ("reads of the sample beside other layers", _reads_both),
    "carried": ("carried_bytes", lambda layer: layer.carried_bytes > 0),
    "transient": ("transient_bytes", lambda layer: layer.transient_bytes > 0),
    "workspace": ("workspace_bytes", lambda layer: layer.workspace_bytes > 0),
    "flops": ("FLOPs", lambda layer: layer.forward_flops is not None or layer.backward_flops is not None),
    "update": ("update_s", lambda layer: bool(layer.update)),
}
"""What a layer may have → how it is called, and whether this layer has it."""


def losses(profile: Profile, *carried: str) -> list[str]:
    """What the profile has and a format that carries only ``carried`` (keys of the table above) has no place for."""
    found = [
        text
        for name, (text, has) in _LAYER_LOSSES.items()
        if name not in carried and any(has(layer) for layer in profile.layers)
    ]
    found += ["tied weights"] if profile.tied else []
    found += ["action_overhead_s"] if profile.action_overhead else []
    found += [f"the precision ({profile.precision})"] if profile.precision != "fp32" else []
    found += ["the provenance"] if profile.provenance else []
    return found


def edges(profile: Profile) -> list[tuple[int, int, LayerInput]]:
    """Edges between layers as (index read, index that reads, input), in the order of the readers."""
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    return [
        (position[edge.source], index, edge)
        for index, layer in enumerate(profile.layers)
        for edge in layer.inputs
        if edge.source != MODEL_INPUT
    ]


def edge_bytes(profile: Profile, source: int, edge: LayerInput) -> float:
    """Bytes of one sample that an edge carries."""
    return profile.layers[source].output_bytes if edge.bytes is None else edge.bytes
