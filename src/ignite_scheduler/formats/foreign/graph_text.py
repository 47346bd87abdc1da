"""The text form of PipeDream's profiler, which DAPPLE's planner reads too ↔ our :class:`Profile`.

One node a line, ``ID -- DESCRIPTION -- forward_compute_time=F, backward_compute_time=B, activation_size=A,
parameter_size=P`` (milliseconds and bytes for one profile minibatch; A is what leaves the node, ``[a; b]`` for several
outputs), then one edge a line, indented by tabs or blanks, ``FROM -- TO``. The graph is that of the forward pass; lines
stand in no order.

What is changed on the way:

- Inputs of the model (nodes without predecessors and parameters that are called ``Input…``, or that carry nothing) are
  no layers: their times are those of loading data. Layers that read them read the sample.
- ``__getitem__`` nodes that nobody reads are left out.
- The bytes that a layer keeps for its backward pass are not in the file; its inputs stand for them.

References
----------
D. Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN training", SOSP 2019, §3.1 (the profile).
S. Fan et al., "DAPPLE: A pipelined data parallel approach for training large models", PPoPP 2021.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign.common import (
    REFERENCE,
    Choices,
    ForeignFormat,
    Found,
    Imported,
    Notes,
    assume_minibatch,
    exact,
    imported,
)
from ignite_scheduler.formats.source import read_text
from ignite_scheduler.model import MODEL_INPUT, Profile

TITLE: Final = "PipeDream's text form"
NOISE: Final = "__getitem__"
"""Description of nodes that take one of several outputs; those that nobody reads are noise."""
_FIELDS: Final = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_FIELD: Final = re.compile(r"(\w+)=(\[[^\]]*\]|[^,\s]+)")
_LOOKS: Final = re.compile(r" -- .*forward_compute_time=[0-9.]")
_NAMED_SAMPLES: Final = re.compile(r"-pbs-(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node of the file: exact seconds and bytes of one minibatch."""

    id: str
    description: str
    line: int
    forward: Fraction
    backward: Fraction
    output: Fraction
    parameters: Fraction

    @property
    def name(self) -> str:
        short = self.description.partition("(")[0].strip()
        return self.id if short == self.id else f"{self.id} {short}".strip()

    @property
    def is_nothing(self) -> bool:
        return not (self.forward or self.backward or self.output or self.parameters)


def load_graph_text(path: str | Path, *, samples: int = 1, kind: str = REFERENCE) -> Profile:
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
    found = Found(path=Path(path), text=read_text(Path(path)))
    return _read(found, Choices(samples=samples, kind=kind)).profile


def _recognises(found: Found) -> bool:
    return found.text is not None and found.source is None and _LOOKS.search(found.text) is not None


def _read(found: Found, choices: Choices) -> Imported:
    samples, notes = _samples(found, choices), Notes()
    kind = choices.kind or REFERENCE
    nodes, edges = _parse(found.text or "", found.file)
    inputs, layers = _layers(nodes, edges)
    if not layers:
        raise DocumentError("expected nodes with predecessors or parameters, found none", file=found.file)
    sources: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in dict.fromkeys(edges):
        sources[target].append(source)
    _say(notes, nodes, inputs, layers, sources, samples)
    return imported(
        found,
        notes,
        form="pipedream",
        title=TITLE,
        reference=kind,
        layers=[_layer(node, sources[name], nodes, layers, samples, kind) for name, node in layers.items()],
        provenance={"samples": samples},
    )


FORMAT: Final = ForeignFormat(
    name="pipedream",
    title="PipeDream and DAPPLE (text graph)",
    recognises=_recognises,
    read=_read,
    choices=frozenset({"samples", "kind"}),
)


def _samples(found: Found, choices: Choices) -> int:
    if choices.samples is not None:
        if choices.samples < 1:
            raise InputError(f"a minibatch has at least 1 sample, found {choices.samples}")
        return choices.samples
    named = _NAMED_SAMPLES.search(found.path.name)
    return max(1, int(named.group(1))) if named else 1


