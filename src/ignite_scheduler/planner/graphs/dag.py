"""The graph of a model's layers in numbers: who reads what, orders that do not depend on the listing, reachability."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ignite_scheduler.model import MODEL_INPUT, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One layer's output and who reads how many bytes a sample of it: (layer, bytes), rising."""

    producer: int
    readers: tuple[tuple[int, float], ...]


def tensors_of(profile: Profile) -> tuple[Tensor, ...]:
    """The tensors of the profile that any layer reads, by producer; positions are those of the profile."""
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    read: dict[int, dict[int, float]] = {}
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source != MODEL_INPUT:
                producer = position[edge.source]
                num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
                found = read.setdefault(producer, {})
                found[index] = max(found.get(index, 0.0), num_bytes)
    return tuple(
        Tensor(producer=producer, readers=tuple(sorted(found.items()))) for producer, found in sorted(read.items())
    )


def branches(profile: Profile) -> bool:
    """Whether the model is more than one line of layers, each of which reads the one before."""
    return any(
        [edge.source for edge in layer.inputs] != [profile.layers[index - 1].name if index else MODEL_INPUT]
        for index, layer in enumerate(profile.layers)
    )


def by_branch(profile: Profile) -> tuple[int, ...]:
    """Positions of the layers in an order that finishes a branch before it begins another.

    Next comes, of the layers whose inputs are all there, the one that reads what was made last; of equals the first by
    name. So the order depends on the graph and on names, not on the order of the listing. O(edges · log layers).
    """
    return _ordered(profile, lambda sources, live: (-max(sources, default=-1), live))


def by_live_bytes(profile: Profile) -> tuple[int, ...]:
    """Positions of the layers in an order that adds the least bytes to what later layers still read.

    Greedy: next comes the layer after which the fewest bytes are live, of equals the one that reads what was made last,
    then the first by name.
    """
    return _ordered(profile, lambda sources, live: (live, -max(sources, default=-1)))


_Key = Callable[[Sequence[int], float], tuple[float, float]]


def _ordered(profile: Profile, key: _Key) -> tuple[int, ...]:
    """A topological order by least key of (places of what a layer reads, change of live bytes), then by name."""
    tensors = tensors_of(profile)
    size = len(profile.layers)
    sources: list[list[int]] = [[] for _ in range(size)]
    readers: list[list[int]] = [[] for _ in range(size)]
    unread = {tensor.producer: len(tensor.readers) for tensor in tensors}
    num_bytes = {tensor.producer: max(n for _, n in tensor.readers) for tensor in tensors}
    for tensor in tensors:
        for reader, _ in tensor.readers:
            sources[reader].append(tensor.producer)
            readers[tensor.producer].append(reader)
    waiting = [len(found) for found in sources]
    place: dict[int, int] = {}

    def rank(index: int) -> tuple[float, float, str, int]:
        # fsum: the order in which they are listed must not show
        freed = math.fsum(num_bytes[source] for source in sources[index] if unread[source] == 1)
        live = num_bytes.get(index, 0.0) - freed
        places = [place[source] for source in sources[index]]
        return *key(places, live), profile.layers[index].name, index

    heap = [rank(index) for index in range(size) if not waiting[index]]
    heapq.heapify(heap)
    while heap:
        found = heapq.heappop(heap)
        index = found[-1]
        if index in place:
            continue
        if rank(index) != found:  # a tensor that it reads has had other readers since
            heapq.heappush(heap, rank(index))
            continue
        place[index] = len(place)
        for source in sources[index]:
            unread[source] -= 1
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(heap, rank(reader))
        for source in sources[index]:  # freeing it may be worth more now
            if unread[source] == 1:
                for reader in readers[source]:
                    if reader not in place and not waiting[reader]:
                        heapq.heappush(heap, rank(reader))
    return tuple(sorted(place, key=place.__getitem__))


def reordered(profile: Profile, order: Sequence[int]) -> Profile:
    """The profile with its layers in ``order`` (positions), a topological one."""
    return replace(profile, layers=tuple(profile.layers[index] for index in order))


def reach_of(size: int, edges: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """[a, b]: whether a path leads from a to b, a ≠ b; nodes stand in a topological order. O(nodes · edges ÷ 8)."""
    reach = np.zeros((size, size), dtype=bool)
    for source, target in sorted(edges, key=lambda edge: -edge[0]):
        reach[source, target] = True
        reach[source] |= reach[target]
    return reach
