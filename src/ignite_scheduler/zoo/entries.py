"""What a name of the zoo stands for, as plain data. Needs no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitableData:
    """A data set of the zoo that suits a model: its name, and which argument of the model gives which of its own."""

    name: str
    args: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Number of parameters that others state for a model, and who does; ``exact`` = to the last one, not rounded."""

    parameters: int
    source: str
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name of the zoo.

    ``args`` maps each argument to its default, whose type is also the type that is accepted. ``target`` is the
    ``module:attribute`` that is called with them. A model names the data and the loss on which it is measured where
    nothing else is said, and what was published of it with these very arguments.
    """

    name: str
    description: str
    target: str
    args: Mapping[str, Any] = field(default_factory=dict)
    data: SuitableData | None = None
    loss: str = "cross_entropy"
    published: Published | None = None


HERE = "ignite_scheduler.zoo"


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The end of a message about a name that is unknown: the nearest ones, or nothing where none is as near as that."""
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=likeness)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def index(*entries: Entry) -> dict[str, Entry]:
    """The entries by their names."""
    return {entry.name: entry for entry in entries}
