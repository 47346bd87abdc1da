"""JSON graphs of dnn-partitioning (layers or operators, inference or training) → our :class:`Profile`.

Nodes of one ``colorClass`` must stay on one device: they become one layer, a layer's forward and backward nodes
included. In operator graphs weights are nodes of their own (no time, no predecessors, read within their class); in
layer graphs a node's ``size`` is its output and its weights together, and the edge that leaves it tells them apart.

A backward node without a forward node of its class (losses, sums of gradients) goes to the layer that reads its result,
or else to the one that it reads. What backward nodes hold is not carried: gradients are the optimizer's factor here.

References
----------
J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the model).
"""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.foreign.common import (
    MILLI,
    REFERENCE,
    Choices,
    ForeignFormat,
    Found,
    Imported,
    Notes,
    assume_backward,
    assume_minibatch,
    backward_of,
    imported,
    per_sample,
    positions,
    shifted,
    unique_names,
    without_inputs,
)
from ignite_scheduler.formats.foreign.shapes import PartitionEdge, PartitionGraph, PartitionNode
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.source import Source
from ignite_scheduler.model import MODEL_INPUT

TITLE: Final = "a graph of dnn-partitioning"
CPU: Final = "cpu"
EDGE_BANDWIDTH: Final = 2.0**31
"""Bytes/s that turn an edge's ms into bytes where the edge does not have its size: the ratio of the origin's operator
graphs, which have both. (In its layer graphs the same ratio holds with the cost in seconds.)"""

Class = Hashable


@dataclass(slots=True, kw_only=True)
class _Group:
    """The nodes that make one layer, in the file's order."""

    forward: list[PartitionNode] = field(default_factory=list)
    backward: list[PartitionNode] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """The file with its edges by node. ``bytes`` of an edge that leaves the node, the largest."""

    nodes: dict[int, PartitionNode]
    before: dict[int, list[int]]
    behind: dict[int, list[int]]
    edges: list[tuple[int, int, float]]
    max_cpus: int

    def bytes_out(self) -> dict[int, float]:
        largest: dict[int, float] = {}
        for source, _, num_bytes in self.edges:
            largest[source] = max(largest.get(source, 0.0), num_bytes)
        return largest


def _recognises(found: Found) -> bool:
    data = found.data
    nodes = data.get("nodes") if isinstance(data, dict) else None
    return isinstance(nodes, list) and any(isinstance(node, dict) and "fpgaLatency" in node for node in nodes)


def _read(found: Found, choices: Choices) -> Imported:
    assert found.source is not None
    notes = Notes()
    graph = _graph(found.source, choices, notes)
    groups, group_of = _groups(found, graph, notes)
    inference = not any(group.backward for group in groups.values())
    if inference:
        assume_backward(notes, choices)
    weights = _weights(graph, group_of, groups)
    held = _held(graph, weights, notes)
    samples, kind = choices.samples or 1, choices.kind or REFERENCE
    _say(notes, graph, groups, samples, kind)
    keys = list(groups)
    names = dict(zip(keys, _names(groups, weights), strict=True))
    outputs, inputs = _tensors(graph, group_of, names, samples)
    layers = []
    for key, group in groups.items():
        parameters, kept = (sum(held[node.id][part] for node in group.forward) for part in (0, 1))
        layers.append(
            {
                "name": names[key],
                "parameter_bytes": parameters,
                "output_bytes": outputs.get(key, 0.0),
                "activation_bytes": per_sample(kept, samples),
                "times": _times(group, graph.max_cpus, kind, samples, choices if inference else None),
                "inputs": inputs.get(key) or [MODEL_INPUT],
            }
        )
    return imported(
        found,
        notes,
        form="dnn-partitioning",
        title=TITLE,
        reference=kind,
        layers=without_inputs(found, notes, choices, layers),
        provenance={"samples": samples, "inference_only": inference},
    )


FORMAT: Final = ForeignFormat(
    name="dnn-partitioning",
    title="dnn-partitioning (JSON graph with FPGA and CPU latencies)",
    recognises=_recognises,
    read=_read,
    choices=frozenset({"samples", "kind", "backward_ratio", "edge_bandwidth", "inputs"}),
)


# --- the graph ------------------------------------------------------------------------------------------------------


