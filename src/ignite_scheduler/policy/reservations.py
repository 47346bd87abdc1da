"""When could a job start if the running ones end as expected, and what may run meanwhile without delaying it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ignite_scheduler.policy.view import Needs, Option, QueuedJob, Start, View, fits, give, take

TOLERANCE: Final = 1e-9
"""Relative: an end that equals the reserved start but for rounding does not delay it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The promised start of a blocked job: from ``start`` on it needs ``option``.

    ``spare`` devices are left over then; :meth:`book` lowers them as other jobs are started beside the reservation.
    """

    job_id: str
    start: float
    option: Option
    spare: dict[str, int]

    def allows(self, option: Option, now: float) -> bool:
        """Whether starting ``option`` now leaves the reservation as it is."""
        return not self.outlasts(option, now) or fits(option.needs, self.spare)

    def book(self, option: Option, now: float) -> None:
        """Note that ``option`` starts now: if it outlives the reserved start, its devices are not spare then."""
        if self.outlasts(option, now):
            take(option.needs, self.spare)

    def outlasts(self, option: Option, now: float) -> bool:
        """Whether ``option``, started now, would still hold its devices at the reserved start."""
        return now + option.seconds > self.start + TOLERANCE * max(1.0, abs(self.start))


def releases_of(view: View, starts: Iterable[Start] = ()) -> Iterator[tuple[float, Needs]]:
    """(expected end, devices) of all that runs or is about to start, soonest first; ends in the past count as now."""
    running = ((max(end, view.now), view.running[job_id].needs) for end, job_id in view.releases)
    starting = sorted((view.now + start.option.seconds, start.option.needs) for start in starts)
    return heapq.merge(running, starting, key=lambda release: release[0])


def reserve(
    job: QueuedJob, now: float, free: Mapping[str, int], releases: Iterable[tuple[float, Needs]]
) -> Reservation | None:
    """The start of the job with the earliest *finish* over its options (equal: the earlier start).

    Walks the releases in time order and stops as soon as no option that still waits for devices could finish sooner
    than the best one that has them. None where even all releases do not make room.
    """
    available = dict(free)
    waiting = job.options
    best: tuple[float, float, Option] | None = None
    spare: dict[str, int] = {}
    for time, group in _instants(now, releases):
        for needs in group:
            give(needs, available)
        if best is not None:
            waiting = tuple(o for o in waiting if time + o.seconds < best[0] - TOLERANCE * max(1.0, abs(best[0])))
            if not waiting:
                break
        ready = [o for o in waiting if fits(o.needs, available)]
        if ready:
            option = min(ready, key=lambda o: o.seconds)
            best = (time + option.seconds, time, option)
            spare = dict(available)
            waiting = tuple(o for o in waiting if o.seconds < option.seconds)
    if best is None:
        return None
    take(best[2].needs, spare)
    return Reservation(job_id=job.job_id, start=best[1], option=best[2], spare=spare)


def _instants(now: float, releases: Iterable[tuple[float, Needs]]) -> Iterator[tuple[float, list[Needs]]]:
    """The present (with nothing released), then the releases grouped by equal times."""
    time, group = now, list[Needs]()
    for end, needs in releases:
        if end > time:
            yield time, group
            time, group = end, []
        group.append(needs)
    yield time, group
