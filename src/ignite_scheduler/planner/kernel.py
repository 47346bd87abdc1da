"""Exact step time of a straight pipeline, compiled: the inner loop of the search.

Theory of operation
-------------------
The order of actions is not defined here: it comes as arrays from :func:`ignite_scheduler.pipeline.make_schedule`.
Stages are numbered by their distance ``q`` from the end (0 = last stage), since under both schedules what a stage does
depends only on that distance. One order for the deepest pipeline, filtered to ``q < n``, is then the order of every
shorter one, and the timeline of a *suffix* of stages does not change when stages are put in front of it, apart from
later arrivals.

All microbatches take equal time but the last, which may be smaller: every duration is a pair (full, last).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.planner.compiled import compiled, inlined

NEVER: Final = -1e30
"""A time so early that adding a duration does not change it."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Numbers(NamedTuple):
    """Everything that the compiled functions need of one family, in one record.

    Parameters
    ----------
    counts, strides, member_rank
        Devices of each class, stride of the class in a multiset's number, rank of each member among all ids.
    allowed
        [multiset]: whether a finished plan may use exactly these devices.
    num_used
        [multiset]: number of devices.
    may_cut
        [layer]: whether a stage may begin there.
    forward, backward
        [class, full or last, layer]: prefix sums of seconds.
    overhead
        [class]: seconds on top of every action.
    update
        [class, layer]: prefix sums of the optimizer's seconds.
    closing
        [class]: seconds on top of the update of every stage.
    latency, per_byte
        [class, class]: of the link from the first to the second; infinite latency where there is none.
    sizes
        Samples of a full and of the last microbatch.
    single_bytes, once_bytes, tensors, readers, reader_bytes
        Bytes over cuts, see :class:`ignite_scheduler.planner.instance.Model`.
    tied, tied_bytes
        [group, member] layer indices (−1: none) and bytes to reduce.
    first_fit
        [class, stages to the end, end layer]: first layer with which a stage fits the memory.
    order_start, order_stage, order_kind, order_microbatch
        Orders of actions by number of stages, see :class:`ignite_scheduler.planner.orders.Orders`.
    base_rate, rate, extra, extra_front
        Objective ``(base_rate + Σ rate[class]) · step + Σ extra[class] · busy``; ``extra_front[j]`` is the least extra
        of the layers before j.
    price
        [class]: money per second, for ties only.
    even, shrinking, gpipe
        Whether all microbatches are equal; whether nothing takes longer for the last one; whether the schedule is
        GPipe (else 1F1B).
    loose, skipped_forward, skipped_backward
        Whether stages may be empty, and if so [class, full or last, layer] seconds that a stage which begins there does
        not count: bounds on chains of many layers (:mod:`ignite_scheduler.planner.graphs.contract`).
    """

    num_layers: int
    num_microbatches: int
    max_stages: int
    counts: Ints
    strides: Ints
    member_rank: Ints
    allowed: npt.NDArray[np.bool_]
    num_used: Ints
    may_cut: npt.NDArray[np.bool_]
    forward: Floats
    backward: Floats
    overhead: Floats
    update: Floats
    closing: Floats
    latency: Floats
    per_byte: Floats
    sizes: Floats
    single_bytes: Floats
    once_bytes: Floats
    tensors: Ints
    readers: Ints
    reader_bytes: Floats
    tied: Ints
    tied_bytes: Floats
    first_fit: Ints
    order_start: Ints
    order_stage: npt.NDArray[np.int32]
    order_kind: npt.NDArray[np.int8]
    order_microbatch: npt.NDArray[np.int32]
    base_rate: float
    rate: Floats
    extra: Floats
    extra_front: Floats
    price: Floats
    even: bool
    shrinking: bool
    gpipe: bool
    loose: bool = False
    skipped_forward: Floats = np.zeros((0, 0, 0))
    skipped_backward: Floats = np.zeros((0, 0, 0))


