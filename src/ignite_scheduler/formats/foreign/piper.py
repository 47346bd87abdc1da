"""Piper's JSON graphs → our :class:`Profile`.

A node is a layer with several ways to run it (``TMPCs``): a degree of tensor parallelism → modes, ``vanilla`` and with
recomputation. One degree is taken, in its vanilla mode. ``timePerSample`` is forward and backward together; a mode that
recomputes costs one forward more, so the two modes together give the forward exactly. Memory is A · (microbatches in
flight) + B: A becomes what a layer keeps, B is left to the job's optimizer, which decides it here.

The unit of time is not in the file. Graphs that were made from PipeDream's (nodes called ``nodeN``) are in
milliseconds like those, others in seconds; ``time_unit`` says otherwise.

References
----------
J. Tarnawski et al., "Piper: Multidimensional planner for DNN parallelization", NeurIPS 2021, §3. ``syncTimeFw`` is
keyed by the layers before and ``syncTimeBw`` by those behind, as its reader wants it and against its manual.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ignite_scheduler.formats.foreign.common import (
    MILLI,
    REFERENCE,
    Choices,
    ForeignFormat,
    Found,
    Imported,
    Notes,
    imported,
    per_sample,
    positions,
    shifted,
    total,
    unique_names,
    without_inputs,
)
from ignite_scheduler.formats.foreign.shapes import PiperGraph, PiperMode, PiperNode
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.source import Source
from ignite_scheduler.model import MODEL_INPUT

TITLE: Final = "Piper's graph"
FORWARD_SHARE: Final = 1 / 3
"""Part of forward + backward that is the forward where no recomputing mode tells: a backward costs two."""
ROUNDING: Final = 1e-9
"""By how much the difference of two written times may exceed what it stands for."""
VANILLA: Final = "vanilla"
RECOMPUTING: Final = "recomp"
RECOMPUTING_MODE: Final = "activation recomp"
_FROM_PIPEDREAM: Final = re.compile(r"node\d+")


def is_milliseconds(names: Sequence[str]) -> bool:
    """Whether a graph with these names of nodes was made from one of PipeDream's, whose times are milliseconds."""
    return all(_FROM_PIPEDREAM.fullmatch(name) for name in names)


def _recognises(found: Found) -> bool:
    data = found.data
    nodes = data.get("nodes") if isinstance(data, dict) else None
    return isinstance(nodes, list) and any(isinstance(node, dict) and "TMPCs" in node for node in nodes)


def _read(found: Found, choices: Choices) -> Imported:
    assert found.source is not None
    graph, notes = check(PiperGraph, found.source), Notes()
    place_of = positions(found.source, graph.nodes, graph.edges)
    degree = choices.tensor_parallel or 1
    modes = [_modes(found.source, index, node, degree) for index, node in enumerate(graph.nodes)]
    samples, kind = choices.samples or 1, choices.kind or _kind(degree)
    names = [node.name or f"node{node.id}" for node in graph.nodes]
    places = _time_places(names, choices)
    _say(notes, graph, modes, degree, samples, places, choices)
    names = unique_names(names, [node.id for node in graph.nodes])
    outputs, inputs = _edges(graph, place_of, names, samples)
    layers = []
    for index, (plain, recomputing) in enumerate(modes):
        forward = _forward(plain, recomputing)
        row = [shifted(part, places) for part in (forward, total(plain.time, -forward))]
        layers.append(
            {
                "name": names[index],
                "parameter_bytes": plain.parameters,
                "output_bytes": outputs[index],
                "activation_bytes": per_sample(plain.in_flight, samples),
                "times": {kind: {str(samples): row}},
                "inputs": inputs[index] or [MODEL_INPUT],
            }
        )
    return imported(
        found,
        notes,
        form="piper",
        title=TITLE,
        reference=kind,
        layers=without_inputs(found, notes, choices, layers),
        provenance={"samples": samples, "tensor_parallel": degree},
    )


FORMAT: Final = ForeignFormat(
    name="piper",
    title="Piper (JSON graph with TMPCs)",
    recognises=_recognises,
    read=_read,
    choices=frozenset({"samples", "kind", "tensor_parallel", "time_unit", "inputs"}),
)


def _kind(degree: int) -> str:
    return REFERENCE if degree == 1 else f"{REFERENCE}-tp{degree}"


