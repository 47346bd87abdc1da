"""What the readers of foreign profiles share: the file as found, what the user chose, the result with its assumptions.

Numbers are moved between units in decimal, not by a float factor, so that what is written and read back is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign.shapes import GraphEdge, GraphNode
from ignite_scheduler.formats.profile import PROFILE_SCHEMA, parse_profile
from ignite_scheduler.formats.source import Source
from ignite_scheduler.model import MODEL_INPUT, Profile

REFERENCE: Final = "reference"
"""Kind under which times stand where a file does not name the device that was profiled."""

BACKWARD_RATIO: Final = 2.0
"""Backward ÷ forward where only the forward pass was measured: a layer's backward computes two products of the
forward's size, one for the gradient of its input and one for that of its weights."""

NOTICEABLE: Final = 0.01
"""Share of a model's forward from which on the time of a node that reads nothing is pointed at."""

MILLI: Final = -3
"""Decimal places from milliseconds to seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a person may say about a file that the file does not; None = the format's own rule.

    ``samples`` of the microbatch that was profiled, ``kind`` of device that was profiled, ``tensor_parallel`` degree to
    take, ``time_unit`` of the file (``s`` or ``ms``), ``backward_ratio`` = backward ÷ forward where only the forward
    was measured, ``edge_bandwidth`` in bytes/s with which a transfer's time becomes bytes, ``inputs``: names of nodes
    that are the model's inputs, no layers.
    """

    samples: int | None = None
    kind: str | None = None
    tensor_parallel: int | None = None
    time_unit: str | None = None
    backward_ratio: float | None = None
    edge_bandwidth: float | None = None
    inputs: tuple[str, ...] = ()

    def given(self) -> frozenset[str]:
        """Names of what was said."""
        return frozenset(name for name in CHOICES if getattr(self, name) not in (None, ()))