class Room(NamedTuple):
    """A pipeline by distance from the end, and scratch of the kernel; one per running search."""

    classes: Ints
    first: Ints
    forward: Floats
    backward: Floats
    link_forward: Floats
    link_backward: Floats
    finish: Floats
    arrived: Floats
    returned: Floats
    free: Floats
    wire: Floats
    ready: Floats
    holds: npt.NDArray[np.bool_]


@compiled
def make_room(max_stages: int, num_microbatches: int) -> Any:
    """Empty room for pipelines of up to ``max_stages``."""
    size = max_stages + 1
    return Room(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros((size, 2)),
        np.zeros((size, 2)),
        np.zeros((size, 2)),
        np.zeros((size, 2)),
        np.zeros(size),
        np.zeros((size, num_microbatches)),
        np.zeros((size, num_microbatches)),
        np.zeros(size),
        np.zeros((size, 2)),
        np.zeros(size),
        np.zeros(size, np.bool_),
    )


@inlined
def pass_seconds(numbers: Any, c: int, e: int, first: int, end: int) -> Any:
    """Seconds of a forward and a backward of the layers ``first`` … ``end`` − 1 on class c; ``e`` = 1: the last one."""
    f = numbers.forward[c, e, end] - numbers.forward[c, e, first]
    b = numbers.backward[c, e, end] - numbers.backward[c, e, first]
    if numbers.loose:
        f = max(0.0, f - numbers.skipped_forward[c, e, first])
        b = max(0.0, b - numbers.skipped_backward[c, e, first])
    return f + numbers.overhead[c], b + numbers.overhead[c]


@inlined
def set_stage(numbers: Any, room: Any, q: int, c: int, first: int, end: int) -> None:
    """Put layers ``first`` … ``end`` − 1 on a device of class c as the stage q from the end."""
    room.classes[q] = c
    room.first[q] = first
    for e in range(2):
        room.forward[q, e], room.backward[q, e] = pass_seconds(numbers, c, e, first, end)
    room.finish[q] = numbers.update[c, end] - numbers.update[c, first] + numbers.closing[c]


@inlined
def set_link(numbers: Any, room: Any, q: int, source: int, target: int, num_bytes: float) -> None:
    """Set the link from a device of class ``source`` into stage q on class ``target``, for bytes a sample."""
    for e in range(2):
        size = numbers.sizes[e] * num_bytes
        room.link_forward[q, e] = numbers.latency[source, target] + size * numbers.per_byte[source, target]
        room.link_backward[q, e] = numbers.latency[target, source] + size * numbers.per_byte[target, source]


@compiled
def suffix_step(numbers: Any, room: Any, n: int, linked: bool) -> float:
    """Seconds from the moment that all microbatches stand before the first of the last n stages to its last backward.

    With ``linked`` the microbatches stand before the link into stage n − 1 instead, and the gradients must come back
    over it. ``room.free[q]`` is left at the end of stage q's last action.
    """
    forward, backward, free, wire = room.forward, room.backward, room.free, room.wire
    link_forward, link_backward = room.link_forward, room.link_backward
    arrived, returned = room.arrived, room.returned
    num_microbatches = numbers.num_microbatches
    last = num_microbatches - 1
    for q in range(n):
        free[q] = 0.0
        wire[q, 0] = 0.0
        wire[q, 1] = 0.0
    front = n - 1
    time = 0.0
    for k in range(num_microbatches):
        if linked:
            time += link_forward[front, 1 if k == last else 0]
        arrived[front, k] = time
    for a in range(numbers.order_start[n], numbers.order_start[n + 1]):
        q = numbers.order_stage[a]
        k = numbers.order_microbatch[a]
        e = 1 if k == last else 0
        time = free[q]
        if numbers.order_kind[a] == 0:
            time = max(time, arrived[q, k]) + forward[q, e]
            free[q] = time
            if q > 0:
                time = max(time, wire[q - 1, 0]) + link_forward[q - 1, e]
                wire[q - 1, 0] = time
                arrived[q - 1, k] = time
        else:
            if q > 0:
                time = max(time, returned[q, k])
            time += backward[q, e]
            free[q] = time
            if q < front or linked:
                time = max(time, wire[q, 1]) + link_backward[q, e]
                wire[q, 1] = time
                if q < front:
                    returned[q + 1, k] = time
    if linked:
        return float(wire[front, 1])
    return float(free[front])


