"""Layers of a branching model put together to atoms: what stage graphs are made of.

Two atoms may become one where no path between them leaves and comes back: if the second reads nothing but the first, or
the first is read by nothing but the second. Where that does not suffice, two that stand next to each other in a
topological order are put together. The graph of atoms so stays free of circles, and each layer is in one atom, by
construction. Light atoms with much data between them go first. All of this depends on positions only, so that a
canonical order of the layers (:func:`.dag.by_branch`) makes it independent of the profile's listing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ignite_scheduler.planner.graphs.dag import Tensor

Atoms = tuple[tuple[int, ...], ...]
"""Layers of each atom, rising; atoms in a topological order."""


def coarsened(
    work: Sequence[float], tensors: Sequence[Tensor], count: int, apart: Sequence[int] | None = None
) -> Atoms:
    """Some ``count`` atoms for layers that take ``work`` seconds, in a topological order of their graph.

    Layers with different numbers in ``apart`` are never put together; then there may be more atoms.
    """
    graph = _Quotient(work, tensors, apart)
    heap = [(graph.cost(a, b), a, b) for a in graph.alive() for b in sorted(graph.following[a])]
    heapq.heapify(heap)
    while graph.size > count and heap:
        cost, a, b = heapq.heappop(heap)
        if b not in graph.following.get(a, {}) or cost != graph.cost(a, b) or not graph.safe(a, b):
            continue
        for source, target in graph.merge(a, b):
            heapq.heappush(heap, (graph.cost(source, target), source, target))
    while graph.size > count:
        order = graph.order()
        pairs = [(a, b) for a, b in pairwise(order) if graph.together(a, b)]
        if not pairs:
            break
        graph.merge(*min(pairs, key=lambda pair: (graph.work[pair[0]] + graph.work[pair[1]], pair)))
    return tuple(tuple(sorted(graph.members[node])) for node in graph.order())


class _Quotient:
    """The graph of atoms while they grow; an atom is named by one of its layers."""

    def __init__(self, work: Sequence[float], tensors: Sequence[Tensor], apart: Sequence[int] | None) -> None:
        self.apart = apart
        self.work = {node: float(seconds) for node, seconds in enumerate(work)}
        self.members = {node: [node] for node in self.work}
        self.following: dict[int, dict[int, float]] = {node: {} for node in self.work}
        self.leading: dict[int, dict[int, float]] = {node: {} for node in self.work}
        for tensor in tensors:
            for reader, num_bytes in tensor.readers:
                self.following[tensor.producer][reader] = self.leading[reader][tensor.producer] = num_bytes
        self.mean_bytes = 1.0 + sum(map(_total, self.following.values())) / max(1, len(self.work))

    @property
    def size(self) -> int:
        return len(self.members)

    def alive(self) -> list[int]:
        return sorted(self.members)

    def cost(self, a: int, b: int) -> float:
        """What stands against putting the two together: their work, less where much goes from one to the other."""
        return (self.work[a] + self.work[b]) / (self.mean_bytes + self.following[a][b])

    def together(self, a: int, b: int) -> bool:
        return self.apart is None or self.apart[a] == self.apart[b]

    def safe(self, a: int, b: int) -> bool:
        """Whether the two may become one: no other path leads from the first to the second."""
        return self.together(a, b) and (len(self.leading[b]) == 1 or len(self.following[a]) == 1)

    def merge(self, a: int, b: int) -> list[tuple[int, int]]:
        """Put b into a; the edges whose cost or safety may be another now."""
        self.work[a] += self.work.pop(b)
        self.members[a] += self.members.pop(b)
        for own, other in ((self.following, self.leading), (self.leading, self.following)):
            for node, num_bytes in own.pop(b).items():
                del other[node][b]
                if node != a:
                    own[a][node] = other[node][a] = own[a].get(node, 0.0) + num_bytes
        touched = {a, *self.following[a], *self.leading[a]}
        edges = {(node, target) for node in touched for target in self.following[node]}
        edges |= {(source, node) for node in touched for source in self.leading[node]}
        return sorted(edges)

    def order(self) -> list[int]:
        """A topological order, first by the first of an atom's layers."""
        waiting = {node: len(sources) for node, sources in self.leading.items()}
        ready = [(min(self.members[node]), node) for node, count in waiting.items() if not count]
        heapq.heapify(ready)
        found = []
        while ready:
            _, node = heapq.heappop(ready)
            found.append(node)
            for target in self.following[node]:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, (min(self.members[target]), target))
        return found


def _total(edges: Mapping[int, float]) -> float:
    return sum(edges.values())
