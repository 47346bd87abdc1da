"""What a rank computes on: a CPU core, a core paced to play a slower device, or a CUDA device.

All have the same interface: work happens inside :meth:`ComputeDevice.action`, which says when it started and ended.

Theory of pacing
----------------
A device of speed v is played by one thread. After an action that took c seconds of the thread's CPU time the thread
sleeps until c ÷ v seconds have passed since the action began. CPU time, not wall time: if other processes hold the
core for a while, that delay is not multiplied by 1/v. A sleeping thread leaves its core to others, so devices whose
speeds sum up to at most the number of cores do not disturb each other. The backward pass of a CPU graph runs in the
calling thread, so its CPU time is counted too.

A played device begins with an action as soon as it is free and the action's inputs are there, even if its thread does
not run just then: it slept a little too long, waits for a core that other ranks hold, or is between two actions in the
interpreter. That lateness is the playing machine's and not the device's, and is made up for within the action's sleep.
(Without this, gaps of 0.2 ms in the middle and up to 4 ms made steps of 4 ranks on 2 cores up to 10 % longer than their
actions.) Only where there is nothing left to make up with, the device is late in truth.

When all computing of an action is issued, its end is known although it lies ahead. Messages are packed and sent in that
time, marked as ready at the end: on a real device it is not the device's time that they take.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ignite_scheduler.engine.specification import RankDevice


class Span:
    """When an action started and ended, in seconds of the machine's monotonic clock; ``end`` is right once it is
    ``complete``.
    """

    __slots__ = ("complete", "end", "least", "start")

    def __init__(self, start: float) -> None:
        self.start = self.end = start
        self.least = 0.0
        self.complete = False


class ComputeDevice(ABC):
    """A device's clock: how long its work takes as seen from outside."""

    def __init__(self, place: str) -> None:
        self.torch_device = torch.device(place)
        self._span: Span | None = None

    @contextmanager
    def action(self, ready: float | None = None) -> Iterator[Span]:
        """Do work inside this block; leaving it takes until the device would be done.

        ``ready``: since when all is there that the work needs, on the monotonic clock; None = since now.
        """
        span = self._span = Span(self._start(ready))
        yield span
        self.computed(span)
        wait = span.end - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def computed(self, span: Span) -> None:
        """Say inside the block that all computing is issued: what follows is not the device's work, and sets no pace.

        ``span.end`` is known from here on, even if it lies in the future.
        """
        if not span.complete:
            span.end, span.complete = self._end(span), True

    def takes(self, seconds: float) -> None:
        """Say within an action that it takes no less than this: what it waits for is played."""
        if self._span is not None:
            self._span.least = max(self._span.least, seconds)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do in this block, within an action, what is none of the device's computing."""
        yield

    def _start(self, ready: float | None) -> float:
        """When the device begins with work that it could do since ``ready``: now, unless it is played."""
        return time.monotonic()

    @abstractmethod
    def _end(self, span: Span) -> float:
        """When the device is, or would be, done with the work that was issued since ``span.start``."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What it is, in words; says so where it is emulated."""


class CpuDevice(ComputeDevice):
    """One thread at its own pace."""

    def _end(self, span: Span) -> float:
        return max(time.monotonic(), span.start + span.least)

    @property
    def description(self) -> str:
        return "CPU, one thread"


class HeldDevice(CpuDevice):
    """One thread that a control group holds to ``speed`` cores."""

    def __init__(self, speed: float) -> None:
        super().__init__("cpu")
        self.speed = speed

    @property
    def description(self) -> str:
        return f"CPU, one thread held to {self.speed:g} of a core by a control group (emulated)"


class PacedDevice(ComputeDevice):
    """One thread that plays a device of ``speed`` cores by waiting."""

    def __init__(self, speed: float) -> None:
        super().__init__("cpu")
        self.speed = speed
        self._cpu = 0.0
        self._free_from = 0.0

    def _start(self, ready: float | None) -> float:
        self._cpu, now = time.thread_time(), time.monotonic()
        return now if ready is None else min(now, max(ready, self._free_from))

    def _end(self, span: Span) -> float:
        seconds = (time.thread_time() - self._cpu) / self.speed
        self._free_from = max(span.start + max(seconds, span.least), time.monotonic())
        return self._free_from

    @contextmanager
    def aside(self) -> Iterator[None]:
        before = time.thread_time()
        yield
        self._cpu += time.thread_time() - before

    @property
    def description(self) -> str:
        return f"CPU, one thread paced to {self.speed:g} of a core (emulated)"


class CudaDevice(ComputeDevice):
    """A CUDA device. Actions are timed by waiting for the current stream."""

    def _end(self, span: Span) -> float:
        torch.cuda.current_stream(self.torch_device).synchronize()
        return time.monotonic()

    @property
    def description(self) -> str:
        return f"{torch.cuda.get_device_name(self.torch_device)} ({self.torch_device})"


def open_device(device: RankDevice) -> ComputeDevice:
    """The compute device that stands for ``device``; an emulated speed of 1 needs no pacing."""
    if device.place != "cpu":
        return CudaDevice(device.place)
    if device.speed is None or device.speed >= 1.0:
        return CpuDevice("cpu")
    if device.held:
        return HeldDevice(device.speed)
    return PacedDevice(device.speed)