def _graph(source: Source, choices: Choices, notes: Notes) -> _Graph:
    shape = check(PartitionGraph, source)
    nodes = {own: shape.nodes[index] for own, index in positions(source, shape.nodes, shape.edges).items()}
    before: dict[int, list[int]] = {node: [] for node in nodes}
    behind: dict[int, list[int]] = {node: [] for node in nodes}
    edges = []
    for edge in shape.edges:
        before[edge.target].append(edge.source)
        behind[edge.source].append(edge.target)
        edges.append((edge.source, edge.target, _bytes(edge, choices)))
    if any(edge.size is None for edge in shape.edges):
        rate = choices.edge_bandwidth or EDGE_BANDWIDTH
        notes.warn(f"edges without a size: bytes = cost (ms) × {rate:g} bytes/s (--edge-bandwidth changes that)")
    else:
        notes.assume("bytes of edges are their size; their cost in ms is not used")
    return _Graph(nodes=nodes, before=before, behind=behind, edges=edges, max_cpus=shape.max_cpus)


def _bytes(edge: PartitionEdge, choices: Choices) -> float:
    if edge.size is not None:
        return edge.size
    return shifted(edge.cost * (choices.edge_bandwidth or EDGE_BANDWIDTH), MILLI)


def _order(found: Found, before: Mapping[Any, Iterable[Any]], what: str) -> list[Any]:
    """A topological order; the error names a cycle of nodes or of classes."""
    try:
        return list(graphlib.TopologicalSorter(before).static_order())
    except graphlib.CycleError as error:
        cycle = " → ".join(str(one) for one in error.args[1][:6])
        raise DocumentError(f"the {what} form a cycle: {cycle}", file=found.file, field="edges") from None


# --- layers ---------------------------------------------------------------------------------------------------------


def _groups(found: Found, graph: _Graph, notes: Notes) -> tuple[dict[Class, _Group], dict[int, Class]]:
    """The layers in the file's order, and the layer of every node."""
    order = _order(found, graph.before, "nodes")
    groups: dict[Class, _Group] = {}
    group_of: dict[int, Class] = {}
    for node in graph.nodes.values():
        if not node.backward:
            key: Class = ("class", node.color) if node.color is not None else ("node", node.id)
            groups.setdefault(key, _Group()).forward.append(node)
            group_of[node.id] = key
    if not groups:
        raise DocumentError("expected forward nodes, found only backward ones", file=found.file, field="nodes")
    strays = []
    for node in graph.nodes.values():
        if node.backward and ("class", node.color) in groups:
            group_of[node.id] = ("class", node.color)
        elif node.backward:
            strays.append(node.id)
    _place_strays(graph, order, set(strays), group_of, next(iter(groups)))
    for node in graph.nodes.values():
        if node.backward:
            groups[group_of[node.id]].backward.append(node)
    if strays:
        notes.assume(
            f"{len(strays)} backward nodes without a forward node of their class (losses, sums of gradients) go to the "
            "layer that reads their result, or else to the one that they read"
        )
    forward_before: dict[Class, set[Class]] = {key: set() for key in groups}
    for source, target, _ in graph.edges:
        if not graph.nodes[source].backward and not graph.nodes[target].backward:
            forward_before[group_of[target]].add(group_of[source])
    for key, sources in forward_before.items():
        sources.discard(key)
    _order(found, forward_before, "classes of nodes that must stay together")
    return groups, group_of


def _place_strays(
    graph: _Graph, order: list[int], strays: set[int], group_of: dict[int, Class], last_resort: Class
) -> None:
    rank = {node: position for position, node in enumerate(order)}
    for near, nodes in ((graph.behind, reversed(order)), (graph.before, order)):
        for node in nodes:
            if node in strays and node not in group_of:
                homes = [other for other in near[node] if other in group_of]
                if homes:
                    group_of[node] = group_of[min(homes, key=lambda other: rank[other])]
    for node in strays:
        group_of.setdefault(node, last_resort)


def _weights(graph: _Graph, group_of: Mapping[int, Class], groups: Mapping[Class, _Group]) -> set[int]:
    """Nodes that are weights: no time, no predecessor, and read by a forward node of their own class."""
    return {
        node.id
        for node in graph.nodes.values()
        if not node.backward
        and not node.accelerator
        and not graph.before[node.id]
        and any(
            group_of[reader] == group_of[node.id] and not graph.nodes[reader].backward
            for reader in graph.behind[node.id]
        )
        and node.size
    }


