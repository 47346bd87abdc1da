"""A bound for graphs of stages from the chain of those that a heavy path of layers visits.

Theory of operation
-------------------
Take a path of layers, the *trunk*. In any graph of stages those that hold a layer of it follow each other along one
path of stages, and each of them holds a run of the trunk: were a layer between two of its own elsewhere, stages would
feed each other in a circle. For the same reason the stage that holds the trunk from a to b holds every layer that is
behind a and before b. So its seconds are at least those of the layers up to b, less those of the layers that are not
behind a.

The *image* of a graph of stages is the chain of these stages. Under 1F1B a stage warms up by its depth, which falls by
one or more from each to the next; the image gets stages that hold nothing between them, in front of the next or at the
end, until its depths are the same. They are at most as many as the first has behind it, so that devices of the graph
are left for them. Messages, overheads, updates and memory are left out: empty stages must cost nothing.

No action of the image takes longer than in the graph, each waits for less, and it holds no more devices. So whatever
the exact search for chains proves of all images (:func:`ignite_scheduler.planner.solve.improve`) holds of all graphs of
stages. A cut in a block of the trunk counts as in :func:`.contract.loosened`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ignite_scheduler.planner.graphs.dag import Tensor, reach_of
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Floats, Ints, Numbers
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import NOTHING, improve

BLOCKS = 160
"""Blocks of the trunk that images are cut between."""

SHARES = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Shares of the best value that a bound is tried at, until one is not proven."""


def raised(
    setup: Setup, sketches: Sequence[tuple[float, Family, Arrays]], tensors: Sequence[Tensor], value: float, budget: int
) -> tuple[float, int]:
    """A value that no graph of stages of any of the families goes below, and the work that its proof took.

    ``sketches`` are the families with a bound that is known already; ``value`` is that of the best plan.
    """
    bounds = [bound for bound, _, _ in sketches]
    images = [images_of(setup, arrays, family, tensors, BLOCKS) for _, family, arrays in sketches]
    work = 0
    for share in SHARES:
        target = share * value
        for index, image in enumerate(images):
            if bounds[index] >= target:
                continue
            if work >= budget:
                return min(bounds), work
            found, spent, complete = improve(image, NOTHING, target, budget - work)
            work += spent
            if not complete:
                return min(bounds), work
            bounds[index] = max(bounds[index], min(target, found.value))
            if found.classes:  # the best image of all
                return min(bounds), work
    return min(bounds), work


def images_of(setup: Setup, arrays: Arrays, family: Family, tensors: Sequence[Tensor], count: int) -> Numbers:
    """All images of the family's graphs of stages, over about ``count`` blocks of the heaviest path of layers."""
    numbers = setup.numbers(family, arrays)
    size = numbers.num_layers
    reach = reach_of(size, [(tensor.producer, reader) for tensor in tensors for reader, _ in tensor.readers])
    np.fill_diagonal(reach, True)
    seconds = np.diff(arrays.forward[:, 0] + arrays.backward[:, 0], axis=1).min(axis=0)
    trunk = heaviest_path(seconds, tensors)
    begins = _blocks(np.array([float(seconds[reach[:, layer]].sum()) for layer in trunk]), count)
    last = trunk[np.append(begins[1:], len(trunk)) - 1]  # of each block
    layers = [np.diff(sums, axis=2) for sums in (arrays.forward, arrays.backward)]
    sums = [_at_blocks(each, reach[:, last].T, reach[last]) for each in layers]
    blocks = len(begins) + 1  # and one that is empty, for stages at the end
    zeros, links = np.zeros(len(numbers.counts)), np.zeros_like(numbers.latency)
    found = numbers._replace(
        num_layers=blocks,
        allowed=np.ones_like(numbers.allowed),
        may_cut=np.append(np.ones(blocks, dtype=bool), False),
        forward=sums[0][0],
        backward=sums[1][0],
        skipped_forward=sums[0][1],
        skipped_backward=sums[1][1],
        overhead=zeros,
        closing=zeros,
        update=np.zeros((len(zeros), blocks + 1)),
        latency=links,
        per_byte=links,
        single_bytes=np.zeros(blocks + 1),
        once_bytes=np.zeros(blocks + 1),
        tensors=np.zeros((0, 3), np.int64),
        readers=np.zeros(0, np.int64),
        reader_bytes=np.zeros(0),
        tied=np.zeros((0, 1), np.int64),
        tied_bytes=np.zeros(0),
        first_fit=np.zeros((*numbers.first_fit.shape[:2], blocks + 1), np.int64),
        extra_front=np.zeros(blocks + 1),
        shrinking=numbers.even,
        loose=True,
    )
    # one memory layout for all: another would be compiled anew
    return Numbers._make(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in found)


def heaviest_path(seconds: Floats, tensors: Sequence[Tensor]) -> Ints:
    """Layers of the path through the model that takes longest; layers stand in a topological order."""
    longest, before = seconds.copy(), np.full(len(seconds), -1)
    for tensor in tensors:  # by producer: what leads to it is known
        for reader, _ in tensor.readers:
            if longest[tensor.producer] + seconds[reader] > longest[reader]:
                longest[reader] = longest[tensor.producer] + seconds[reader]
                before[reader] = tensor.producer
    path = [int(longest.argmax())]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])


def _blocks(until: Floats, count: int) -> Ints:
    """First places on the trunk of blocks that grow by about equal seconds; the first block is one layer."""
    part = np.floor(count * (until - until[0]) / max(float(until[-1] - until[0]), 1e-300))
    starts = np.flatnonzero(np.diff(np.minimum(part, count - 1))) + 1
    return np.unique(np.concatenate(([0], starts, [1] if len(until) > 1 else []))).astype(np.int64)


def _at_blocks(seconds: Floats, before: Any, behind: Any) -> tuple[Floats, Floats]:
    """[class, full or last, block]: seconds up to the block, and what a stage that begins in it does not count.

    ``seconds`` are those of the layers; ``before`` and ``behind`` [block, layer] say which lead to the block's last
    layer and which come from it, that layer among them.
    """
    up = np.concatenate([np.zeros((*seconds.shape[:2], 1)), seconds @ before.T.astype(float)], axis=2)
    elsewhere = seconds @ (~behind).T.astype(float)
    skipped = np.concatenate([elsewhere - up[:, :, :-1], np.zeros((*seconds.shape[:2], 2))], axis=2)
    return np.concatenate([up, up[:, :, -1:]], axis=2), skipped
