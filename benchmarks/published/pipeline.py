"""The step of a pipeline whose microbatches are all alike."""

from __future__ import annotations

from collections.abc import Sequence

from ignite_scheduler.pipeline import Durations, Edge, make_schedule, timeline


def step_seconds(
    forward: Sequence[float],
    backward: Sequence[float],
    messages: Sequence[float],
    finish: Sequence[float],
    num_microbatches: int,
    *,
    receive_first: bool,
) -> float:
    """Seconds of a 1F1B step, by the timeline.

    ``forward``, ``backward`` and ``finish`` are seconds of each stage, ``messages`` of each cut, the same both ways.
    """
    edges = []
    for cut, message in enumerate(messages):
        seconds = (float(message),) * num_microbatches
        edges.append(
            Edge(
                source=cut,
                target=cut + 1,
                forward=seconds,
                backward=seconds,
                forward_wire=(cut, "forward"),
                backward_wire=(cut, "backward"),
            )
        )
    durations = Durations(
        forward=tuple((float(f),) * num_microbatches for f in forward),
        backward=tuple((float(b),) * num_microbatches for b in backward),
        edges=tuple(edges),
        finish=tuple(map(float, finish)),
    )
    schedule = make_schedule("1f1b", len(forward), num_microbatches)
    return float(timeline(schedule, durations, receive_first=receive_first).step)