def _held(graph: _Graph, weights: set[int], notes: Notes) -> dict[int, tuple[float, float]]:
    """Of each forward node, the bytes that are weights and those that are kept for the backward pass."""
    forward = [node for node in graph.nodes.values() if not node.backward]
    if weights:
        notes.assume(f"{len(weights)} nodes are weights; size of the other forward nodes is kept for the backward pass")
        return {node.id: (node.size, 0.0) if node.id in weights else (0.0, node.size) for node in forward}
    leaving = graph.bytes_out()
    notes.assume("size of a node = its output, kept for the backward pass, and beyond that its weights")
    unread = [node for node in forward if node.id not in leaving and node.size]
    if unread:
        total = sum(node.size for node in unread)
        notes.warn(
            f"nodes that nothing reads ({len(unread)}, {total:g} bytes): the file does not tell weights from output, "
            "all counts as kept for the backward pass"
        )
    held = {}
    for node in forward:
        kept = min(node.size, leaving.get(node.id, node.size))
        held[node.id] = node.size - kept, kept
    return held


def _times(
    group: _Group, max_cpus: int, kind: str, samples: int, assumed: Choices | None
) -> dict[str, dict[str, list[float]]]:
    """Times of one layer by kind; ``assumed`` gives the backward where none was measured."""
    nodes = group.forward + group.backward
    times = {}
    if all(node.supported for node in nodes):
        times[kind] = [
            shifted(sum(node.accelerator for node in part), MILLI) for part in (group.forward, group.backward)
        ]
    if max_cpus > 0 or not times:
        times[CPU] = [shifted(sum(node.cpu for node in part), MILLI) for part in (group.forward, group.backward)]
    if assumed is not None:
        times = {one: [forward, backward_of(forward, assumed)] for one, (forward, _) in times.items()}
    return {one: {str(samples): row} for one, row in times.items()}


def _names(groups: Mapping[Class, _Group], weights: set[int]) -> list[str]:
    """A layer's name is that of its slowest forward node that is no weight."""
    names, ids = [], []
    for group in groups.values():
        nodes = [node for node in group.forward if node.id not in weights] or group.forward
        head = max(nodes, key=lambda node: node.accelerator)
        names.append(head.name or f"node{head.id}")
        ids.append(head.id)
    return unique_names(names, ids)


def _tensors(
    graph: _Graph, group_of: Mapping[int, Class], names: Mapping[Class, str], samples: int
) -> tuple[dict[Class, float], dict[Class, list[Any]]]:
    """Bytes that leave each layer, and what each layer reads: a tensor counts once however many nodes read it."""
    leaving: dict[Class, dict[int, float]] = defaultdict(dict)
    reading: dict[tuple[Class, Class], dict[int, float]] = defaultdict(dict)
    for source, target, num_bytes in graph.edges:
        ends = group_of[source], group_of[target]
        if graph.nodes[source].backward or graph.nodes[target].backward or ends[0] == ends[1]:
            continue
        for tensors in (leaving[ends[0]], reading[ends]):
            tensors[source] = max(tensors.get(source, 0.0), num_bytes)
    outputs = {key: per_sample(sum(tensors.values()), samples) for key, tensors in leaving.items()}
    inputs: dict[Class, list[Any]] = defaultdict(list)
    for (source_key, target_key), tensors in reading.items():
        num_bytes = per_sample(sum(tensors.values()), samples)
        whole = num_bytes == outputs[source_key]
        inputs[target_key].append(names[source_key] if whole else {"from": names[source_key], "bytes": num_bytes})
    return outputs, inputs


def _say(notes: Notes, graph: _Graph, groups: Mapping[Class, _Group], samples: int, kind: str) -> None:
    assume_minibatch(notes, samples, "latencies are milliseconds")
    notes.assume(f"{len(graph.nodes)} nodes of {len(groups)} classes become {len(groups)} layers; FPGA is {kind!r}")
    lost = sum(node.size for group in groups.values() for node in group.backward)
    if lost:
        notes.assume(
            f"what backward nodes hold ({lost:g} bytes) is left to the job's optimizer, which counts gradients"
        )
    ratios = {round(node.cpu / node.accelerator, 6) for node in graph.nodes.values() if node.accelerator}
    if graph.max_cpus <= 0:
        notes.assume("maxCPUs is 0: cpuLatency is left out")
    elif len(ratios) == 1:
        notes.warn(f"every cpuLatency is {ratios.pop():g} × fpgaLatency: modelled, not measured")
    optimizers = [
        node for group in groups.values() for node in group.backward if "optimizer" in (node.name or "").lower()
    ]
    if optimizers:
        part = shifted(sum(node.accelerator for node in optimizers), MILLI)
        notes.warn(f"{len(optimizers)} optimizer nodes ({part:g} s) count in the backward pass of every microbatch")
