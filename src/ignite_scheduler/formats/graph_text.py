"""Profiles in the text form of PipeDream's profiler, which DAPPLE's planner reads too, as our :class:`Profile`.

One node a line, ``ID -- DESCRIPTION -- forward_compute_time=F, backward_compute_time=B, activation_size=A,
parameter_size=P`` (milliseconds and bytes for one profile minibatch; A is what leaves the node, ``[a; b]`` for several
outputs), then one edge a line, indented, ``FROM -- TO``. The graph is that of the forward pass.

What is changed on the way:

- Nodes without predecessors and without parameters are the model's inputs, no layers: their times are those of loading
  data. Layers that read them read the sample.
- ``__getitem__`` nodes that nobody reads are left out.
- The bytes that a layer keeps for its backward pass are not in the file; its inputs stand for them.

References
----------
D. Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN training", SOSP 2019, §3.1 (the profile).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.profile import PROFILE_SCHEMA, parse_profile
from ignite_scheduler.formats.source import read_text
from ignite_scheduler.model import MODEL_INPUT, Profile

_FIELDS: Final = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_FIELD: Final = re.compile(r"(\w+)=(\[[^\]]*\]|[^,\s]+)")
_MILLI: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node of the file: seconds and bytes of one minibatch."""

    id: str
    description: str
    forward: float
    backward: float
    output: float
    parameters: float

    @property
    def name(self) -> str:
        return f"{self.id} {self.description.partition('(')[0].strip()}".strip()


def load_graph_text(path: str | Path, *, samples: int = 1, kind: str = "reference") -> Profile:
    """The profile in the file at ``path``.

    Parameters
    ----------
    samples
        Samples of the minibatch that was profiled, at least 1. It is not in the file; with 1 the whole minibatch counts
        as one sample.
    kind
        Kind of device that was profiled, also the profile's reference.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        A line is neither node nor edge, an edge names an unknown node, or the graph has a cycle.
    """
    if samples < 1:
        raise InputError(f"a minibatch has at least 1 sample, found {samples}")
    path, file = Path(path), str(path)
    nodes, edges = _read(read_text(path), file)
    layers = _layers(nodes, edges)
    if not layers:
        raise DocumentError("expected nodes with predecessors or parameters, found none", file=file)
    document = {
        "schema": PROFILE_SCHEMA,
        "name": path.name.partition(".")[0],
        "precision": "fp32",
        "reference": kind,
        "layers": [_layer(node, _sources(node.id, edges, layers), nodes, samples, kind) for node in layers.values()],
        "provenance": {
            "origin": f"imported from {path.name} (PipeDream's text form)",
            "samples": samples,
            "activation_bytes": "the bytes of each layer's inputs, since the file does not hold them",
        },
    }
    try:
        return parse_profile(document)
    except DocumentError as error:
        raise DocumentError(error.message, file=file, field=error.field) from None


def _read(text: str, file: str) -> tuple[dict[str, _Node], list[tuple[str, str]]]:
    nodes: dict[str, _Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        parts = [part.strip() for part in line.split(" -- ")]
        if not line.strip():
            continue
        if line[0] in " \t" and len(parts) == 2:
            edges.append((number, parts[0], parts[1]))
        elif len(parts) >= 3:
            node = _node(parts, file, number)
            if node.id in nodes:
                raise DocumentError(f"the node {node.id!r} is there twice", file=file, line=number)
            nodes[node.id] = node
        else:
            raise DocumentError(
                "expected a node 'ID -- DESCRIPTION -- forward_compute_time=…, …' or an indented edge 'FROM -- TO', "
                f"found {line.strip()[:60]!r}",
                file=file,
                line=number,
            )
    for number, *ends in edges:
        for end in ends:
            if end not in nodes:
                raise DocumentError(f"the edge names {end!r}, which is no node", file=file, line=number)
    return nodes, [(source, target) for _, source, target in edges]


def _node(parts: list[str], file: str, line: int) -> _Node:
    found = dict(_FIELD.findall(parts[2]))
    try:
        forward, backward, output, parameters = (_number(found[name]) for name in _FIELDS)
    except (KeyError, ValueError):
        raise DocumentError(
            f"expected the numbers {', '.join(_FIELDS)}, found {parts[2]!r}", file=file, line=line
        ) from None
    return _Node(
        id=parts[0],
        description=parts[1],
        forward=forward * _MILLI,
        backward=backward * _MILLI,
        output=output,
        parameters=parameters,
    )


def _number(text: str) -> float:
    """A number, or the sum of a list ``[a; b]``."""
    return sum(float(part) for part in text.strip("[]").split(";"))


def _layers(nodes: Mapping[str, _Node], edges: Iterable[tuple[str, str]]) -> dict[str, _Node]:
    """Nodes that are layers: neither the model's inputs nor ``__getitem__`` that leads nowhere."""
    read_by: dict[str, set[str]] = {node: set() for node in nodes}
    fed: set[str] = set()
    for source, target in edges:
        read_by[source].add(target)
        fed.add(target)
    layers = {name: node for name, node in nodes.items() if name in fed or node.parameters > 0}
    while True:
        useless = [
            name
            for name, node in layers.items()
            if node.description.startswith("__getitem__") and not read_by[name] & layers.keys()
        ]
        if not useless:
            return layers
        for name in useless:
            del layers[name]


def _sources(node: str, edges: Iterable[tuple[str, str]], layers: Mapping[str, _Node]) -> list[str]:
    """Ids of the layers that a node reads; empty where it reads only the sample."""
    return list(dict.fromkeys(source for source, target in edges if target == node and source in layers))


def _layer(node: _Node, sources: list[str], nodes: Mapping[str, _Node], samples: int, kind: str) -> dict[str, Any]:
    return {
        "name": node.name,
        "parameter_bytes": node.parameters,
        "output_bytes": node.output / samples,
        "activation_bytes": sum(nodes[source].output for source in sources) / samples,
        "times": {kind: {str(samples): [node.forward, node.backward]}},
        "inputs": [nodes[source].name for source in sources] or [MODEL_INPUT],
    }
