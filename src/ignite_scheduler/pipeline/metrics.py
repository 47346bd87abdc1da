"""Figures of one timed iteration: idle share, what sets the pace, and the chain of causes behind the step time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Literal, NamedTuple

from ignite_scheduler.pipeline.schedules import Schedule
from ignite_scheduler.pipeline.timeline import Durations, Interval, Number, Timeline, Transfer


class Busiest(NamedTuple):
    """The busiest resource: a ``stage``, or the ``link`` whose message leaves ``stage_index``.

    ``busy``: seconds a microbatch.
    """

    kind: Literal["stage", "link"]
    stage_index: int
    busy: Number


def bubble_fraction(timeline: Timeline) -> float:
    """The idle share of the workers' time within the step, in [0, 1].

    Equal stages and free links give (S−1)/(M+S−1), for GPipe and 1F1B alike.
    """
    busy = sum(interval.end - interval.start for interval in timeline.intervals)
    busy += sum(end - start for start, end in timeline.finishes)
    total = len(timeline.schedule.rows) * timeline.step
    return float(1 - busy / total) if total else 0.0


def bottleneck(schedule: Schedule, durations: Durations) -> Busiest:
    """The resource with the largest busy time for one full microbatch, over workers and wires.

    A worker that holds several stages is busy with all of them; its slowest stage stands for it.
    """
    best = Busiest("stage", 0, -1)
    for row in schedule.rows:
        stages = sorted({action.stage_index for action in row})
        seconds = [durations.forward[s][0] + durations.backward[s][0] for s in stages]
        if stages and sum(seconds) > best.busy:
            best = Busiest("stage", stages[seconds.index(max(seconds))], sum(seconds))
    wires: dict[Hashable, Number] = defaultdict(int)
    first: dict[Hashable, int] = {}
    for edge in durations.edges:
        for wire, seconds_of in ((edge.forward_wire, edge.forward), (edge.backward_wire, edge.backward)):
            wires[wire] += seconds_of[0]
            first.setdefault(wire, edge.source)
    for wire, busy in wires.items():
        if busy > best.busy:
            best = Busiest("link", first[wire], busy)
    return best


def critical_path(timeline: Timeline) -> tuple[Interval | Transfer, ...]:
    """A chain of actions and messages without a gap, from time 0 to the last action of the stage that ends last.

    Each element starts at the moment at which the one before it ends, and because of it: on the same worker, over the
    same wire, or as its message. Among equals, a message explains more than the worker's own last action and comes
    first.
    """
    ends: dict[Number, list[Interval | Transfer]] = defaultdict(list)
    items: list[Interval | Transfer] = [*timeline.intervals, *timeline.transfers]
    for item in items:
        if item.end > item.start:  # an instant explains nothing and could chase itself
            ends[item.end].append(item)
    last_stage = max(range(len(timeline.finishes)), key=lambda s: timeline.finishes[s][1])
    current: Interval | Transfer | None = next(
        i for i in reversed(timeline.intervals) if i.action.stage_index == last_stage
    )
    path: list[Interval | Transfer] = []
    while current is not None:
        path.append(current)
        causes = [item for item in ends[current.start] if item is not current]
        current = min(causes, key=lambda item: _distance(item, path[-1]), default=None)
    return tuple(reversed(path))


def _distance(cause: Interval | Transfer, effect: Interval | Transfer) -> int:
    """How well ``cause`` explains that ``effect`` starts when it ends: 0 best."""
    if isinstance(effect, Interval):
        stage, _, k = effect.action
        if isinstance(cause, Transfer):
            return 0 if (cause.target, cause.microbatch_index) == (stage, k) else 4
        return 1 if cause.row == effect.row else 3
    if isinstance(cause, Interval):
        same = (cause.action.stage_index, cause.action.microbatch_index) == (effect.source, effect.microbatch_index)
        return 0 if same else 3
    return 1 if cause.wire == effect.wire else 3