CHOICES: Final = ("samples", "kind", "tensor_parallel", "time_unit", "backward_ratio", "edge_bandwidth", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file or folder as it lies there: ``text`` and, where that is JSON, ``source``; both None for a folder."""

    path: Path
    text: str | None = None
    source: Source | None = None

    @property
    def data(self) -> Any:
        """The plain data of a JSON file; None otherwise."""
        return None if self.source is None else self.source.data

    @property
    def file(self) -> str:
        """The path as the user gave it."""
        return str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A foreign profile in our form. ``assumptions`` and ``warnings`` also stand in the profile's provenance."""

    profile: Profile
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFormat:
    """A format that can be imported: how to know it, how to read it, and which :class:`Choices` it asks for."""

    name: str
    title: str
    recognises: Callable[[Found], bool]
    read: Callable[[Found, Choices], Imported]
    choices: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Notes:
    """What a reader says of its work as it goes."""

    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def assume(self, text: str) -> None:
        """Something that the file does not say and that was decided here."""
        self.assumptions.append(text)

    def warn(self, text: str) -> None:
        """Something that a person should look at."""
        self.warnings.append(text)


def imported(
    found: Found,
    notes: Notes,
    *,
    form: str,
    title: str,
    layers: Sequence[Mapping[str, Any]],
    reference: str | None,
    name: str | None = None,
    precision: str = "fp32",
    provenance: Mapping[str, Any] | None = None,
) -> Imported:
    """The result, read through our own format's reader so that it obeys every rule of a profile.

    ``name`` is the model's; None = the file's up to its first dot.

    Raises
    ------
    DocumentError
        There is no layer, or a figure or the graph breaks a rule; the message has the foreign file.
    """
    if not layers:
        raise DocumentError("expected at least one layer, found none", file=found.file)
    document: dict[str, Any] = {
        "schema": PROFILE_SCHEMA,
        "name": found.path.name.partition(".")[0] if name is None else name,
        "precision": precision,
        "layers": list(layers),
        "provenance": {
            "origin": f"imported from {found.path.name} ({title})",
            "format": form,
            **(provenance or {}),
            "assumptions": list(notes.assumptions),
            **({"warnings": list(notes.warnings)} if notes.warnings else {}),
        },
    }
    if reference is not None:
        document["reference"] = reference
    try:
        profile = parse_profile(document)
    except DocumentError as error:
        raise DocumentError(error.message, file=found.file, field=error.field) from None
    return Imported(profile=profile, assumptions=tuple(notes.assumptions), warnings=tuple(notes.warnings))


def positions(source: Source, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> dict[int, int]:
    """Id of a node of a JSON graph → its place in the file.

    Raises
    ------
    DocumentError
        An id is there twice, or an edge names one that is no node's.
    """
    found: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if node.id in found:
            raise source.error(("nodes", index, "id"), f"the node {node.id} is there twice")
        found[node.id] = index
    for index, edge in enumerate(edges):
        for key, end in (("sourceId", edge.source), ("destId", edge.target)):
            if end not in found:
                raise source.error(("edges", index, key), f"the edge names {end}, which is no node")
    return found


def without_inputs(
    found: Found, notes: Notes, choices: Choices, layers: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The layers without those that are said to be the model's inputs; a warning of others that look like it.

    PipeDream's ``Input`` nodes hold the time of loading data. In graphs that other planners made from its files they
    have lost that name: what is left is a node that reads nothing, has time but no parameters, and no backward pass.
    """
    first = [
        str(layer["name"]) for layer in layers if layer["inputs"] == [MODEL_INPUT] and not layer["parameter_bytes"]
    ]
    for name in choices.inputs:
        if name not in first:
            raise InputError(
                f"--input {name}: expected a node of {found.file} that reads nothing and has no parameters"
                + (f": {', '.join(first)}" if first else ", there is none")
            )
    whole = sum(map(_seconds, layers))
    kept: list[Mapping[str, Any]] = []
    for layer in layers:
        if layer["name"] in choices.inputs:
            notes.assume(f"{layer['name']}: an input of the model, no layer; its {_seconds(layer):g} s are left out")
            continue
        if layer["name"] in first and _seconds(layer) > NOTICEABLE * whole:
            notes.warn(
                f"{layer['name']} reads nothing and has no parameters: its {_seconds(layer):g} s may be those of "
                f"loading data, as in PipeDream's Input nodes; if so say --input {layer['name']}"
            )
        read = [MODEL_INPUT if _source(edge) in choices.inputs else edge for edge in layer["inputs"]]
        kept.append({**layer, "inputs": [edge for index, edge in enumerate(read) if edge not in read[:index]]})
    return kept


def _seconds(layer: Mapping[str, Any]) -> float:
    """The forward of one size on the first kind."""
    rows = next(iter(layer["times"].values()))
    return float(next(iter(rows.values()))[0])


def _source(edge: Any) -> Any:
    return edge["from"] if isinstance(edge, dict) else edge


def shifted(value: float, places: int) -> float:
    """``value`` × 10^places, moved in decimal: the nearest float to what is written.

    >>> shifted(0.539, -3), 0.539 * 1e-3
    (0.000539, 0.0005390000000000001)
    """
    return float(Decimal(repr(float(value))).scaleb(places))


def total(*values: float) -> float:
    """The sum in decimal, rounded once: ``total(r, -v)`` undoes ``r = total(v, f)`` for figures as people write them.

    >>> total(0.1, 0.2), 0.1 + 0.2
    (0.3, 0.30000000000000004)
    """
    return float(sum((Decimal(repr(float(value))) for value in values), start=Decimal()))


def exact(text: str) -> Fraction:
    """The number that is written, exactly.

    Raises
    ------
    ValueError
        No finite number of at least 0 that fits a profile.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"no number: {text!r}") from None
    if not number.is_finite() or number < 0 or (number and not -400 < number.adjusted() < 40):
        raise ValueError(f"no finite number of at least 0: {text!r}")
    return Fraction(number)


def per_sample(value: float, samples: int) -> float:
    """Bytes of one sample where ``value`` are those of ``samples``, rounded once."""
    return float(Fraction(value) / samples)


def of_samples(value: float, samples: int) -> float:
    """Bytes of ``samples`` samples from those of one, such that :func:`per_sample` gives ``value`` again if it can."""
    product = value * samples
    near = (product, math.nextafter(product, math.inf), math.nextafter(product, 0.0))
    return next((number for number in near if per_sample(number, samples) == value), product)


def assume_minibatch(notes: Notes, samples: int, units: str) -> None:
    """Say how many samples the profiled minibatch is taken to have, and in what units the file's figures are."""
    count = f"{samples} samples" if samples > 1 else "one sample (say --samples if you know them)"
    notes.assume(f"the profiled minibatch counts as {count}; {units}")


def json_files(folder: Path) -> list[Path]:
    """The JSON files that lie in a folder, by name."""
    return sorted(path for path in folder.glob("*.json") if path.is_file())


def backward_of(forward: float, choices: Choices) -> float:
    """Seconds assumed for a backward pass that nobody measured."""
    return forward * (BACKWARD_RATIO if choices.backward_ratio is None else choices.backward_ratio)


def assume_backward(notes: Notes, choices: Choices) -> None:
    """Say what :func:`backward_of` assumes."""
    ratio = BACKWARD_RATIO if choices.backward_ratio is None else choices.backward_ratio
    notes.warn(
        f"inference only: no backward pass was measured; each layer's backward is taken as {ratio:g} × its forward "
        "(--backward-ratio changes that; 0 plans inference alone)"
    )


def unique_names(names: Sequence[str], ids: Sequence[object]) -> list[str]:
    """``names`` where they tell all layers apart, otherwise each with its id in front."""
    if len(set(names)) == len(names) and "input" not in names:
        return list(names)
    return [f"{own} {name}".strip() for own, name in zip(ids, names, strict=True)]
