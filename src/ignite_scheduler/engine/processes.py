"""Processes forked from one server that has torch loaded, and the store in which they meet."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import multiprocessing.forkserver
import os
import platform
import signal
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.errors import ExternalError

_PRELOADED: Final = ["ignite_scheduler.engine.preloaded"]

_SET_TIMER_SLACK: Final = 29
"""``PR_SET_TIMERSLACK`` of Linux's prctl.h; the value is in nanoseconds."""

_SET_SCHEDULING: Final = {"x86_64": 314, "aarch64": 274}
"""Number of Linux's ``sched_setattr`` by machine."""
_SCHEDULING: Final = struct.Struct("=IIQiIQQQII")
"""``struct sched_attr`` of Linux's sched/types.h: size, policy, flags, nice, priority, slice in nanoseconds, …"""
_SLICE: Final = 100_000
"""Nanoseconds; the least that Linux takes."""

_numbers = itertools.count()
_lock = threading.Lock()
_store: Any = None


def meeting_point() -> int:
    """Port of this process's store on the loopback interface; made at the first call, which loads torch."""
    global _store  # noqa: PLW0603  # one store serves all gangs of a process
    with _lock:
        if _store is None:
            from datetime import timedelta

            try:
                from torch.distributed import TCPStore  # type: ignore[attr-defined]
            except ImportError as error:
                raise ExternalError(
                    "training needs PyTorch, which is not installed: pip install 'ignite-scheduler[torch]'"
                ) from error
            _store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        port: int = _store.port
        return port


def use_loopback() -> None:
    """Let gloo of this process talk over the loopback interface: all ranks are on this machine."""
    if Path("/sys/class/net/lo").exists():  # elsewhere it bears another name, and gloo finds it by the host's
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def wake_in_time() -> None:
    """Let this thread go on as soon as its sleeps should end.

    Linux may let a sleep last 50 µs longer by default, and a thread that wakes may have to wait for the end of another
    one's turn. A rank sleeps at each action and message, and ranks outnumber cores where devices are played. With
    short turns (which Linux grants since 6.12) 1 in 100 threads that woke between two busy ones on two cores was late
    by 0.25 ms or more, instead of 2 ms.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
            number = _SET_SCHEDULING.get(platform.machine())
            if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
                nice = os.getpriority(os.PRIO_PROCESS, 0)
                asked = _SCHEDULING.pack(_SCHEDULING.size, os.SCHED_OTHER, 0, nice, 0, _SLICE, 0, 0, 0, 0)
                library.syscall(number, 0, asked, 0)  # an older Linux heeds the rest, which is as it was


def new_scope(name: str) -> str:
    """A prefix in the store that nobody else has used."""
    return f"{name}/{os.getpid()}-{next(_numbers)}"


def open_server() -> None:
    """Start the server that processes are forked from, if it is not there; it loads torch in the background.

    Started from the main thread, it and all that it forks are deaf to Ctrl-C from their first instruction on: a
    terminal sends it to the whole process group, but what to make of it is the supervisor's to decide.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    with _deaf():
        multiprocessing.forkserver.ensure_running()


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C for a moment, so that a process started in it inherits that; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def fork(
    target: Callable[..., None], args: Callable[[Connection], tuple[Any, ...]], name: str
) -> tuple[BaseProcess, Connection]:
    """Start a process; ``args`` makes its arguments from its end of a pipe. Returns the process and our end.

    The process is forked from the server, so it holds no copy of our end: when we die it reads the end of the pipe.
    """
    open_server()
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=True)
    process = context.Process(target=target, args=args(theirs), name=name, daemon=True)
    with _without_main():
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def _without_main() -> Iterator[None]:
    """Let children not run the caller's main script again: a script or notebook needs no ``if __name__`` guard."""
    with _lock:
        main_module = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main_module
