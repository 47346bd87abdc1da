"""Exact step time of a chain of groups, compiled: the kernel of straight chains with the seconds of groups in its room.

Stages are numbered by their distance from the end, as in :mod:`ignite_scheduler.planner.kernel`; ``room.classes`` holds
their groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.field import transfer
from ignite_scheduler.planner.kernel import Floats, Ints, Room, crossing_bytes, suffix_step


class Trial(NamedTuple):
    """A chain of groups being timed: by distance from the end the kernel's room, shares, all-reduce and extra."""

    room: Room
    shares: Ints
    ring: Floats
    extra: Floats


def make_trial(max_stages: int, num_microbatches: int, width: int) -> Trial:
    """Empty room for chains of up to ``max_stages`` with up to ``width`` replicas a stage."""
    size = max_stages + 1
    pairs = [np.zeros((size, 2)) for _ in range(5)]
    arrivals = [np.zeros((size, num_microbatches)) for _ in range(2)]
    return Trial(
        room=Room(
            classes=np.zeros(size, dtype=np.int64),
            first=np.zeros(size, dtype=np.int64),
            forward=pairs[0],
            backward=pairs[1],
            link_forward=pairs[2],
            link_backward=pairs[3],
            finish=np.zeros(size),
            arrived=arrivals[0],
            returned=arrivals[1],
            free=np.zeros(size),
            wire=pairs[4],
            ready=np.zeros(size),
            holds=np.zeros(size, dtype=np.bool_),
        ),
        shares=np.zeros((size, 2, width), dtype=np.int64),
        ring=np.zeros(size),
        extra=np.zeros(size),
    )


@compiled
def place(field: Any, trial: Any, q: int, g: int, i: int, j: int) -> bool:
    """Put the layers i … j − 1 on group g as the stage q from the end, and the link to the stage behind.

    False where they do not fit.
    """
    room = trial.room
    at = field.status[g, field.row[q + 1], j, i]
    if at < 0:
        return False
    times = field.figures[g, j, i] if at == 0 else field.special[at]
    shares = field.shares[g] if at == 0 else field.special_shares[at]
    room.classes[q], room.first[q] = g, i
    room.forward[q, 0], room.backward[q, 0] = times[0], times[1]
    room.forward[q, 1], room.backward[q, 1] = times[2], times[3]
    trial.extra[q], trial.ring[q], room.finish[q] = times[4], times[5], times[6]
    for r in range(shares.shape[1]):
        trial.shares[q, 0, r], trial.shares[q, 1, r] = shares[0, r], shares[1, r]
    if q > 0:
        num_bytes = crossing_bytes(field, room.first, q, j)
        for e in range(2):
            there, back = transfer(field.latency, field.per_byte, field.members[g], field.members[room.classes[q - 1]],
                                   shares[e], trial.shares[q - 1, e], num_bytes)  # fmt: skip
            room.link_forward[q - 1, e], room.link_backward[q - 1, e] = there, back
    return True


@compiled
def step_end(field: Any, trial: Any, n: int) -> float:  # noqa: PLR0912
    """End of the step after the kernel timed all n stages: all-reduces of replicas, of tied weights, then updates.

    ``room.ready[q]`` is left at the end of stage q.
    """
    room = trial.room
    ready = room.ready
    for q in range(n):
        ready[q] = room.free[q] + trial.ring[q]
    for group in range(len(field.tied_bytes)):
        begin, slowest, longest, stages, devices = 0.0, 0.0, 0.0, 0, 0
        for q in range(n):
            end = room.first[q - 1] if q > 0 else field.num_layers
            room.holds[q] = False
            for index in field.tied[group]:
                if room.first[q] <= index < end:
                    room.holds[q] = True
            if room.holds[q]:
                begin = max(begin, ready[q])
                stages += 1
                devices += field.size[room.classes[q]]
        if stages < 2:
            continue
        for q in range(n):
            for p in range(n):
                if not room.holds[q] or not room.holds[p]:
                    continue
                for x, a in enumerate(field.members[room.classes[q]]):
                    for y, b in enumerate(field.members[room.classes[p]]):
                        if a >= 0 and b >= 0 and (p != q or x != y):
                            slowest, longest = max(slowest, field.per_byte[a, b]), max(longest, field.latency[a, b])
        rounds = 2 * (devices - 1)
        end_of_ring = begin + rounds / devices * field.tied_bytes[group] * slowest + rounds * longest
        for q in range(n):
            if room.holds[q]:
                ready[q] = end_of_ring
    step = 0.0
    for q in range(n):
        ready[q] += room.finish[q]
        step = max(step, ready[q])
    return step


@compiled
def extra_of(field: Any, trial: Any, n: int) -> float:
    """What busy seconds add to the objective, after :func:`step_end`."""
    total = 0.0
    for q in range(n):
        total += trial.extra[q] + field.extra[trial.room.classes[q]] * (trial.room.ready[q] - trial.room.free[q])
    return total


@compiled
def values_of(field: Any, trial: Any, lengths: Any, groups: Any, first: Any, values: Any) -> None:
    """Write the objective of whole chains, given from the end in rows; infinite where one is not permitted."""
    for x in range(len(lengths)):
        n = lengths[x]
        values[x] = np.inf
        left = len(field.held) - 1
        end = field.num_layers
        rate = field.base_rate
        fits = 0 < n <= field.max_stages and field.ends[min(n, len(field.ends)) - 1]
        for q in range(n):
            g, i = groups[x, q], first[x, q]
            fits = fits and g >= 0 and 0 <= i < end and field.may_cut[i] and field.pair_index[left, g] >= 0
            if not fits or (q > 0 and field.link[g, groups[x, q - 1]] < 0) or not place(field, trial, q, g, i, end):
                fits = False
                break
            left -= field.usage[g]
            rate += field.rate[g]
            end = i
        if fits and end == 0 and field.allowed[len(field.held) - 1 - left]:
            suffix_step(field, trial.room, n, False)
            values[x] = rate * step_end(field, trial, n) + extra_of(field, trial, n)
