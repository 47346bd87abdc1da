"""The step of a plan by a clock of its own: resources with queues, advanced until all is done.

Each stage does its actions in the order of its schedule; each wire carries one message at a time, the one that has
been ready longest first. Written apart from the package's timeline, which it is there to judge.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """What goes between two stages: seconds by microbatch there and back, and the wires."""

    source: int
    target: int
    there: Sequence[float]
    back: Sequence[float]
    wire_there: Hashable
    wire_back: Hashable


class Reduction(NamedTuple):
    """An all-reduce between stages at the end of the step."""

    stages: tuple[int, ...]
    seconds: float


def depths(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Stages on the longest way from each stage to an end, itself included; ValueError where there is a circle."""
    found = [1] * len(inputs)
    for _ in range(len(inputs) + 1):
        before = list(found)
        for target, sources in enumerate(inputs):
            for source in sources:
                found[source] = max(found[source], found[target] + 1)
        if before == found:
            return found
    raise ValueError("stages feed each other in a circle")


def joined(inputs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Stages that feed each other, directly or through others, in groups."""
    group = list(range(len(inputs)))
    for target, sources in enumerate(inputs):
        for source in sources:
            old, new = group[source], group[target]
            group = [new if each == old else each for each in group]
    return [[stage for stage, each in enumerate(group) if each == name] for name in dict.fromkeys(group)]


def order(schedule: str, depth: int, count: int) -> list[tuple[str, int]]:
    """Actions of one stage: ('F', k) and ('B', k)."""
    ahead = count if schedule == "gpipe" else min(count, depth)
    done: list[tuple[str, int]] = []
    forwards = backwards = 0
    while backwards < count:
        if forwards < count and forwards - backwards < ahead:
            done.append(("F", forwards))
            forwards += 1
        else:
            done.append(("B", backwards))
            backwards += 1
    return done


class Clock:
    """One step, from the first forward to the last update.

    Parameters
    ----------
    rows
        Actions of each stage, in order.
    seconds
        Of each stage, by kind of action (``F``, ``B``) those of each microbatch.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[tuple[str, int]]],
        seconds: Sequence[dict[str, Sequence[float]]],
        messages: Sequence[Message],
    ) -> None:
        self.rows, self.seconds = rows, seconds
        self.outgoing: dict[tuple[int, str], list[tuple[int, Sequence[float], Hashable]]] = defaultdict(list)
        self.missing: dict[tuple[int, str, int], int] = defaultdict(int)
        for message in messages:
            self.outgoing[message.source, "F"].append((message.target, message.there, message.wire_there))
            self.outgoing[message.target, "B"].append((message.source, message.back, message.wire_back))
            for k in range(len(message.there)):
                self.missing[message.target, "F", k] += 1
                self.missing[message.source, "B", k] += 1
        self.next = [0] * len(rows)
        self.working = [False] * len(rows)
        self.last = [0.0] * len(rows)
        self.queues: dict[Hashable, list[tuple[float, int, int, str, int, int, float]]] = defaultdict(list)
        self.carrying: set[Hashable] = set()
        self.events: list[tuple[float, int, int, tuple[object, ...]]] = []
        self.count = 0

    def run(self) -> list[float]:
        """When each stage has done its last action."""
        for stage in range(len(self.rows)):
            self._begin(stage, 0.0)
        while self.events:
            now, stage, _, (what, *rest) = heapq.heappop(self.events)
            if what == "act":
                kind, k = rest
                self.working[stage] = False
                self.last[stage] = now
                for target, seconds, wire in self.outgoing[stage, kind]:
                    self.count += 1
                    heapq.heappush(self.queues[wire], (now, stage, self.count, kind, target, k, seconds[k]))
                    self._carry(wire, now)
                self._begin(stage, now)
            else:
                kind, k, target, wire = rest
                self.carrying.discard(wire)
                self.missing[target, kind, k] -= 1
                self._carry(wire, now)
                self._begin(target, now)
        assert self.next == [len(row) for row in self.rows], "the plan never ends"
        return self.last

    def _begin(self, stage: int, now: float) -> None:
        if self.working[stage] or self.next[stage] == len(self.rows[stage]):
            return
        kind, k = self.rows[stage][self.next[stage]]
        if self.missing[stage, kind, k]:
            return
        self.next[stage] += 1
        self.working[stage] = True
        self._at(now + self.seconds[stage][kind][k], stage, ("act", kind, k))

    def _carry(self, wire: Hashable, now: float) -> None:
        if wire in self.carrying or not self.queues[wire]:
            return
        _, sender, _, kind, target, k, seconds = heapq.heappop(self.queues[wire])
        self.carrying.add(wire)
        self._at(now + seconds, sender, ("arrive", kind, k, target, wire))

    def _at(self, when: float, stage: int, what: tuple[object, ...]) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, stage, self.count, what))


def step_seconds(last: Sequence[float], reductions: Sequence[Reduction], updates: Sequence[float]) -> float:
    """When every stage has summed its gradients and updated its weights."""
    ready = list(last)
    for reduction in reductions:
        end = max(ready[stage] for stage in reduction.stages) + reduction.seconds
        for stage in reduction.stages:
            ready[stage] = end
    return max(at + update for at, update in zip(ready, updates, strict=True))