@compiled
def response(numbers: Any, room: Any, n: int, closed: bool, spacing: float, turn: float, gap: float, out: Any) -> int:  # noqa: PLR0912
    """Write the answer of the last n stages to each arrival into ``out``; its length.

    The timeline is linear in (max, +): if microbatch j arrives at a_j before the suffix, then the k-th backward of its
    first stage ends at the largest a_j + T[k, j]. ``out`` takes T, column by column, without the entries that are −∞
    because the k-th backward comes before the j-th forward.

    With ``closed`` paths through what stands in front are added, as far as every pipeline has them: arrivals are
    ``spacing`` apart at least, and gradients on their way back ``gap`` (links are serial); and n + 1 microbatches after
    microbatch k another one arrives no earlier than ``turn`` after the backward of k (1F1B lets no more in).
    """
    forward, backward, free, wire = room.forward, room.backward, room.free, room.wire
    link_forward, link_backward = room.link_forward, room.link_backward
    arrived, returned = room.arrived, room.returned
    num_microbatches = numbers.num_microbatches
    last = num_microbatches - 1
    front = n - 1
    length = 0
    begin = numbers.order_start[n]
    for j in range(num_microbatches):
        while not (
            numbers.order_stage[begin] == front
            and numbers.order_kind[begin] == 0
            and numbers.order_microbatch[begin] == j
        ):
            begin += 1
        for q in range(n):
            free[q] = NEVER
            wire[q, 0] = NEVER
            wire[q, 1] = NEVER
            for k in range(num_microbatches):
                arrived[q, k] = NEVER
                returned[q, k] = NEVER
        arrived[front, j] = 0.0
        leaving = NEVER
        for a in range(begin, numbers.order_start[n + 1]):
            q = numbers.order_stage[a]
            k = numbers.order_microbatch[a]
            e = 1 if k == last else 0
            time = free[q]
            if numbers.order_kind[a] == 0:
                if closed and q == front and k > j:
                    arrived[q, k] = max(arrived[q, k], arrived[q, k - 1] + spacing)
                time = max(time, arrived[q, k]) + forward[q, e]
                free[q] = time
                if q > 0:
                    time = max(time, wire[q - 1, 0]) + link_forward[q - 1, e]
                    wire[q - 1, 0] = time
                    arrived[q - 1, k] = time
            else:
                if q > 0:
                    time = max(time, returned[q, k])
                time += backward[q, e]
                free[q] = time
                if q < front:
                    time = max(time, wire[q, 1]) + link_backward[q, e]
                    wire[q, 1] = time
                    returned[q + 1, k] = time
                else:
                    if closed:
                        leaving = max(time, leaving + gap)
                        time = leaving
                        if k + n + 1 < num_microbatches:
                            arrived[front, k + n + 1] = max(arrived[front, k + n + 1], time + turn)
                    out[length] = time
                    length += 1
    return length


