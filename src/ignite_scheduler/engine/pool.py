"""A few ranks that stay up and run one small pipeline after another, for checks."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from ignite_scheduler.engine.processes import fork, meeting_point, new_scope, use_loopback
from ignite_scheduler.errors import ExternalError, IgniteError, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a task knows of its place: its rank, the store, a fresh scope, and process groups.

    ``group`` is that of the ranks that take part; ``groups`` has one for each run of the pool's ranks.
    """

    rank: int
    store: Any
    group: Any
    groups: Mapping[tuple[int, ...], Any]
    scope: str


Task = Callable[..., Any]
"""A function of a module: task(seat, *arguments) → something that pickles."""


class RankPool:
    """``size`` ranks; use as a context manager, so that none is left behind."""

    def __init__(self, size: int, *, timeout: float = 60.0) -> None:
        self._timeout = timeout
        scope, port = new_scope("pool"), meeting_point()
        self._members = [
            fork(_serve, partial(self._arguments, rank, size, port, scope), f"pool rank {rank}") for rank in range(size)
        ]
        self._num_tasks = 0

    def _arguments(self, rank: int, size: int, port: int, scope: str, pipe: Connection) -> tuple[Any, ...]:
        return rank, size, pipe, port, scope, self._timeout

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, task: Task, arguments: Sequence[Any], *, ranks: int) -> list[Any]:
        """Run the task on the first ``ranks`` ranks together; their results by rank.

        Raises
        ------
        InputError
            The task raised one of our errors on some rank; the pool is closed then.
        ExternalError
            A rank died or was silent for too long; the pool is closed then.
        """
        self._num_tasks += 1
        pipes = [pipe for _, pipe in self._members[:ranks]]
        for pipe in pipes:
            pipe.send((task, tuple(arguments), ranks, f"task-{self._num_tasks}/"))
        results: list[Any] = []
        troubles: list[BaseException] = []
        for rank, pipe in enumerate(pipes):
            try:
                if not pipe.poll(2 * self._timeout):
                    raise EOFError
                result = pipe.recv()
            except (EOFError, OSError):
                result = ExternalError(f"rank {rank} of the pool died or was silent for {2 * self._timeout:g} s")
            (troubles if isinstance(result, BaseException) else results).append(result)
        if troubles:
            self.close()
            raise next((t for t in troubles if isinstance(t, InputError)), troubles[0])
        return results

    def close(self) -> None:
        """End all ranks."""
        for process, pipe in self._members:
            pipe.close()
            process.kill()
        for process, _ in self._members:
            process.join()
        self._members = []


def _serve(rank: int, size: int, pipe: Connection, port: int, scope: str, timeout: float) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    use_loopback()
    wait = timedelta(seconds=timeout)
    store = PrefixStore(scope, TCPStore("127.0.0.1", port, is_master=False, timeout=wait))
    dist.init_process_group("gloo", store=PrefixStore("group", store), rank=rank, world_size=size, timeout=wait)
    runs = [tuple(range(first, end)) for first in range(size) for end in range(first + 1, size + 1)]
    groups = {run: dist.new_group(list(run)) for run in runs}
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, orders), daemon=True, name="orders").start()
    while True:
        task, arguments, ranks, task_scope = orders.get()
        seat = Seat(rank=rank, store=store, group=groups[tuple(range(ranks))], groups=groups, scope=task_scope)
        try:
            answer = task(seat, *arguments)
        except IgniteError as error:
            answer = error
        except Exception as error:
            answer = ExternalError(f"rank {rank}: {type(error).__name__}: {error}")
        pipe.send(answer)


def _listen(pipe: Connection, orders: queue.SimpleQueue[Any]) -> None:
    """Take orders; the end of the pipe is the end of the process, even in the middle of a task."""
    while True:
        try:
            orders.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)
