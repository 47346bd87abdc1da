"""When each action of a schedule starts and ends: the exact timeline.

Theory of operation
-------------------
Workers run their rows strictly in order, one action at a time. F(s, k) waits for the outputs of the stages that feed
s to arrive; B(s, k) for F(s, k) and for the gradients from the stages that s feeds; W(s, k) for I(s, k). A finished
action hands its message to a *wire*. A wire is a serial resource: it carries one message at a time, in order of
readiness; equal readiness is ordered by the worker's row. Wires are duplex by construction, since each direction has
a wire of its own. The step ends when every stage has done its last action and its ``finish`` (all-reduce and
optimizer update).

All of this is one loop over a heap of (time, what ends then). Nothing is rounded: with integers or fractions as
durations, starts and ends are exact, which is what the tests' laws stand on.

With ``overlap=False`` a message also keeps its sender and its receiver busy: it starts when neither computes, and a
worker with an unsent message starts no further action. Two workers that want to send to each other do not deadlock;
messages go one after the other.

With ``receive_first=True`` a worker whose next action is a backward pass waits for that gradient before it hands its
activations to the wire, as engines do whose program reads "receive the gradient, send the activations, go backward".
That holds where the receiver's row has the gradient's backward pass before the forward pass that needs the activations;
otherwise each would wait for the other, and the activations leave at once. Gradients always leave at once.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ignite_scheduler.errors import ScheduleError
from ignite_scheduler.pipeline.actions import BACKWARD, FORWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, Action
from ignite_scheduler.pipeline.schedules import Schedule
from ignite_scheduler.pipeline.validation import validate

Number = int | float | Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Messages between two stages.

    ``forward[k]`` are seconds for the activations of microbatch k from ``source`` to ``target``, ``backward[k]`` for
    the gradient coming back. Messages that name the same wire queue up.
    """

    source: int
    target: int
    forward: tuple[Number, ...]
    backward: tuple[Number, ...]
    forward_wire: Hashable
    backward_wire: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """An all-reduce between ``stages``: starts when the last of them has done its last action, takes ``seconds``."""

    stages: tuple[int, ...]
    seconds: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Seconds of everything in one iteration.

    ``forward``, ``backward`` and ``weight_backward`` have shape [stage][microbatch]; ``backward`` is the whole pass and
    ``weight_backward`` the part of it that belongs to the weights (only needed for split backwards). ``finish`` has one
    entry per stage: the optimizer update. ``reductions`` happen before it, one after the other on each stage.
    """

    forward: tuple[tuple[Number, ...], ...]
    backward: tuple[tuple[Number, ...], ...]
    edges: tuple[Edge, ...]
    finish: tuple[Number, ...]
    reductions: tuple[Reduction, ...] = ()
    weight_backward: tuple[tuple[Number, ...], ...] | None = None

    def of(self, action: Action) -> Number:
        """Seconds of one action."""
        stage, kind, k = action
        if kind == FORWARD:
            return self.forward[stage][k]
        if kind == BACKWARD:
            return self.backward[stage][k]
        if self.weight_backward is None:
            raise ScheduleError(
                f"{action} needs the weight part of the backward pass, which these durations do not have"
            )
        weight = self.weight_backward[stage][k]
        return weight if kind == WEIGHT_BACKWARD else self.backward[stage][k] - weight


class Interval(NamedTuple):
    """One action in time, seconds from the start of the step."""

    action: Action
    row: int
    start: Number
    end: Number


class Transfer(NamedTuple):
    """One message in time: ``kind`` F carries activations of ``source``, B gradients back from ``source``."""

    source: int
    target: int
    kind: str
    microbatch_index: int
    start: Number
    end: Number
    wire: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One iteration in time.

    ``finishes`` holds (start, end) of each stage's all-reduce and update; ``step`` is the end.
    """

    schedule: Schedule
    intervals: tuple[Interval, ...]
    transfers: tuple[Transfer, ...]
    finishes: tuple[tuple[Number, Number], ...]
    step: Number


