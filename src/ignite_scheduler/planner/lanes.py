"""Responses of a suffix to several arrivals in one pass, and only those that imply all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import NEVER, Floats


class Lanes(NamedTuple):
    """Scratch of :func:`outer_responses`: a pipeline timed for several arrivals at once, the last index."""

    arrived: Floats
    returned: Floats
    free: Floats
    wire: Floats


@compiled
def make_lanes(max_stages: int, num_microbatches: int) -> Any:
    """Empty lanes for pipelines of up to ``max_stages``."""
    size = max_stages + 1
    return Lanes(
        np.zeros((size, num_microbatches, size)),
        np.zeros((size, num_microbatches, size)),
        np.zeros((size, size)),
        np.zeros((size, 2, size)),
    )


@compiled
def outer_responses(  # noqa: PLR0912, PLR0915
    numbers: Any, room: Any, lanes: Any, n: int, closed: bool, spacing: float, turn: float, gap: float, out: Any
) -> int:
    """Write the entries of :func:`.kernel.response` under 1F1B that imply all others into ``out``; their number.

    Needs more microbatches than stages. What waits for what depends on differences of microbatches only, and a path
    from the j-th arrival to the k-th gradient meets forwards of j … k + n − 1 and backwards of j − n + 1 … k. So only
    the arrivals 0 … n − 1 and the last n gradients feel the ends of the step: between them T[k, j] is
    T[k − j + n − 1, n − 1]. Read from its end, a 1F1B step is one whose forwards and backwards are exchanged, so that
    the last gradients are computed like the first arrivals.
    """
    arrived, returned, free, wire = lanes.arrived, lanes.returned, lanes.free, lanes.wire
    num_microbatches = numbers.num_microbatches
    front = n - 1
    length = 0
    for side in range(2):
        if side == 0:
            forward, backward = room.forward, room.backward
            link_forward, link_backward = room.link_forward, room.link_backward
            odd, needed = num_microbatches - 1, num_microbatches
        else:
            forward, backward = room.backward, room.forward
            link_forward, link_backward = room.link_backward, room.link_forward
            odd, needed = 0, num_microbatches - n
            spacing, gap = gap, spacing
        free[:n, :n] = NEVER
        wire[:n, :, :n] = NEVER
        arrived[front, :, :n] = NEVER
        for x in range(n):
            arrived[front, x, x] = 0.0
        for a in range(numbers.order_start[n], numbers.order_start[n + 1]):
            q = numbers.order_stage[a]
            k = numbers.order_microbatch[a]
            e = 1 if k == odd else 0
            if numbers.order_kind[a] == 0:
                if closed and q == front and k > 0:
                    for x in range(n):
                        arrived[q, k, x] = max(arrived[q, k, x], arrived[q, k - 1, x] + spacing)
                seconds = forward[q, e]
                for x in range(n):
                    free[q, x] = max(free[q, x], arrived[q, k, x]) + seconds
                if q > 0:
                    seconds = link_forward[q - 1, e]
                    for x in range(n):
                        wire[q - 1, 0, x] = max(free[q, x], wire[q - 1, 0, x]) + seconds
                        arrived[q - 1, k, x] = wire[q - 1, 0, x]
                continue
            seconds = backward[q, e]
            if q > 0:
                for x in range(n):
                    free[q, x] = max(free[q, x], returned[q, k, x]) + seconds
            else:
                for x in range(n):
                    free[q, x] += seconds
            if q < front:
                seconds = link_backward[q, e]
                for x in range(n):
                    wire[q, 1, x] = max(free[q, x], wire[q, 1, x]) + seconds
                    returned[q + 1, k, x] = wire[q, 1, x]
                continue
            if k >= needed:
                break
            if not closed:
                out[length : length + n] = free[q, :n]
                length += n
                continue
            for x in range(n):
                wire[q, 1, x] = max(free[q, x], wire[q, 1, x] + gap)
                out[length] = wire[q, 1, x]
                length += 1
            if k + n + 1 < num_microbatches:
                for x in range(n):
                    arrived[q, k + n + 1, x] = max(arrived[q, k + n + 1, x], wire[q, 1, x] + turn)
    return length
