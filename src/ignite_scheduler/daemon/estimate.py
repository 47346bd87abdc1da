"""How long a training job takes to start, and how long it still takes, from the steps that it has done.

The first steps of a job are slow (allocation, compilation, cold caches), and now and then one step is (a checkpoint,
a neighbour). A plain average carries the slow start along for hours, the last step alone jumps about. So: look only
at the later half of what was seen, at most :data:`WINDOW` steps, and take the mean of its middle half. A single stray
step in a hundred, a quarter of the window even, changes nothing, and a lasting change of pace is believed within one
window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

STARTUP: Final = 0.25
"""Seconds from the command to the first step, where nobody says better.

Starts of gangs of 1 to 4 ranks, forked from a server that has PyTorch loaded, took 0.13 to 0.38 s on two cores with the
small models of the demo; large weights or a cold disk take longer.
"""

FIRST_ESTIMATE: Final = 5
"""Steps that must have been seen before a number is named; before that the answer is "estimating"."""

WARM_UP: Final = 5
"""Steps at the start of each attempt that do not count as measured."""

WINDOW: Final = 40
"""Steps that the estimate looks back at most."""


def midmean(values: Iterable[float]) -> float:
    """Mean of the middle half of ``values`` (interquartile mean), any unit; ValueError if there are none.

    With n values ⌊(n+1)/4⌋ are left out at each end: of three already the least and the largest.

    >>> midmean([2, 2, 10, 2]), midmean([10, 2, 2])
    (2.0, 2.0)
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("expected at least one value, found none")
    cut = (len(ordered) + 1) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)


class StepClock:
    """The recent time of one step of one job: feed it durations, ask it for the pace and what remains.

    A new attempt of the job starts a new clock, since its devices and its warm-up are new.

    >>> clock = StepClock()
    >>> for seconds in [10, 10, 10, 2, 2, 2, 2, 2, 2, 2]:
    ...     clock.add(seconds)
    >>> clock.remaining(990)
    1980.0
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._count = 0

    def add(self, seconds: float) -> None:
        """Take note of one step that took ``seconds``."""
        self._recent.append(seconds)
        self._count += 1

    @property
    def count(self) -> int:
        """Steps seen so far."""
        return self._count

    @property
    def step(self) -> float | None:
        """Seconds of a present step; None while estimating (fewer than :data:`FIRST_ESTIMATE` steps seen).

        Notes
        -----
        Of n ≤ WINDOW steps seen the later ⌈n/2⌉ count, of more the later ``WINDOW``: the start is out of the window
        after as many steps as it had.
        """
        if self._count < FIRST_ESTIMATE:
            return None
        kept = len(self._recent)
        used = min(kept, -(-self._count // 2))
        return midmean(islice(self._recent, kept - used, kept))

    @property
    def rate(self) -> float | None:
        """Steps per second at the present pace; None while estimating."""
        step = self.step
        return None if step is None or step <= 0 else 1.0 / step

    def remaining(self, steps: float) -> float | None:
        """Seconds for ``steps`` more at the present pace; None while estimating."""
        step = self.step
        return None if step is None else steps * step
