"""Messages on their way: each buffer is free as soon as its receiver has it, not only at the end of the step.

A send of gloo can only be waited for, not looked at; so for each receiver a thread waits for the sends in their order.
What goes wrong is told at the next :meth:`Deliveries.flush`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Delivery(NamedTuple):
    """One message under way: what to wait for, and the memory that it lies in until then."""

    wait: Callable[[], Any]
    buffer: Tensor


class Deliveries:
    """The sends of one rank.

    Parameters
    ----------
    threads
        Wait beside the rank's own thread. False where waiting only orders work on a device: then it is done in
        :meth:`flush`.
    """

    def __init__(self, *, threads: bool) -> None:
        self._threads = threads
        self._queues: dict[int, queue.Queue[Delivery | None]] = {}
        self._left: list[Delivery] = []
        self._errors: list[Exception] = []

    def add(self, delivery: Delivery, target: int) -> None:
        """Hold the buffer until rank ``target`` has it."""
        if not self._threads:
            self._left.append(delivery)
            return
        if target not in self._queues:
            self._queues[target] = queue.Queue()
            threading.Thread(
                target=self._serve, args=(self._queues[target],), daemon=True, name=f"sends to rank {target}"
            ).start()
        self._queues[target].put(delivery)

    def flush(self) -> None:
        """Wait until all are delivered; raises the first error that waiting met."""
        for line in self._queues.values():
            line.join()
        left, self._left = self._left, []
        for delivery in left:
            delivery.wait()
        if self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """Flush, and end the threads."""
        try:
            self.flush()
        finally:
            for line in self._queues.values():
                line.put(None)
            self._queues.clear()

    def _serve(self, line: queue.Queue[Delivery | None]) -> None:
        while (delivery := line.get()) is not None:
            try:
                delivery.wait()
            except Exception as error:
                self._errors.append(error)
            del delivery
            line.task_done()
