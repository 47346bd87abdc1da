"""Our :class:`Profile` → a training graph of dnn-partitioning."""

from __future__ import annotations

from typing import Any, Final

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.files import json_text
from ignite_scheduler.formats.foreign.common import MILLI, of_samples, shifted
from ignite_scheduler.formats.foreign.exporting import Exported, Measured, edge_bytes, edges, losses, measured
from ignite_scheduler.formats.foreign.partition import CPU, EDGE_BANDWIDTH
from ignite_scheduler.model import LayerTimes, Profile

DEVICES: Final = {"maxSizePerFPGA": 80e9, "maxFPGAs": 8}
"""What the origin reads in the same file about the cluster, of which a profile knows nothing."""


def export(profile: Profile, *, kind: str | None = None, samples: int | None = None) -> Exported:
    """The graph: of each layer a node of weights, a forward and a backward node, all of one ``colorClass``.

    Raises
    ------
    InputError
        There are no such times (see :func:`measured`), or the model has no parameters: the graph would not tell an
        output from a weight.
    """
    if not any(layer.parameter_bytes for layer in profile.layers):
        raise InputError("a model without parameters cannot be written as a training graph of dnn-partitioning")
    chosen = measured(profile, kind, samples)
    on_cpu = _cpu_times(profile, chosen)
    count = len(profile.layers)
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for index, layer in enumerate(profile.layers):
        times, cpu = chosen.times[index], on_cpu[index]
        forward, backward = index, count + index
        kept = of_samples(layer.activation_bytes, chosen.samples)
        nodes.append(_node(forward, layer.name, index, times.forward, cpu.forward, kept, backward=False))
        nodes.append(
            _node(backward, f"{layer.name} backward", index, times.backward, cpu.backward, kept, backward=True)
        )
        links.append(_link(forward, backward, 0.0))
        if layer.parameter_bytes:
            weights = 2 * count + index
            size = layer.parameter_bytes
            nodes.append(_node(weights, f"{layer.name} weights", index, 0.0, 0.0, size, backward=False))
            links.append(_link(weights, forward, layer.parameter_bytes))
    for source, target, edge in edges(profile):
        size = of_samples(edge_bytes(profile, source, edge), chosen.samples)
        links += [_link(source, target, size), _link(count + target, count + source, size)]
    has_cpu = on_cpu is not chosen.times
    document = DEVICES | {"maxCPUs": int(has_cpu), "nodes": nodes, "edges": links}
    lost = [*losses(profile, "kept", "partial"), "output_bytes beyond what other layers read"]
    notes = (
        f"times of {chosen.kind} for {chosen.samples} samples as fpgaLatency (an import needs --samples "
        f"{chosen.samples}); edge costs take {EDGE_BANDWIDTH:g} bytes/s",
        f"cpuLatency is {'that of the kind cpu' if has_cpu else 'a copy, with maxCPUs 0'}; write your cluster over "
        f"{', '.join(DEVICES)}: they are placeholders",
    )
    return Exported(texts={"": json_text(document)}, lost=tuple(lost), notes=notes)


def _cpu_times(profile: Profile, chosen: Measured) -> tuple[LayerTimes, ...]:
    """Times of the kind ``cpu`` at the same size; those of the chosen kind where there are none."""
    rows = [layer.times.get(CPU, {}).get(chosen.samples) for layer in profile.layers]
    if chosen.kind == CPU or any(row is None for row in rows):
        return chosen.times
    return tuple(row for row in rows if row is not None)


def _node(
    own: int, name: str, color: int, seconds: float, cpu: float, size: float, *, backward: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "id": own,
        "supportedOnFpga": True,
        "cpuLatency": _milliseconds(cpu),
        "fpgaLatency": _milliseconds(seconds),
        "isBackwardNode": backward,
        "colorClass": color,
        "size": size,
    }


def _link(source: int, target: int, size: float) -> dict[str, Any]:
    return {"sourceId": source, "destId": target, "cost": _milliseconds(size / EDGE_BANDWIDTH), "size": size}


def _milliseconds(seconds: float) -> float:
    return shifted(seconds, -MILLI)