def _modes(source: Source, index: int, node: PiperNode, degree: int) -> tuple[PiperMode, PiperMode | None]:
    """The vanilla mode at a degree, and the recomputing one where there is one."""
    place = ("nodes", index, "TMPCs")
    if degree not in node.modes:
        known = ", ".join(str(one) for one in sorted(node.modes))
        raise source.error(place, f"no tensor-parallel degree {degree}; this node has {known} (--tensor-parallel)")
    modes = node.modes[degree]
    recomputing = [mode for mode in modes if RECOMPUTING in mode.id.lower()]
    plain = [mode for mode in modes if mode not in recomputing]
    if not plain:
        raise source.error((*place, str(degree)), "expected a mode without recomputation, found none")
    vanilla = next((mode for mode in plain if mode.id.lower() == VANILLA), plain[0])
    return vanilla, recomputing[0] if recomputing else None


def _split_is_known(plain: PiperMode, recomputing: PiperMode | None) -> bool:
    return recomputing is not None and 0 <= recomputing.time - plain.time <= plain.time * (1 + ROUNDING)


def _forward(plain: PiperMode, recomputing: PiperMode | None) -> float:
    """The forward's part of ``timePerSample``."""
    if recomputing is not None and _split_is_known(plain, recomputing):
        return min(total(recomputing.time, -plain.time), plain.time)
    return plain.time * FORWARD_SHARE


def _time_places(names: Sequence[str], choices: Choices) -> int:
    if choices.time_unit is not None:
        return MILLI if choices.time_unit == "ms" else 0
    return MILLI if is_milliseconds(names) else 0


def _say(
    notes: Notes,
    graph: PiperGraph,
    modes: Sequence[tuple[PiperMode, PiperMode | None]],
    degree: int,
    samples: int,
    places: int,
    choices: Choices,
) -> None:
    unit = "milliseconds" if places else "seconds"
    why = "as you said" if choices.time_unit else "the file does not say; by its names of nodes"
    notes.assume(f"timePerSample is in {unit} ({why}; --time-unit changes that)")
    notes.assume(f"one of the file's samples counts as {samples} sample{'s' if samples > 1 else ''} (--samples)")
    unknown = sum(not _split_is_known(*pair) for pair in modes)
    notes.assume("forward = time with recomputation − vanilla time, backward = the rest of forward + backward")
    if unknown:
        notes.warn(f"{_layers(unknown)} with no recomputing mode to tell the forward: a third is taken")
    ratios = Counter(round(plain.fixed / plain.parameters, 3) for plain, _ in modes if plain.parameters)
    shown = ", ".join(f"{ratio:g} × (in {_layers(count)})" for ratio, count in ratios.most_common(3))
    notes.assume(
        f"memoryUsageA is kept for each microbatch; memoryUsageB is {shown or 'nothing'} the parameters: "
        "the job's optimizer decides that part instead"
    )
    sync = sum(sum(plain.sync_forward.values()) + sum(plain.sync_backward.values()) for plain, _ in modes)
    if degree > 1:
        notes.assume(f"each device of the plan stands for a group of {degree}, with the memory of one of them")
        notes.warn(f"syncTimeFw and syncTimeBw ({sync:g} bytes within groups) have no place in a profile: left out")
    sizes: dict[int, set[float]] = defaultdict(set)
    for edge in graph.edges:
        sizes[edge.source].add(edge.bytes)
    unlike = sum(len(found) > 1 for found in sizes.values())
    if unlike:
        notes.assume(
            f"{_layers(unlike)} with edges of unlike bytes: the output is the largest, each edge keeps its own"
        )


def _edges(
    graph: PiperGraph, place_of: Mapping[int, int], names: Sequence[str], samples: int
) -> tuple[list[float], list[list[Any]]]:
    """Bytes that leave each layer, and what each layer reads."""
    outputs: list[float] = [0.0] * len(names)
    inputs: list[list[Any]] = [[] for _ in names]
    for edge in graph.edges:
        index = place_of[edge.source]
        outputs[index] = max(outputs[index], per_sample(edge.bytes, samples))
    read: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        key = place_of[edge.source], place_of[edge.target]
        read[key] = max(read.get(key, 0.0), per_sample(edge.bytes, samples))
    for (source, target), num_bytes in read.items():
        whole = num_bytes == outputs[source]
        inputs[target].append(names[source] if whole else {"from": names[source], "bytes": num_bytes})
    return outputs, inputs


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"
