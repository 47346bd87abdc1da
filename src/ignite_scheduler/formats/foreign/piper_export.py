"""Our :class:`Profile` → Piper's JSON graph."""

from __future__ import annotations

from typing import Any, Final

from ignite_scheduler.formats.files import json_text
from ignite_scheduler.formats.foreign.common import MILLI, of_samples, shifted, total
from ignite_scheduler.formats.foreign.exporting import Exported, edge_bytes, edges, losses, measured
from ignite_scheduler.formats.foreign.piper import RECOMPUTING_MODE, VANILLA, is_milliseconds
from ignite_scheduler.model import Layer, Profile

DEVICES: Final = {"maxDevices": 8, "maxMemoryPerDevice": 80e9, "bandwidth": 25e9, "mbsInBatch": 64}
"""What Piper reads in the same file about the cluster and the job, of which a profile knows nothing."""

STATE: Final = 2
"""Weights and gradients: what Piper's own files hold for each byte of parameters."""


def export(profile: Profile, *, kind: str | None = None, samples: int | None = None) -> Exported:
    """The graph with one degree of tensor parallelism and two modes, for microbatches as Piper's samples.

    Recomputing keeps a layer's input alone and costs one forward more, so an import finds the forward again.

    Raises
    ------
    InputError
        There are no such times (see :func:`measured`).
    """
    chosen = measured(profile, kind, samples)
    links = edges(profile)
    before: list[list[int]] = [[] for _ in profile.layers]
    behind: list[list[int]] = [[] for _ in profile.layers]
    for source, target, _ in links:
        before[target].append(source)
        behind[source].append(target)
    places = -MILLI if is_milliseconds([layer.name for layer in profile.layers]) else 0
    nodes = []
    for index, layer in enumerate(profile.layers):
        times = chosen.times[index]
        seconds = total(times.forward, times.backward)
        sync = {
            "syncTimeFw": {str(one): 0.0 for one in before[index]},
            "syncTimeBw": {str(one): 0.0 for one in behind[index]},
        }
        read = sum(edge_bytes(profile, source, edge) for source, target, edge in links if target == index)
        modes = _modes(layer, chosen.samples, seconds, times.forward, min(read, layer.activation_bytes))
        nodes.append(
            {
                "id": index,
                "name": layer.name,
                "TMPCs": {
                    "1": [mode | {"timePerSample": shifted(mode["timePerSample"], places)} | sync for mode in modes]
                },
            }
        )
    document: dict[str, Any] = {
        **DEVICES,
        "maxBatchSize": DEVICES["mbsInBatch"],
        "nodes": nodes,
        "edges": [
            {
                "sourceId": source,
                "destId": target,
                "communicationCost": of_samples(edge_bytes(profile, source, edge), chosen.samples),
            }
            for source, target, edge in links
        ],
    }
    lost = [*losses(profile, "kept", "partial"), "output_bytes beyond what other layers read"]
    notes = (
        f"times of {chosen.kind}; one of Piper's samples is a microbatch of {chosen.samples} samples "
        f"(an import needs --samples {chosen.samples}); times are in {'milliseconds' if places else 'seconds'}",
        f"write your cluster and batch over {', '.join(DEVICES)}: they are placeholders",
    )
    return Exported(texts={"": json_text(document)}, lost=tuple(lost), notes=notes)


def _modes(layer: Layer, samples: int, seconds: float, forward: float, read: float) -> list[dict[str, Any]]:
    kept, fixed = of_samples(layer.activation_bytes, samples), STATE * layer.parameter_bytes
    left = of_samples(read, samples)
    return [
        {
            "id": VANILLA,
            "timePerSample": seconds,
            "parameterSize": layer.parameter_bytes,
            "memoryUsageA": kept,
            "memoryUsageB": fixed,
        },
        {
            "id": RECOMPUTING_MODE,
            "timePerSample": total(seconds, forward),
            "parameterSize": layer.parameter_bytes,
            "memoryUsageA": left,
            "memoryUsageB": fixed + kept - left,
        },
    ]
