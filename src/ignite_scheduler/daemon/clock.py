"""The time of a run that outlives its processes."""

from __future__ import annotations

import time


class WallClock:
    """Seconds since ``origin`` (a time since 1970): goes on while no process lives, and never falls within one."""

    def __init__(self, origin: float) -> None:
        self._offset = time.time() - origin - time.monotonic()

    def now(self) -> float:
        """Seconds since the origin."""
        return time.monotonic() + self._offset
