"""Multisets of devices by what they are instead of by whose they are: what was solved for one holds for its like.

Two multisets are alike if their classes can be put in such an order that figures, counts and links agree. The order is
made from the figures and links themselves; where it leaves a choice, like multisets may be told apart, which costs a
search but is never wrong, since the whole of figures and links is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Device
from ignite_scheduler.planner.instance import Classes
from ignite_scheduler.planner.pareto.multisets import used

Look = tuple[Any, ...]
"""The figures of a device, without its names, so that they can be sorted."""


class Key(NamedTuple):
    """A multiset: figures and number of devices by class, and the links from each class to each."""

    looks: tuple[Look, ...]
    counts: tuple[int, ...]
    links: tuple[tuple[float, float], ...]


def look_of(device: Device) -> Look:
    """The figures of a device; unknown ones are −1."""
    values = []
    for one in fields(device):
        if one.name in ("id", "node"):
            continue
        value = getattr(device, one.name)
        values.append(-1 if value is None else tuple(sorted(value)) if isinstance(value, frozenset) else value)
    return tuple(values)


def looks_of(classes: Classes) -> tuple[Look, ...]:
    """The figures of each class."""
    return tuple(look_of(device) for device in classes.devices)


def keyed(classes: Classes, looks: Sequence[Look], counts: Sequence[int]) -> tuple[Key, tuple[int, ...]]:
    """The key of a multiset, and its classes in the order of the key."""
    held = used(counts)
    first = {c: (looks[c], counts[c]) for c in held}

    def link(c: int, d: int) -> tuple[float, float]:
        if c == d and counts[c] == 1:
            return 0.0, 0.0  # no two devices of the class are held
        return float(classes.latency[c, d]), float(classes.per_byte[c, d])

    def links(c: int) -> tuple[Any, ...]:
        return tuple(sorted((first[d], d == c, *link(c, d), *link(d, c)) for d in held))

    order = tuple(sorted(held, key=lambda c: (first[c], links(c), c)))
    return (
        Key(
            tuple(looks[c] for c in order),
            tuple(counts[c] for c in order),
            tuple(link(c, d) for c in order for d in order),
        ),
        order,
    )


def slots(classes: Classes, order: Sequence[int], counts: Sequence[int]) -> dict[str, str]:
    """Slot → id of the device that stands in it: slot ``k/m`` is the m-th device of the k-th class of the order."""
    return {f"{k}/{m}": classes.members[c][m] for k, c in enumerate(order) for m in range(counts[c])}


def renamed(assignment: Assignment, names: Mapping[str, str]) -> Assignment:
    """The assignment on other devices."""
    stages = tuple(replace(stage, devices=tuple(names[name] for name in stage.devices)) for stage in assignment.stages)
    return replace(assignment, stages=stages)
