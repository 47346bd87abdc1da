"""Branches of a model's graph, and first graphs of stages that put them side by side.

Theory of operation
-------------------
*Decomposition.* In a set of atoms those that lead to or come from all others stand in line; what lies between two of
them falls into parts without a path between them: the branches, which are decomposed in turn. A set that has neither
is taken as one line.

*Packing.* Under a cap on the seconds of a stage and an order of devices, the decomposition is walked in order. Atoms
go on the open stage until it is full; where branches follow that are large enough, each begins a stage of its own (the
small ones share), and what comes after them goes on behind the last. Caps, orders and what is large enough are tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ignite_scheduler.planner.graphs.field import Field
from ignite_scheduler.planner.kernel import Floats, Ints

CAPS = 14
"""Caps on the seconds of a stage that are tried for each order of devices."""

LARGE = (0.25, 0.6)
"""Share of the cap from which on a branch may get stages of its own."""


@dataclass(frozen=True, slots=True)
class Line:
    """Atoms and forks, one after the other."""

    items: tuple[int | Fork, ...]

    def atoms(self) -> tuple[int, ...]:
        """All atoms in it, in order."""
        return tuple(atom for item in self.items for atom in ((item,) if isinstance(item, int) else item.atoms()))


@dataclass(frozen=True, slots=True)
class Fork:
    """Branches without a path between them."""

    branches: tuple[Line, ...]

    def atoms(self) -> tuple[int, ...]:
        """All atoms in it, branch by branch."""
        return tuple(atom for branch in self.branches for atom in branch.atoms())


def decomposed(reach: np.ndarray, atoms: Sequence[int]) -> Line:
    """The atoms (in a topological order) as a line of atoms and forks."""
    chosen = np.array(atoms, dtype=np.int64)
    inside = reach[np.ix_(chosen, chosen)]
    related = inside | inside.T
    in_line = related.sum(axis=1) == len(chosen) - 1
    items: list[int | Fork] = []
    run: list[int] = []
    for index, atom in enumerate(atoms):
        if in_line[index]:
            items += _fork(reach, run, len(atoms))
            items.append(atom)
            run = []
        else:
            run.append(atom)
    items += _fork(reach, run, len(atoms))
    return Line(tuple(items))


def _fork(reach: np.ndarray, run: Sequence[int], size: int) -> list[int | Fork]:
    """What stands between two atoms in line: branches, or the atoms themselves where they hang together."""
    if not run:
        return []
    parts = _components(reach, run)
    if len(parts) > 1:
        return [Fork(tuple(decomposed(reach, part) for part in parts))]
    return list(decomposed(reach, run).items) if len(run) < size else list(run)


def _components(reach: np.ndarray, atoms: Sequence[int]) -> list[list[int]]:
    """Atoms that paths join, in whatever direction."""
    left = list(atoms)
    found = []
    while left:
        part, rest = [left[0]], left[1:]
        for atom in part:  # grows while it is walked
            near = [other for other in rest if reach[atom, other] or reach[other, atom]]
            part += near
            rest = [other for other in rest if other not in near]
        found.append(sorted(part))
        left = rest
    return found


def parts_of(line: Line, size: int) -> np.ndarray:
    """[part, atom]: every branch in the line at any depth."""
    rows = []
    for branch in _branches(line):
        row = np.zeros(size, dtype=bool)
        row[list(branch.atoms())] = True
        rows.append(row)
    return np.array(rows, dtype=bool).reshape(-1, size)


def _branches(line: Line) -> Iterator[Line]:
    for item in line.items:
        if isinstance(item, Fork):
            for branch in item.branches:
                yield branch
                yield from _branches(branch)


def starts(field: Field, line: Line) -> Iterator[tuple[Ints, Ints, int]]:
    """First graphs of stages: stage of each atom, device of each stage, number of stages."""
    work = field.forward[:, 0] + field.backward[:, 0]
    for devices in device_orders(field, work):
        total = float(work.min(axis=0).sum()) or 1.0  # where no layer takes any time
        for cap in np.geomspace(total / len(devices) / 2, total * 1.01, CAPS):
            for large in (np.inf, *LARGE):
                found = _Packing(field, work, devices, float(cap), large).packed(line)
                if found is not None:
                    yield found


def device_orders(field: Field, work: Floats) -> list[tuple[int, ...]]:
    """Orders in which stages get their devices: fast ones first, last, and by links from the fastest."""
    seconds = work.sum(axis=1)
    every = range(len(seconds))
    fast = sorted(every, key=lambda d: (seconds[d], d))
    chained = [fast[0]]
    while len(chained) < len(seconds):
        last = chained[-1]
        left = [d for d in every if d not in chained]
        chained.append(min(left, key=lambda d: (field.per_byte[last, d], field.latency[last, d], seconds[d], d)))
    return list(dict.fromkeys([tuple(fast), tuple(reversed(fast)), tuple(chained), tuple(reversed(chained))]))


class _Packing:
    """One walk over the decomposition."""

    def __init__(self, field: Field, work: Floats, devices: Sequence[int], cap: float, large: float) -> None:
        self.work, self.devices, self.cap, self.large = work, devices, cap, large
        self.most = min(field.max_stages, len(devices))
        self.stage_of = np.zeros(work.shape[1], dtype=np.int64)
        self.loads: list[float] = []

    def packed(self, line: Line) -> tuple[Ints, Ints, int] | None:
        self._open()
        self._walk(line, 0)
        n = len(self.loads)
        if n > self.most:
            return None
        device_of = np.zeros(self.most, dtype=np.int64)
        device_of[:n] = self.devices[:n]
        return self.stage_of, device_of, n

    def _open(self) -> int:
        self.loads.append(0.0)
        return len(self.loads) - 1

    def _seconds(self, stage: int, atom: int) -> float:
        return float(self.work[self.devices[min(stage, self.most - 1)], atom])

    def _walk(self, line: Line, stage: int) -> int:
        """Put the line on ``stage`` and on new ones behind it; the last of them."""
        for item in line.items:
            if isinstance(item, Fork) and self.large < np.inf:
                stage = self._spread(item, stage)
            else:
                for atom in (item,) if isinstance(item, int) else item.atoms():
                    stage = self._put(atom, stage)
        return stage

    def _put(self, atom: int, stage: int) -> int:
        seconds = self._seconds(stage, atom)
        if self.loads[stage] > 0 and self.loads[stage] + seconds > self.cap:
            stage = self._open()
            seconds = self._seconds(stage, atom)
        self.stage_of[atom] = stage
        self.loads[stage] += seconds
        return stage

    def _spread(self, fork: Fork, stage: int) -> int:
        """Put branches side by side, the small ones one after the other; the stage where what follows goes on."""
        sizes = [sum(self._seconds(stage, atom) for atom in branch.atoms()) for branch in fork.branches]
        large = [index for index, size in enumerate(sizes) if size >= self.large * self.cap]
        if len(large) < 2:
            for branch in fork.branches:
                stage = self._walk(branch, stage)
            return stage
        small = [index for index in range(len(sizes)) if index not in large]
        ends = []
        for position, index in enumerate(large):
            begin = stage if position == 0 and self.loads[stage] == 0 else self._open()
            ends.append(self._walk(fork.branches[index], begin))
        for index in small:
            least = min(range(len(ends)), key=lambda at: (self.loads[ends[at]], at))
            ends[least] = self._walk(fork.branches[index], ends[least])
        return min(ends, key=lambda end: (self.loads[end], end))
