"""All groups that the allowed devices form, which of them go together, and what does not depend on the microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.planner.groups.costs import Costs, Groups, class_order, ring_figures
from ignite_scheduler.planner.instance import Classes
from ignite_scheduler.planner.kernel import Ints
from ignite_scheduler.planner.request import Request

MOST_SETS: Final = 600
"""Multisets of devices that groups are listed of at most: nine distinct devices, or more of fewer kinds."""


class Pairs(NamedTuple):
    """What goes together.

    ``start[v] … start[v + 1]`` are the pairs of the multiset v with each group in it, ``group`` their groups, and
    ``number[v, g]`` the pair of v and g, −1 where g is not in v. ``link[e, d]`` numbers the pairs of groups that a
    pipeline may have one behind the other, −1 for the others.
    """

    start: Ints
    group: Ints
    number: Ints
    link: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Groups over classes of devices. ``usage[g]`` is the multiset of group g; ``allowed`` is by multiset."""

    classes: Classes
    groups: Groups
    usage: Ints
    pairs: Pairs
    allowed: npt.NDArray[np.bool_]
    held: Ints

    def devices_of(self, sequence: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
        """Ids of each stage's replicas for the groups of the stages, first stage first: members in order."""
        used = [0] * len(self.classes.members)
        found = []
        for g in sequence:
            ids = []
            for c in self.groups.members[g, : self.groups.size[g]]:
                ids.append(self.classes.members[c][used[c]])
                used[c] += 1
            found.append(tuple(ids))
        return tuple(found)

    def group_of(self, devices: tuple[str, ...]) -> int:
        """The group of these devices; −1 where it is none."""
        class_of = {device: c for c, members in enumerate(self.classes.members) for device in members}
        multiset = sum(int(self.classes.strides[class_of[device]]) for device in devices)
        return int(np.searchsorted(self.usage, multiset)) if multiset in self.usage else -1


def make_layout(request: Request, classes: Classes, costs: Costs) -> Layout:
    """The layout for what the request permits. O(multisets²)."""
    counts = classes.counts_of()
    held = counts.sum(axis=1)
    order = class_order(classes.devices, costs)
    usage, rows = [], []
    for multiset in range(1, len(counts)):
        members = [c for c in order for _ in range(int(counts[multiset, c]))]
        if _may_group(request, classes, members):
            usage.append(multiset)
            rows.append(members)
    width = max(map(len, rows), default=1)
    figures = [ring_figures(classes.latency, classes.per_byte, members) for members in rows]
    groups = Groups(
        members=np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64).reshape(-1, width),
        size=np.array([len(row) for row in rows], dtype=np.int64),
        base=np.zeros((len(rows), width), dtype=np.int64),
        ring_per_byte=np.array([per_byte for per_byte, _ in figures], dtype=np.float64),
        ring_latency=np.array([latency for _, latency in figures], dtype=np.float64),
        order=np.zeros((len(rows), costs.num_layers), dtype=np.int64),
    )
    uses = np.array(usage, dtype=np.int64)
    return Layout(
        classes=classes,
        groups=groups,
        usage=uses,
        pairs=_pairs(classes, counts, uses),
        allowed=_allowed(request, classes, counts),
        held=held,
    )


def _may_group(request: Request, classes: Classes, members: list[int]) -> bool:
    """Whether a stage may have these members, each linked with each other."""
    if request.replicas not in (None, len(members)) or len(members) > request.max_devices:
        return False
    return all(classes.latency[a, b] < np.inf for p, a in enumerate(members) for q, b in enumerate(members) if p != q)


def _pairs(classes: Classes, counts: Ints, usage: Ints) -> Pairs:
    held = counts[usage]
    inside = (held[None, :, :] <= counts[:, None, :]).all(axis=2)
    sets, group = np.nonzero(inside)
    index = np.full(inside.shape, -1, dtype=np.int64)
    index[sets, group] = np.arange(len(sets))
    linked = classes.latency < np.inf
    linked &= linked.T
    apart = held @ (~linked).astype(np.int64) @ held.T > 0
    together = (held[:, None, :] + held[None, :, :] <= classes.counts).all(axis=2) & ~apart
    link = np.full(together.shape, -1, dtype=np.int64)
    link[together] = np.arange(int(together.sum()))
    return Pairs(np.searchsorted(sets, np.arange(len(counts) + 1)).astype(np.int64), group, index, link)


def _allowed(request: Request, classes: Classes, counts: Ints) -> npt.NDArray[np.bool_]:
    """[multiset]: whether a finished plan may hold exactly these devices."""
    totals = counts.sum(axis=1)
    allowed = (totals >= request.min_devices) & (totals <= request.max_devices)
    if request.any_of:
        kinds = [device.kind for device in classes.devices]
        match = np.zeros(len(counts), dtype=bool)
        for wanted in request.any_of:
            same = np.ones(len(counts), dtype=bool)
            for kind in sorted({*kinds, *wanted}):
                own = counts[:, [c for c, name in enumerate(kinds) if name == kind]].sum(axis=1)
                same &= own == wanted.get(kind, 0)
            match |= same
        allowed &= match
    return np.ascontiguousarray(allowed)
