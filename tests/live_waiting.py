"""Waiting for other processes, with an end to the patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(holds: Callable[[], bool], complaint: str, *, seconds: float = 30.0) -> None:
    """Return as soon as it holds; fail with the complaint if that takes too long."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(complaint)
        time.sleep(0.02)


def processes_marked(mark: str) -> list[int]:
    """Ids of the live processes whose environment holds ``mark`` (``NAME=value``)."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue  # gone meanwhile, or somebody else's
    return found