def _say(
    notes: Notes,
    nodes: Mapping[str, _Node],
    inputs: Mapping[str, _Node],
    layers: Mapping[str, _Node],
    sources: Mapping[str, list[str]],
    samples: int,
) -> None:
    assume_minibatch(notes, samples, "times are milliseconds, sizes bytes of that minibatch")
    if inputs:
        lost = float(sum(node.forward + node.backward for node in inputs.values()))
        notes.assume(f"{_list(inputs)}: inputs of the model, no layers; their {lost:g} s of loading data are left out")
    noise = {name: node for name, node in nodes.items() if name not in layers and name not in inputs}
    if noise:
        lost = float(sum(node.forward + node.backward for node in noise.values()))
        notes.assume(f"{len(noise)} __getitem__ nodes that nobody reads are left out ({lost:g} s)")
    notes.assume("activation_bytes: the bytes of each layer's inputs, since the file does not hold what is kept")
    orphans = {name: node for name, node in layers.items() if not sources[name]}
    if orphans and inputs:
        notes.warn(f"{_list(orphans)} read nothing: taken to read the sample; is the file cut off?")


def _list(nodes: Mapping[str, _Node]) -> str:
    names = [node.name for node in nodes.values()]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


# --- reading --------------------------------------------------------------------------------------------------------


def _parse(text: str, file: str) -> tuple[dict[str, _Node], list[tuple[str, str]]]:
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
    named = {end for _, *ends in edges for end in ends}
    for node in nodes.values():
        if len(nodes) > 1 and node.id not in named:
            raise DocumentError(f"no edge names the node {node.id!r}; is the file cut off?", file=file, line=node.line)
    return nodes, [(source, target) for _, source, target in edges]


def _node(parts: list[str], file: str, line: int) -> _Node:
    found = dict(_FIELD.findall(parts[-1]))
    try:
        forward, backward, output, parameters = (_number(found[name]) for name in _FIELDS)
    except (KeyError, ValueError):
        raise DocumentError(
            f"expected the numbers {', '.join(_FIELDS)}, none below 0, found {parts[-1]!r}", file=file, line=line
        ) from None
    return _Node(
        id=parts[0],
        description=" -- ".join(parts[1:-1]),
        line=line,
        forward=forward / 1000,
        backward=backward / 1000,
        output=output,
        parameters=parameters,
    )


def _number(text: str) -> Fraction:
    """A number, or the sum of a list ``[a; b]``."""
    return sum((exact(part) for part in text.strip("[]").split(";")), start=Fraction())


def _layers(nodes: Mapping[str, _Node], edges: Iterable[tuple[str, str]]) -> tuple[dict[str, _Node], dict[str, _Node]]:
    """The model's inputs, and the layers: neither inputs nor ``__getitem__`` that leads nowhere."""
    read_by: dict[str, set[str]] = {node: set() for node in nodes}
    fed: set[str] = set()
    for source, target in edges:
        read_by[source].add(target)
        fed.add(target)
    inputs = {
        name: node
        for name, node in nodes.items()
        if name not in fed and not node.parameters and (node.description.lower().startswith("input") or node.is_nothing)
    }
    layers = {name: node for name, node in nodes.items() if name not in inputs}
    while True:
        useless = [
            name
            for name, node in layers.items()
            if node.description.startswith(NOISE) and not read_by[name] & layers.keys()
        ]
        if not useless:
            return inputs, layers
        for name in useless:
            del layers[name]


def _layer(
    node: _Node, sources: list[str], nodes: Mapping[str, _Node], layers: Mapping[str, _Node], samples: int, kind: str
) -> dict[str, Any]:
    return {
        "name": node.name,
        "parameter_bytes": float(node.parameters),
        "output_bytes": float(node.output / samples),
        "activation_bytes": float(sum((nodes[source].output for source in sources), start=Fraction()) / samples),
        "times": {kind: {str(samples): [float(node.forward), float(node.backward)]}},
        "inputs": list(dict.fromkeys(_read_name(source, nodes, layers) for source in sources)) or [MODEL_INPUT],
    }


def _read_name(source: str, nodes: Mapping[str, _Node], layers: Mapping[str, _Node]) -> str:
    return nodes[source].name if source in layers else MODEL_INPUT
