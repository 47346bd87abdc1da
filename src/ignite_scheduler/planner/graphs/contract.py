"""A chain of many layers made short: blocks of layers in place of layers, for plans and for bounds.

Theory of operation
-------------------
Tables and search cost as much as the layers squared, and models of a thousand layers have hardly more good cuts than
those of a hundred. So cuts are permitted between *blocks* of neighbouring layers only.

:func:`contracted` is exact for the plans that cut there: prefix sums are read at the blocks' borders, tensors and tied
weights are those of the blocks.

:func:`loosened` bounds the plans that cut *anywhere*. Each of their cuts counts as one at the border where the block
that it cuts begins. Then

- the stage in front holds at least the layers before that border;
- the stage behind begins in the block and holds at least its last layer, so of its seconds those of the others are left
  out (``skipped_forward``, ``skipped_backward``); a stage that begins and ends in one block counts as empty;
- the bytes over the cut are at least the least over any cut in the block;
- memory: the stage fits if one that ends somewhere in the block and begins there would.

Every plan has such an image with the same devices, no action or message of which takes longer, all-reduces of tied
weights and updates left out. The timeline never falls when a duration grows, so that the image takes no longer, and
what the search proves of all images holds of all plans. The first block is one layer: no image begins behind it with
nothing in front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from ignite_scheduler.planner.kernel import Ints, Numbers

HALVINGS = 24
"""Steps of the bisection for the size of a block."""


def borders(numbers: Numbers, count: int) -> Ints:
    """First layers of about ``count`` blocks, and the number of layers: what plans of a long chain may cut at.

    No block takes longer than a share of the work that is found by bisection, unless it is one layer; of the borders
    that this leaves open the one over which the fewest bytes go is taken. Where cuts are demanded, at those only.
    """
    work = (numbers.forward[:, 0] + numbers.backward[:, 0]).min(axis=0).tolist()
    costs = [
        (not free, num_bytes)
        for free, num_bytes in zip(numbers.may_cut.tolist(), numbers.once_bytes.tolist(), strict=True)
    ]
    low, high = 0.0, work[-1]
    found = _blocks(work, costs, high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        blocks = _blocks(work, costs, middle)
        if len(blocks) > count:
            low = middle
        else:
            high, found = middle, blocks
    return np.array([*found, numbers.num_layers], dtype=np.int64)


def _blocks(work: list[float], costs: list[tuple[bool, float]], most: float) -> list[int]:
    """Where blocks of at most ``most`` seconds begin; the first is one layer."""
    found, begin, num_layers = [0], 1, len(work) - 1
    while begin < num_layers:
        if not costs[begin][0]:
            found.append(begin)
        last = max(begin + 1, bisect_right(work, work[begin] + most) - 1)
        if last >= num_layers:
            break
        first = min(max(begin + 1, bisect_left(work, work[begin] + most / 2)), last)
        least = min(costs[first : last + 1])
        begin = next(j for j in range(last, first - 1, -1) if costs[j] == least)
    return found


def contracted(numbers: Numbers, keep: Ints) -> Numbers:
    """The family with cuts at ``keep`` only, exactly as it is."""
    tensors, readers, reader_bytes = _tensors(numbers, keep)
    return _neat(
        _at_borders(numbers, keep)._replace(
            may_cut=numbers.may_cut[keep],
            single_bytes=numbers.single_bytes[keep],
            once_bytes=numbers.once_bytes[keep],
            tensors=np.array(tensors, dtype=np.int64).reshape(-1, 3),
            readers=np.array(readers, dtype=np.int64),
            reader_bytes=np.array(reader_bytes, dtype=np.float64),
            tied=np.where(numbers.tied >= 0, _block_of(keep, numbers.tied), -1),
            first_fit=np.searchsorted(keep, numbers.first_fit[:, :, keep], side="left"),
        )
    )


def loosened(numbers: Numbers, keep: Ints) -> Numbers:
    """A family whose best step time no plan of ``numbers`` goes below, wherever it cuts; for bounds only."""
    begins = np.append(keep[1:] - 1, numbers.num_layers)  # the last layer with which a stage that cuts a block begins
    within = [slice(first, last + 1) for first, last in zip(keep[:-1], begins[:-1], strict=True)]
    least = [float(np.where(numbers.may_cut[cut], numbers.once_bytes[cut], np.inf).min()) for cut in within]
    may_cut = [bool(numbers.may_cut[cut].any()) for cut in within]
    fit = _block_of(keep, numbers.first_fit)
    first_fit = np.stack([*(fit[:, :, cut].min(axis=2) for cut in within), fit[:, :, -1]], axis=2)
    once = np.array([*(0.0 if n == np.inf else n for n in least), 0.0])
    return _neat(
        _at_borders(numbers, keep)._replace(
            may_cut=np.array([*may_cut, False]),
            single_bytes=once,
            once_bytes=once,
            tensors=np.zeros((0, 3), np.int64),
            readers=np.zeros(0, np.int64),
            reader_bytes=np.zeros(0),
            tied=np.zeros((0, 1), np.int64),
            tied_bytes=np.zeros(0),
            update=np.zeros((len(numbers.counts), len(keep))),
            first_fit=first_fit,
            loose=True,
            skipped_forward=numbers.forward[:, :, begins] - numbers.forward[:, :, keep],
            skipped_backward=numbers.backward[:, :, begins] - numbers.backward[:, :, keep],
        )
    )


def _at_borders(numbers: Numbers, keep: Ints) -> Numbers:
    """Prefix sums at the borders."""
    return numbers._replace(
        num_layers=len(keep) - 1,
        forward=numbers.forward[:, :, keep],
        backward=numbers.backward[:, :, keep],
        update=numbers.update[:, keep],
        extra_front=numbers.extra_front[keep],
    )


def _block_of(keep: Ints, layers: Any) -> Any:
    return np.searchsorted(keep, layers, side="right") - 1


def _tensors(numbers: Numbers, keep: Ints) -> tuple[list[tuple[int, int, int]], list[int], list[float]]:
    """Tensors with several readers by block, each block with what its largest reader reads."""
    tensors: list[tuple[int, int, int]] = []
    readers: list[int] = []
    reader_bytes: list[float] = []
    for producer, first, last in numbers.tensors:
        own = int(_block_of(keep, producer))
        found: dict[int, float] = {}
        for reader in range(first, last):
            block = int(_block_of(keep, numbers.readers[reader]))
            found[block] = max(found.get(block, 0.0), float(numbers.reader_bytes[reader]))
        found.pop(own, None)
        if found:
            tensors.append((own, len(readers), len(readers) + len(found)))
            readers += sorted(found)
            reader_bytes += [found[block] for block in sorted(found)]
    return tensors, readers, reader_bytes


def _neat(numbers: Numbers) -> Numbers:
    """One memory layout for all: another would be compiled anew."""
    return Numbers._make(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in numbers)


def widened(first: Sequence[int], keep: Ints) -> tuple[int, ...]:
    """First layers of stages from first blocks."""
    return tuple(int(keep[block]) for block in first)
