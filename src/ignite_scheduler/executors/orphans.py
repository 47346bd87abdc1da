"""Processes of an attempt whose driver died: found by what it wrote down, and ended before the job runs again.

A rank ends by itself when its supervisor is gone, so there is hardly ever anything to do here; but a rank that was
frozen or hangs in a driver cannot, and two gangs of one job must never write into one directory. A process id alone
may have been given to somebody else since: only together with its start time does it name a process. Where the
platform has no ``/proc`` nothing is ended.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ignite_scheduler.errors import ExternalError

FILE: Final = "processes.json"
_PATIENCE: Final = 10.0  # seconds until a killed process must be gone


def start_ticks(process_id: int) -> int | None:
    """When the process started, in clock ticks since the machine's boot; None if there is no such process alive."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return None if state in "ZX" else int(rest[18])


def note(directory: Path, process_ids: Iterable[int]) -> None:
    """Write down the processes of the attempt that lives in ``directory``."""
    known = {str(process_id): start_ticks(process_id) for process_id in process_ids}
    fresh = directory / f".{FILE}.new"
    fresh.write_text(json.dumps(known) + "\n")
    fresh.replace(directory / FILE)


def end(directory: Path) -> tuple[int, ...]:
    """End those processes noted in ``directory`` that are still alive; their ids.

    Raises
    ------
    ExternalError
        A process is still there some seconds after it was killed.
    """
    alive = {process_id: ticks for process_id, ticks in _noted(directory).items() if start_ticks(process_id) == ticks}
    for process_id in alive:
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    until = time.monotonic() + _PATIENCE
    while any(start_ticks(process_id) == ticks for process_id, ticks in alive.items()):
        if time.monotonic() > until:
            raise ExternalError(f"processes {sorted(alive)} of an earlier attempt in {directory} cannot be ended")
        time.sleep(0.01)
    return tuple(sorted(alive))


def _noted(directory: Path) -> dict[int, int]:
    """Process id → start; empty where nothing was noted, or nothing that can be read."""
    try:
        noted = json.loads((directory / FILE).read_text())
        return {int(process_id): int(ticks) for process_id, ticks in noted.items() if ticks is not None}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