@compiled
def step_end(numbers: Any, room: Any, n: int) -> float:
    """End of the step after :func:`suffix_step` timed all n stages: all-reduces of tied weights, then updates.

    ``room.ready[q]`` is left at the end of stage q. Infinite where two holders have no link.
    """
    ready = room.ready
    for q in range(n):
        ready[q] = room.free[q]
    for group in range(len(numbers.tied_bytes)):
        holders = _mark_holders(numbers, room, n, group)
        if holders < 2:
            continue
        slowest, longest, begin = 0.0, 0.0, 0.0
        for q in range(n):
            if room.holds[q]:
                begin = max(begin, ready[q])
                for p in range(n):
                    if p != q and room.holds[p]:
                        slowest = max(slowest, numbers.per_byte[room.classes[q], room.classes[p]])
                        longest = max(longest, numbers.latency[room.classes[q], room.classes[p]])
        rounds = 2 * (holders - 1)
        end = begin + rounds / holders * numbers.tied_bytes[group] * slowest + rounds * longest
        for q in range(n):
            if room.holds[q]:
                ready[q] = end
    step = 0.0
    for q in range(n):
        ready[q] += room.finish[q]
        step = max(step, ready[q])
    return step


@compiled
def _mark_holders(numbers: Any, room: Any, n: int, group: int) -> int:
    """Mark the stages that hold a layer of the tied group; their number."""
    holders = 0
    for q in range(n):
        end = room.first[q - 1] if q > 0 else numbers.num_layers
        room.holds[q] = False
        for index in numbers.tied[group]:
            if room.first[q] <= index < end:
                room.holds[q] = True
        if room.holds[q]:
            holders += 1
    return holders


@compiled
def crossing_bytes(numbers: Any, first: Any, n: int, cut: int) -> float:
    """Bytes a sample over the cut in front of the suffix whose n stages begin at ``first[q]``."""
    total = numbers.single_bytes[cut]
    for t in range(len(numbers.tensors)):
        if numbers.tensors[t, 0] < cut:
            total += tensor_reads(numbers, first, n, t)
    return float(total)


@compiled
def tensor_reads(numbers: Any, first: Any, n: int, t: int) -> float:
    """Bytes a sample of tensor t that the n stages read together, each stage what its largest reader reads."""
    total = 0.0
    end = numbers.num_layers
    for q in range(n):
        most = 0.0
        for r in range(numbers.tensors[t, 1], numbers.tensors[t, 2]):
            if first[q] <= numbers.readers[r] < end:
                most = max(most, numbers.reader_bytes[r])
        total += most
        end = first[q]
    return total


@compiled
def value_of(numbers: Any, room: Any, n: int, classes: Any, first: Any) -> float:  # noqa: PLR0911
    """Objective of a whole pipeline given from the end; infinite where it is not permitted."""
    if n > numbers.max_stages:
        return np.inf
    multiset = 0
    for q in range(n):
        same = 1
        for p in range(q):
            if classes[p] == classes[q]:
                same += 1
        if same > numbers.counts[classes[q]]:
            return np.inf
        multiset += numbers.strides[classes[q]]
    if not numbers.allowed[multiset]:
        return np.inf
    end = numbers.num_layers
    rate = numbers.base_rate
    extra = 0.0
    last = numbers.num_microbatches - 1
    for q in range(n):
        c = classes[q]
        if first[q] >= end or first[q] < numbers.first_fit[c, q + 1, end] or not numbers.may_cut[first[q]]:
            return np.inf
        set_stage(numbers, room, q, c, first[q], end)
        if q > 0:
            source, target = c, classes[q - 1]
            if numbers.latency[source, target] == np.inf or numbers.latency[target, source] == np.inf:
                return np.inf
            set_link(numbers, room, q - 1, source, target, crossing_bytes(numbers, first, q, end))
        end = first[q]
        rate += numbers.rate[c]
        extra += numbers.extra[c] * (
            last * (room.forward[q, 0] + room.backward[q, 0]) + room.forward[q, 1] + room.backward[q, 1]
        )
    if end != 0:
        return np.inf
    suffix_step(numbers, room, n, False)
    step = step_end(numbers, room, n)
    for q in range(n):
        extra += numbers.extra[classes[q]] * (room.ready[q] - room.free[q])
    return float(rate * step + extra)
