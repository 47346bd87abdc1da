"""Durations of pipelines for tests."""

from __future__ import annotations

from ignite_scheduler.pipeline import Durations, Edge


def chain(forward, backward, there, back, *, wires=None):
    """Durations of a chain: per stage (or per cut) one list of numbers by microbatch."""
    edges = tuple(
        Edge(
            source=s,
            target=s + 1,
            forward=tuple(there[s]),
            backward=tuple(back[s]),
            forward_wire=wires[s] if wires else (s, "there"),
            backward_wire=wires[s] if wires else (s, "back"),
        )
        for s in range(len(forward) - 1)
    )
    return Durations(
        forward=tuple(map(tuple, forward)),
        backward=tuple(map(tuple, backward)),
        edges=edges,
        finish=(0,) * len(forward),
    )


def alike(forward, backward, there, back, count):
    """Durations of a chain: per stage (or per cut) one number, that of each of ``count`` microbatches."""
    return chain(*([[seconds] * count for seconds in row] for row in (forward, backward, there, back)))
