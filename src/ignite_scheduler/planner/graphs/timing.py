"""Exact step time of a graph of stages, compiled: the inner loop of the search over stage graphs.

Every edge between two stages has a wire of its own in each direction, so that the timeline is a longest path: actions
are timed in any order in which each comes after what it waits for. Under 1F1B a stage warms up by its depth, the
number of stages on the longest way from it to the end (as :func:`ignite_scheduler.pipeline.make_schedule` has it).
Left out, and settled by the full timeline: transfers that wait for a shared wire, and all-reduces of tied weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Ints


class Graph(NamedTuple):
    """Scratch: one graph of stages in seconds, and how far its timeline is."""

    forward: Floats
    backward: Floats
    finish: Floats
    sums: Floats
    num_bytes: Floats
    feeds: npt.NDArray[np.bool_]
    num_from: Ints
    num_to: Ints
    depth: Ints
    there: Floats
    back: Floats
    wire: Floats
    position: Ints
    free: Floats
    came: Floats
    missing: Ints
    most: Floats


@compiled
def make_graph(size: int, num_microbatches: int) -> Any:
    """Scratch for up to ``size`` stages."""
    return Graph(
        np.zeros((size, 2)),
        np.zeros((size, 2)),
        np.zeros(size),
        np.zeros((size, 5)),
        np.zeros((size, size)),
        np.zeros((size, size), np.bool_),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros((size, size, 2)),
        np.zeros((size, size, 2)),
        np.zeros((size, size, 2)),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.zeros((size, num_microbatches, 2)),
        np.zeros((size, num_microbatches, 2), np.int64),
        np.zeros(size),
    )


@compiled
def graph_value(field: Any, graph: Any, n: int, stage_of: Any, device_of: Any) -> float:
    """Objective of the graph whose n stages hold the atoms by ``stage_of``; infinite where it is not permitted."""
    if n > field.max_stages or n < field.min_devices or not _devices_permitted(field, n, device_of):
        return np.inf
    if not _load(field, graph, n, stage_of, device_of) or not _connect(field, graph, n, stage_of, device_of):
        return np.inf
    m = field.num_microbatches
    for s in range(n):
        held = m if field.gpipe else min(m, graph.depth[s])
        grown = field.sizes[0] * (held * graph.sums[s, 1] + graph.sums[s, 2])
        if graph.sums[s, 0] + grown + graph.sums[s, 3] > field.memory[device_of[s]]:
            return np.inf
    step = _step(field, graph, n)
    rate, extra = field.base_rate, 0.0
    for s in range(n):
        d = device_of[s]
        rate += field.rate[d]
        busy = (m - 1) * (graph.forward[s, 0] + graph.backward[s, 0]) + graph.forward[s, 1] + graph.backward[s, 1]
        extra += field.extra[d] * (busy + graph.finish[s])
    return float(rate * step + extra)


@compiled
def _devices_permitted(field: Any, n: int, device_of: Any) -> bool:
    """Whether each device is on one stage, and one of the requested counts of kinds is met."""
    for s in range(n):
        for other in range(s):
            if device_of[s] == device_of[other]:
                return False
    for wish in range(len(field.wanted)):
        met = True
        for kind in range(field.wanted.shape[1]):
            count = 0
            for s in range(n):
                if field.kind[device_of[s]] == kind:
                    count += 1
            met = met and count == field.wanted[wish, kind]
        if met:
            return True
    return len(field.wanted) == 0


@compiled
def _load(field: Any, graph: Any, n: int, stage_of: Any, device_of: Any) -> bool:
    """Sum up seconds and bytes of each stage; False where one is empty or has no times."""
    for s in range(n):
        d = device_of[s]
        graph.forward[s, :] = field.overhead[d]
        graph.backward[s, :] = field.overhead[d]
        graph.finish[s] = field.closing[d]
        graph.sums[s, :] = 0.0
    for a in range(len(stage_of)):
        s = stage_of[a]
        d = device_of[s]
        for e in range(2):
            graph.forward[s, e] += field.forward[d, e, a]
            graph.backward[s, e] += field.backward[d, e, a]
        graph.finish[s] += field.update[d, a]
        graph.sums[s, 0] += field.fixed[a]
        graph.sums[s, 1] += field.kept[a]
        graph.sums[s, 2] = max(graph.sums[s, 2], field.peak[a])
        graph.sums[s, 3] = max(graph.sums[s, 3], field.workspace[a])
        graph.sums[s, 4] += 1.0
    permitted = True
    for s in range(n):
        permitted = permitted and graph.sums[s, 4] > 0.0 and graph.forward[s, 0] < np.inf
    return permitted


@compiled
def _connect(field: Any, graph: Any, n: int, stage_of: Any, device_of: Any) -> bool:
    """Find edges, their seconds and depths; False where stages feed each other in a circle or have no link."""
    graph.feeds[:n, :n] = False
    graph.num_bytes[:n, :n] = 0.0
    graph.most[:n] = -1.0
    for t in range(len(field.tensor_atom)):
        source = stage_of[field.tensor_atom[t]]
        for r in range(field.tensor_start[t], field.tensor_start[t + 1]):
            target = stage_of[field.reader_atom[r]]
            if target != source:
                graph.most[target] = max(graph.most[target], field.reader_bytes[r])
        for r in range(field.tensor_start[t], field.tensor_start[t + 1]):
            target = stage_of[field.reader_atom[r]]
            if graph.most[target] >= 0.0:
                graph.feeds[source, target] = True
                graph.num_bytes[source, target] += graph.most[target]
                graph.most[target] = -1.0
    for s in range(n):
        graph.num_from[s], graph.num_to[s], graph.depth[s] = 0, 0, 0
    for s in range(n):
        for q in range(n):
            if graph.feeds[s, q]:
                a, b = device_of[s], device_of[q]
                if field.latency[a, b] == np.inf or field.latency[b, a] == np.inf:
                    return False
                graph.num_to[s] += 1
                graph.num_from[q] += 1
                for e in range(2):
                    size = field.sizes[e] * graph.num_bytes[s, q]
                    graph.there[s, q, e] = field.latency[a, b] + size * field.per_byte[a, b]
                    graph.back[s, q, e] = field.latency[b, a] + size * field.per_byte[b, a]
    return _depths(graph, n)


@compiled
def _depths(graph: Any, n: int) -> bool:
    """Depth of each stage, as it comes when all that it feeds have theirs; False where there is a circle."""
    found = 0
    progress = True
    while progress and found < n:
        progress = False
        for s in range(n):
            if graph.depth[s] > 0:
                continue
            depth = 1
            for q in range(n):
                if graph.feeds[s, q]:
                    depth = max(depth, graph.depth[q] + 1) if graph.depth[q] > 0 else n + 1
                if depth > n:
                    break
            if depth <= n:
                graph.depth[s] = depth
                found += 1
                progress = True
    return found == n


@compiled
def _step(field: Any, graph: Any, n: int) -> float:
    """Seconds of one step."""
    m = field.num_microbatches
    for s in range(n):
        graph.position[s] = 0
        graph.free[s] = 0.0
        graph.wire[s, :n, :] = 0.0
        graph.came[s, :, :] = 0.0
        graph.missing[s, :, 0] = graph.num_from[s]
        graph.missing[s, :, 1] = graph.num_to[s]
    left = 2 * n * m
    while left > 0:
        for s in range(n):
            warm = m if field.gpipe else min(m, graph.depth[s] - 1)
            while graph.position[s] < 2 * m:
                at = graph.position[s]
                kind, k = 0, at
                if at >= 2 * m - warm:
                    kind, k = 1, at - m
                elif at >= warm:
                    kind = (at - warm) % 2
                    k = (at - warm) // 2 + (0 if kind == 1 else warm)
                if graph.missing[s, k, kind] > 0:
                    break
                _act(graph, n, s, kind, k, 1 if k == m - 1 else 0)
                graph.position[s] += 1
                left -= 1
    step = 0.0
    for s in range(n):
        step = max(step, graph.free[s] + graph.finish[s])
    return step


@compiled
def _act(graph: Any, n: int, s: int, kind: int, k: int, e: int) -> None:
    """Time one action of stage s and send what it made."""
    seconds = graph.forward[s, e] if kind == 0 else graph.backward[s, e]
    end = max(graph.free[s], graph.came[s, k, kind]) + seconds
    graph.free[s] = end
    for q in range(n):
        if kind == 0 and graph.feeds[s, q]:
            time = max(end, graph.wire[s, q, 0]) + graph.there[s, q, e]
            graph.wire[s, q, 0] = time
        elif kind == 1 and graph.feeds[q, s]:
            time = max(end, graph.wire[q, s, 1]) + graph.back[q, s, e]
            graph.wire[q, s, 1] = time
        else:
            continue
        graph.came[q, k, kind] = max(graph.came[q, k, kind], time)
        graph.missing[q, k, kind] -= 1
