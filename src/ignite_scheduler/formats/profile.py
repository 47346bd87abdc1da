"""``profile.json`` ↔ :class:`~ignite_scheduler.model.Profile`."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.profile import LayerShape

PROFILE_SCHEMA: Final = "ignite/profile/v1"


def load_profile(path: str | Path) -> Profile:
    """The profile in the file at ``path``, its layers in a topological order.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong; the message has the line, the field and what to do.
    """
    return _profile(read_source(path))


def parse_profile(data: Mapping[str, Any]) -> Profile:
    """The profile of a document that is plain data already, such as :func:`profile_document` gives."""
    return _profile(Source(data=data))


def profile_document(profile: Profile) -> dict[str, Any]:
    """The document that reads back as ``profile``."""
    document: dict[str, Any] = {"schema": PROFILE_SCHEMA, "name": profile.name, "precision": profile.precision}
    if profile.reference is not None:
        document["reference"] = profile.reference
    before = MODEL_INPUT
    document["layers"] = []
    for layer in profile.layers:
        document["layers"].append(_layer_entry(layer, before))
        before = layer.name
    if profile.tied:
        document["tied"] = [list(group) for group in profile.tied]
    if profile.action_overhead:
        document["action_overhead_s"] = profile.action_overhead
    if profile.provenance:
        document["provenance"] = dict(profile.provenance)
    return document


# --- reading --------------------------------------------------------------------------------------------------------


def _profile(source: Source) -> Profile:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.profile import ProfileShape

    shape = check(ProfileShape, source)
    positions = _positions(source, shape.layers)
    layers, before = [], MODEL_INPUT
    for index, entry in enumerate(shape.layers):
        layers.append(_layer(source, index, entry, before, positions))
        before = entry.name
    for group_index, group in enumerate(shape.tied):
        for index, name in enumerate(group):
            place = ("tied", group_index, index)
            if name not in positions:
                raise source.error(place, f"no layer is called {name!r}{_near(name, positions)}")
            if name in group[:index]:
                raise source.error(place, f"the layer {name!r} is listed twice in one group; list it once")
    return Profile(
        name=shape.name,
        precision=shape.precision,
        reference=shape.reference,
        layers=_in_order(source, layers, positions),
        tied=tuple(tuple(group) for group in shape.tied),
        action_overhead=shape.action_overhead_s,
        provenance=shape.provenance,
    )


def _positions(source: Source, entries: Sequence[LayerShape]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for index, entry in enumerate(entries):
        place = ("layers", index, "name")
        if entry.name == MODEL_INPUT:
            raise source.error(place, f"{MODEL_INPUT!r} means the sample itself; call the layer something else")
        if entry.name in positions:
            first = positions[entry.name]
            raise source.error(place, f"the layers {first} and {index} are both called {entry.name!r}; rename one")
        positions[entry.name] = index
    return positions


def _layer(source: Source, index: int, entry: LayerShape, before: str, positions: Mapping[str, int]) -> Layer:
    if not entry.times and entry.forward_flops is None:
        raise source.error(
            ("layers", index, "times"),
            "expected the times of at least one kind of device, or forward_flops to estimate them by, found neither; "
            "'ignite profile' gives both",
        )
    inputs = [LayerInput(source=edge.from_, bytes=edge.bytes) for edge in entry.inputs or ()]
    for edge_index, edge in enumerate(inputs):
        place = ("layers", index, "inputs", edge_index)
        if edge.source != MODEL_INPUT and edge.source not in positions:
            known = "" if _near(edge.source, positions) else f"; write a layer's name or {MODEL_INPUT!r}"
            raise source.error(place, f"no layer is called {edge.source!r}{_near(edge.source, positions)}{known}")
        if any(edge.source == earlier.source for earlier in inputs[:edge_index]):
            raise source.error(place, f"the input {edge.source!r} is listed twice; list it once")
    return Layer(
        name=entry.name,
        parameter_bytes=entry.parameter_bytes,
        output_bytes=entry.output_bytes,
        activation_bytes=entry.activation_bytes,
        carried_bytes=entry.carried_bytes,
        transient_bytes=entry.transient_bytes,
        workspace_bytes=entry.workspace_bytes,
        forward_flops=entry.forward_flops,
        backward_flops=entry.backward_flops,
        times={kind: {samples: _times(row) for samples, row in rows.items()} for kind, rows in entry.times.items()},
        inputs=tuple(inputs) or (LayerInput(source=before),),
        update=entry.update_s,
    )


def _times(row: Sequence[float]) -> LayerTimes:
    if len(row) == 2:
        return LayerTimes(forward=row[0], backward=row[1])
    forward, of_input, of_weight = row
    return LayerTimes(
        forward=forward, backward=of_input + of_weight, input_backward=of_input, weight_backward=of_weight
    )


def _near(name: str, known: Mapping[str, int]) -> str:
    from ignite_scheduler.formats.shapes.fields import nearest

    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _in_order(source: Source, layers: Sequence[Layer], positions: Mapping[str, int]) -> tuple[Layer, ...]:
    """The layers in a topological order, the file's own wherever it is one (Kahn, the first in the file first)."""
    readers: list[list[int]] = [[] for _ in layers]
    waiting = [0] * len(layers)
    for index, layer in enumerate(layers):
        for edge in layer.inputs:
            if edge.source != MODEL_INPUT:
                readers[positions[edge.source]].append(index)
                waiting[index] += 1
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(layers):
        raise _cycle_error(source, layers, positions, waiting)
    return tuple(layers[index] for index in order)


def _cycle_error(
    source: Source, layers: Sequence[Layer], positions: Mapping[str, int], waiting: Sequence[int]
) -> DocumentError:
    index = next(index for index, count in enumerate(waiting) if count)
    path: list[int] = []
    while index not in path:  # a layer that still waits has an input that still waits: walking back must close a cycle
        path.append(index)
        sources = [positions[edge.source] for edge in layers[index].inputs if edge.source != MODEL_INPUT]
        index = next(source_index for source_index in sources if waiting[source_index])
    cycle = [*path[path.index(index) :], index]
    names = " reads ".join(repr(layers[position].name) for position in cycle)
    return source.error(("layers", min(cycle), "inputs"), f"the layers form a cycle: {names}; remove one of the inputs")


# --- writing --------------------------------------------------------------------------------------------------------


def _layer_entry(layer: Layer, before: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": layer.name,
        "parameter_bytes": layer.parameter_bytes,
        "output_bytes": layer.output_bytes,
        "activation_bytes": layer.activation_bytes,
    }
    for key in ("carried_bytes", "transient_bytes", "workspace_bytes"):
        if getattr(layer, key):
            entry[key] = getattr(layer, key)
    if layer.forward_flops is not None:
        entry["forward_flops"] = layer.forward_flops
    if layer.backward_flops is not None:
        entry["backward_flops"] = layer.backward_flops
    if layer.times:
        entry["times"] = {
            kind: {str(samples): _row(times) for samples, times in rows.items()} for kind, rows in layer.times.items()
        }
    if layer.inputs != (LayerInput(source=before),):
        entry["inputs"] = [
            edge.source if edge.bytes is None else {"from": edge.source, "bytes": edge.bytes} for edge in layer.inputs
        ]
    if layer.update:
        entry["update_s"] = dict(layer.update)
    return entry


def _row(times: LayerTimes) -> list[float]:
    if times.input_backward is None or times.weight_backward is None:
        return [times.forward, times.backward]
    return [times.forward, times.input_backward, times.weight_backward]