def timeline(
    schedule: Schedule, durations: Durations, *, overlap: bool = True, receive_first: bool = False
) -> Timeline:
    """Time every action of ``schedule``.

    Parameters
    ----------
    overlap
        False where the engine cannot compute and communicate at once.
    receive_first
        True where activations leave only once the gradient of the worker's next action has arrived.

    Returns
    -------
    Timeline
        Intervals and transfers in order of their start.

    Raises
    ------
    ScheduleError
        The order is incomplete or can never finish.

    Notes
    -----
    O(A log A) for A actions and messages.

    >>> from ignite_scheduler.pipeline import make_schedule
    >>> free = Edge(source=0, target=1, forward=(0,) * 4, backward=(0,) * 4, forward_wire="a", backward_wire="b")
    >>> d = Durations(forward=((1,) * 4,) * 2, backward=((2,) * 4,) * 2, edges=(free,), finish=(0, 0))
    >>> timeline(make_schedule("1f1b", 2, 4), d).step          # (M+S−1)(f+b)
    15
    """
    validate(schedule, [(edge.source, edge.target) for edge in durations.edges])
    return _Loop(schedule, durations, overlap, receive_first).run()


class _Loop:
    """The heap loop: one instance per call."""

    def __init__(self, schedule: Schedule, durations: Durations, overlap: bool, receive_first: bool) -> None:
        self.schedule, self.durations, self.overlap, self.receive_first = schedule, durations, overlap, receive_first
        self.holder = {action.stage_index: r for r, row in enumerate(schedule.rows) for action in row}
        self.position = [0] * len(schedule.rows)
        self.busy = [False] * len(schedule.rows)
        self.unsent = [0] * len(schedule.rows)
        self.missing = self._count_missing()
        self.out: dict[tuple[int, str], list[tuple[Edge, int]]] = defaultdict(list)
        for edge in durations.edges:
            self.out[edge.source, FORWARD].append((edge, edge.target))
            self.out[edge.target, BACKWARD].append((edge, edge.source))
        self.wire_busy: set[Hashable] = set()
        self.waiting: deque[tuple[Edge, str, int]] = deque()
        self.held: dict[Action, list[tuple[Edge, str, int]]] = {}  # until the gradient of the action has arrived
        self.heap: list[tuple[Number, int, int, Interval | Transfer]] = []
        self.serial = 0
        self.intervals: list[Interval] = []
        self.transfers: list[Transfer] = []

    def _count_missing(self) -> dict[Action, int]:
        """Messages that each action still waits for. Order within the stage is in the row itself."""
        missing: dict[Action, int] = {}
        feeds = [0] * self.schedule.num_stages
        fed_by = [0] * self.schedule.num_stages
        for edge in self.durations.edges:
            feeds[edge.source] += 1
            fed_by[edge.target] += 1
        for row in self.schedule.rows:
            for action in row:
                counts = fed_by if action.kind == FORWARD else feeds
                missing[action] = 0 if action.kind == WEIGHT_BACKWARD else counts[action.stage_index]
        return missing

    def run(self) -> Timeline:
        now: Number = 0
        for row in range(len(self.schedule.rows)):
            self._start_action(row, now)
        while self.heap:
            now, _, _, ended = heapq.heappop(self.heap)
            if isinstance(ended, Interval):
                self._end_action(ended, now)
            else:
                self._end_transfer(ended, now)
        if self.held:
            waits = ", ".join(map(str, self.held))
            raise ScheduleError(f"with receive_first this order never finishes: {waits} waits for a gradient for ever")
        return self._result()

    def _push(self, ended: Interval | Transfer, row: int) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (ended.end, row, self.serial, ended))

    def _start_action(self, row: int, now: Number) -> None:
        actions = self.schedule.rows[row]
        if self.busy[row] or self.unsent[row] or self.position[row] == len(actions):
            return
        action = actions[self.position[row]]
        if self.missing[action]:
            return
        self.position[row] += 1
        self.busy[row] = True
        interval = Interval(action, row, now, now + self.durations.of(action))
        self.intervals.append(interval)
        self._push(interval, row)

    def _end_action(self, interval: Interval, now: Number) -> None:
        self.busy[interval.row] = False
        stage, kind, k = interval.action
        if kind != WEIGHT_BACKWARD:
            direction = FORWARD if kind == FORWARD else BACKWARD
            messages = [(edge, direction, k) for edge, _ in self.out[stage, direction]]
            if not self.overlap:
                self.unsent[interval.row] += len(messages)
            gradient = self._awaited_gradient(interval) if self.receive_first and direction == FORWARD else None
            if gradient is None:
                self.waiting.extend(messages)
            else:
                self.held[gradient] = messages
        self._start_transfers(now)
        self._start_action(interval.row, now)

    def _awaited_gradient(self, interval: Interval) -> Action | None:
        """The next action of the row that just went forward, where the activations must wait for its gradient."""
        actions, position = self.schedule.rows[interval.row], self.position[interval.row]
        if position == len(actions):
            return None
        following = actions[position]
        if following.kind not in (BACKWARD, INPUT_BACKWARD) or not self.missing[following]:
            return None
        stage, _, k = interval.action
        for _, target in self.out[stage, FORWARD]:
            row = self.schedule.rows[self.holder[target]]
            gradient = following._replace(stage_index=target)
            if gradient not in row[: row.index(Action(target, FORWARD, k))]:
                return None
        return following

    def _start_transfers(self, now: Number) -> None:
        """Give each free wire to the message that has been ready longest."""
        for _ in range(len(self.waiting)):
            edge, direction, k = self.waiting.popleft()
            forward = direction == FORWARD
            wire = edge.forward_wire if forward else edge.backward_wire
            source, target = (edge.source, edge.target) if forward else (edge.target, edge.source)
            sender, receiver = self.holder[source], self.holder[target]
            if wire in self.wire_busy or (not self.overlap and (self.busy[sender] or self.busy[receiver])):
                self.waiting.append((edge, direction, k))  # a full turn of the deque keeps the order
                continue
            self.wire_busy.add(wire)
            if not self.overlap:
                self.busy[sender] = self.busy[receiver] = True
            seconds = edge.forward[k] if forward else edge.backward[k]
            transfer = Transfer(source, target, direction, k, now, now + seconds, wire)
            self.transfers.append(transfer)
            self._push(transfer, sender)

    def _end_transfer(self, transfer: Transfer, now: Number) -> None:
        self.wire_busy.discard(transfer.wire)
        sender, receiver = self.holder[transfer.source], self.holder[transfer.target]
        if not self.overlap:
            self.busy[sender] = self.busy[receiver] = False
            self.unsent[sender] -= 1
        self._arrive(transfer)
        self._start_transfers(now)
        self._start_action(receiver, now)
        if not self.overlap:
            self._start_action(sender, now)

    def _arrive(self, transfer: Transfer) -> None:
        stage, k = transfer.target, transfer.microbatch_index
        kinds = (FORWARD,) if transfer.kind == FORWARD else (BACKWARD, INPUT_BACKWARD)
        for kind in kinds:
            action = Action(stage, kind, k)
            if action in self.missing:
                self.missing[action] -= 1
                if not self.missing[action]:
                    self.waiting.extend(self.held.pop(action, ()))

    def _result(self) -> Timeline:
        last: list[Number] = [0] * self.schedule.num_stages
        for interval in self.intervals:
            stage = interval.action.stage_index
            last[stage] = max(last[stage], interval.end)
        ready = list(last)
        for reduction in self.durations.reductions:
            end = max(ready[stage] for stage in reduction.stages) + reduction.seconds
            for stage in reduction.stages:
                ready[stage] = end
        finishes = tuple((a, b + extra) for a, b, extra in zip(last, ready, self.durations.finish, strict=True))
        return Timeline(
            schedule=self.schedule,
            intervals=tuple(self.intervals),
            transfers=tuple(self.transfers),
            finishes=finishes,
            step=max(end for _, end in finishes),
        )
