"""What every search for one job hands back: the best assignment, what it met on the way, and what is proven."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ignite_scheduler.cost import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of one search.

    ``value`` is that of the problem's objective by the exact timeline, ``bound`` a value that no plan of the searched
    family goes below; ``others`` are good assignments met on the way, for alternatives. ``best`` is None where no plan
    was found: that is a proof of infeasibility only if ``complete``. ``work`` is counted, never clocked.
    """

    best: Assignment | None
    value: float = math.inf
    bound: float = 0.0
    method: str = ""
    complete: bool = False
    others: tuple[Assignment, ...] = ()
    work: int = 0
