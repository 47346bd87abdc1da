"""One rank's messages: sent, answered, timed; over the real transport, with the links that are played on top.

Theory of operation
-------------------
Every message begins with a header: when it was sent, when it is due over the played link (0 = when it arrives), and
what comes next, so that the sender alone decides how often it sends and when it stops. The receiver waits until the
message is due and answers with the time of its own clock. A played link books the engine's wire (serial, in each
direction its own) at the moment of sending, exactly as training does.

Streams go through one thread for each peer: a receive of gloo can be waited for, not looked at.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ignite_scheduler.engine.links import open_wires
from ignite_scheduler.errors import ExternalError
from ignite_scheduler.profiler.links.analysis import Trips
from ignite_scheduler.profiler.links.nouns import LEAST_SIZE, Options, Pair, Seat

_HEADER: Final = struct.Struct("<ddq")
_MORE, _NEXT_SIZE, _END = range(3)
"""What a header says comes next: another of this size, the next size, nothing."""
_WARM_UP: Final = 2
_LEAST_REPEATS: Final = 3
_WINDOW: Final = 4
"""Messages of a stream under way at once."""


class Load(NamedTuple):
    """A stream: so many messages of so many bytes."""

    messages: int
    size: int


class Exchange:
    """The messages of one rank."""

    def __init__(self, seat: Seat, options: Options) -> None:
        self._seat, self._options = seat, options
        self._device = torch.device(seat.place if options.backend == "nccl" else "cpu")
        self._wires = open_wires(seat.rank, seat.links, Path(seat.directory))
        self._lock = threading.Lock()  # wires are booked by several threads while pairs stream together
        self._wait_limit = timedelta(seconds=options.timeout)

    # -- one message at a time --------------------------------------------------------------------------------------

    def send_sizes(self, target: int) -> Trips:
        """Send messages of every size to ``target`` and note how long they took; :meth:`answer_sizes` is there."""
        trips = Trips()
        for size in self._options.sizes:
            if self._send_size(target, size, trips, is_last=size == self._options.sizes[-1]):
                break
        return trips

    def _send_size(self, target: int, size: int, trips: Trips, *, is_last: bool) -> bool:
        """Send messages of one size; True if it was the last size, because no more are asked for or this took long."""
        buffer, answer = self._buffer(size), self._buffer(LEAST_SIZE)
        noted: list[tuple[float, float]] = []
        began, order = time.monotonic(), _MORE
        while order == _MORE:
            longest = max((round_trip for _, round_trip in noted), default=0.0)
            enough = len(noted) + 1 >= _WARM_UP + self._options.repeats
            late = len(noted) + 1 >= _LEAST_REPEATS and time.monotonic() - began + longest > self._options.patience
            if enough or late:
                order = _END if is_last or longest > self._options.patience else _NEXT_SIZE
            departure = self._post(buffer, target, order)
            self._take(answer, target)
            arrival = _HEADER.unpack(self._head(answer))[0]
            noted.append((arrival - departure, time.monotonic() - departure))
        for one_way, round_trip in noted[_WARM_UP:] if len(noted) >= _WARM_UP + _LEAST_REPEATS else noted:
            trips.add(size, one_way, round_trip)
        return order == _END

    def answer_sizes(self, source: int) -> None:
        """Answer what ``source`` sends until it says that it is done."""
        answer = self._buffer(LEAST_SIZE)
        for size in self._options.sizes:
            buffer, order = self._buffer(size), _MORE
            while order == _MORE:
                self._take(buffer, source)
                _, due, order = _HEADER.unpack(self._head(buffer))
                _sleep_until(due)
                self._write(answer, time.monotonic(), 0.0, _MORE)
                self._wait(dist.isend(answer, source), source)
            if order == _END:
                return

    def _post(self, buffer: Tensor, target: int, order: int) -> float:
        """Send, and return when; the played link decides when the message is due."""
        departure = time.monotonic()
        self._write(buffer, departure, self._due(target, departure, buffer.numel()), order)
        self._wait(dist.isend(buffer, target), target)
        return departure

    def _due(self, target: int, ready: float, num_bytes: int) -> float:
        if target not in self._wires:
            return 0.0
        link, wire = self._wires[target]
        with self._lock:
            return wire.book(ready, link.seconds(num_bytes))[1]

    # -- streams ------------------------------------------------------------------------------------------------------

    def stream(self, loads: Sequence[tuple[Pair, Load]]) -> dict[Pair, float]:
        """Seconds from now until the last message has arrived, for each of the streams that come to this rank."""
        began = time.monotonic()
        if self._options.backend == "nccl":
            return self._stream_in_order(loads, began)
        rank = self._seat.rank
        coming = {pair: load for pair, load in loads if pair[1] == rank}
        going = {pair: load for pair, load in loads if pair[0] == rank}
        if not coming and not going:
            return {}
        with ThreadPoolExecutor(max_workers=len(coming) + len(going)) as threads:
            drains = {pair: threads.submit(self._drain, pair[0], load) for pair, load in coming.items()}
            pours = [threads.submit(self._pour, pair[1], load) for pair, load in going.items()]
            for pour in pours:
                pour.result()
            return {pair: drain.result() - began for pair, drain in drains.items()}

    def _pour(self, target: int, load: Load) -> None:
        buffers = [self._buffer(load.size) for _ in range(_WINDOW)]
        under_way: list[Any] = [None] * _WINDOW
        for index in range(load.messages):
            slot = index % _WINDOW
            if under_way[slot] is not None:
                self._wait(under_way[slot], target)
            now = time.monotonic()
            self._write(buffers[slot], now, self._due(target, now, load.size), _MORE)
            under_way[slot] = dist.isend(buffers[slot], target)
        for work in under_way:
            if work is not None:
                self._wait(work, target)

    def _drain(self, source: int, load: Load) -> float:
        """When the last message had arrived."""
        buffers = [self._buffer(load.size) for _ in range(min(_WINDOW, load.messages))]
        posted = [dist.irecv(buffer, source) for buffer in buffers]
        for index in range(load.messages):
            slot = index % len(buffers)
            self._wait(posted[slot], source)
            due = _HEADER.unpack(self._head(buffers[slot]))[1]
            if index + len(buffers) < load.messages:
                posted[slot] = dist.irecv(buffers[slot], source)
        _sleep_until(due)
        return time.monotonic()

    def _stream_in_order(self, loads: Sequence[tuple[Pair, Load]], began: float) -> dict[Pair, float]:
        """Streams of a backend whose operations must be issued by one thread: one batch after the other."""
        own = [(pair, load) for pair, load in loads if self._seat.rank in pair]
        buffers = {pair: self._buffer(load.size) for pair, load in own}
        for index in range(max((load.messages for _, load in own), default=0)):
            batch = [
                dist.P2POp(dist.isend, buffers[s, t], t)
                if s == self._seat.rank
                else dist.P2POp(dist.irecv, buffers[s, t], s)
                for (s, t), load in own
                if index < load.messages
            ]
            for work in dist.batch_isend_irecv(batch):
                work.wait()
        self._synchronize()
        end = time.monotonic()
        return {(s, t): end - began for (s, t), _ in own if t == self._seat.rank}

    # -- buffers ------------------------------------------------------------------------------------------------------

    def _buffer(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self._device)

    def _write(self, buffer: Tensor, departure: float, due: float, order: int) -> None:
        head = _HEADER.pack(departure, due, order)
        if self._device.type == "cpu":
            buffer.numpy().data[: _HEADER.size] = head
        else:
            buffer[: _HEADER.size].copy_(torch.frombuffer(bytearray(head), dtype=torch.uint8))

    def _head(self, buffer: Tensor) -> bytes:
        return buffer[: _HEADER.size].cpu().numpy().tobytes()

    def _take(self, buffer: Tensor, source: int) -> None:
        self._wait(dist.irecv(buffer, source), source)

    def _wait(self, work: Any, peer: int) -> None:
        try:
            work.wait(self._wait_limit)
            self._synchronize()
        except RuntimeError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            device = self._seat.endpoints[peer].device
            raise ExternalError(f"lost contact with rank {peer} ({device}): {reason}", retryable=True) from error

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()


def _sleep_until(due: float) -> None:
    wait = due - time.monotonic()
    if wait > 0:
        time.sleep(wait)
