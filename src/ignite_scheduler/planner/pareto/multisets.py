"""Problems cut down to given numbers of devices of each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ignite_scheduler.planner.instance import Classes
from ignite_scheduler.planner.kernel import Ints, Numbers
from ignite_scheduler.planner.solve import Choice

Counts = tuple[int, ...]
"""Devices of each class."""


def by_size(setup_counts: Ints, allowed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[Counts]:
    """The permitted multisets, fewest devices first."""
    rows = setup_counts[allowed]
    order = np.lexsort((*rows.T, rows.sum(axis=1)))
    return [tuple(int(count) for count in row) for row in rows[order]]


def restricted(
    numbers: Numbers, counts: Sequence[int], order: Sequence[int] | None = None, *, listed: bool = True
) -> Numbers:
    """The same family on exactly ``counts`` devices of each class.

    Only classes that are used stay, in the order of ``order`` (class numbers; None: as they are). Members are ranked
    by that order, so that nothing depends on the ids of devices. ``listed`` numbers the parts of the multiset, which
    tables are made over; without it a part's number is its size, as on wide clusters.
    """
    kept = np.array(used(counts) if order is None else list(order), dtype=np.int64)
    left = np.array([counts[c] for c in kept], dtype=np.int64)
    sizes = left + 1
    strides = np.ones(len(left), dtype=np.int64)
    num_used: Ints = np.zeros(0, dtype=np.int64)
    allowed = np.zeros(int(left.sum()) + 1, dtype=np.bool_)
    if listed:
        strides = np.concatenate(([1], np.cumprod(sizes[:-1]))).astype(np.int64)
        sets = np.arange(int(np.prod(sizes)))
        num_used = ((sets[:, None] // strides) % sizes).sum(axis=1)
        allowed = np.zeros(len(sets), dtype=np.bool_)
    allowed[-1] = True
    ranks = np.full((len(kept), int(left.max())), -1, dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(left)))
    for k, count in enumerate(left):
        ranks[k, :count] = np.arange(starts[k], starts[k] + count)
    return numbers._replace(
        max_stages=int(left.sum()),
        counts=left,
        strides=strides,
        member_rank=ranks,
        allowed=allowed,
        num_used=num_used,
        forward=np.ascontiguousarray(numbers.forward[kept]),
        backward=np.ascontiguousarray(numbers.backward[kept]),
        overhead=numbers.overhead[kept],
        update=np.ascontiguousarray(numbers.update[kept]),
        closing=numbers.closing[kept],
        latency=np.ascontiguousarray(numbers.latency[kept[:, None], kept]),
        per_byte=np.ascontiguousarray(numbers.per_byte[kept[:, None], kept]),
        first_fit=np.ascontiguousarray(numbers.first_fit[kept]),
        rate=numbers.rate[kept],
        extra=numbers.extra[kept],
        price=numbers.price[kept],
    )


def used(counts: Sequence[int]) -> list[int]:
    """Classes of which there are devices."""
    return [c for c, count in enumerate(counts) if count > 0]


def in_whole(choice: Choice, order: Sequence[int]) -> Choice:
    """A choice on a restricted problem in the class numbers of the whole one."""
    return choice._replace(classes=tuple(order[c] for c in choice.classes))


def price_of(classes: Classes, counts: Sequence[int]) -> float:
    """Money per second of a multiset; prices that are unknown count 0."""
    return sum((device.price or 0.0) * count for device, count in zip(classes.devices, counts, strict=True))
