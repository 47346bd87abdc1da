"""First come, first served with EASY backfilling: the head has a reservation, others may pass only if they do not
delay it."""

from __future__ import annotations

from dataclasses import dataclass

from ignite_scheduler.policy.reservations import Reservation, releases_of, reserve
from ignite_scheduler.policy.view import Decision, Option, QueuedJob, Reason, Start, View, fits, lacking, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """EASY (extensible Argonne scheduling system) backfilling.

    Jobs start in order while they fit. The first that does not fit gets a reservation: the start at which it would
    finish soonest if what runs ends as expected. A later job may start now only if it ends by then or takes devices
    that are spare then. ``depth`` limits how many jobs behind the head are looked at in one round.

    References
    ----------
    A. Mu'alem, D. Feitelson, "Utilization, predictability, workloads, and user runtime
    estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001. Deviation: a job may have several
    options (mixes of devices); the head takes the one that finishes first, the others the fastest that fits.
    """

    depth: int = 2000
    name: str = "backfill"

    def decide(self, view: View) -> Decision:
        """O(jobs started + ``depth``) jobs looked at, one walk over the releases."""
        free = dict(view.free)
        left = view.num_free
        starts: list[Start] = []
        reasons: dict[str, Reason] = {}
        head: QueuedJob | None = None
        reservation: Reservation | None = None
        seen = 0
        for job in view.queue:
            option = _first_allowed(job, free, reservation, view.now)
            if option is not None:
                take(option.needs, free)
                left -= option.candidate.num_devices
                starts.append(Start(job_id=job.job_id, option=option))
                if reservation is not None:
                    reservation.book(option, view.now)
            elif head is None:
                head = job
                reasons[job.job_id] = lacking(job, free)
                reservation = reserve(job, view.now, free, releases_of(view, starts))
                if reservation is None:  # no end that is known makes room for it: nothing can be judged against it
                    break
                would_delay = Reason(code="reservation", text=f"would delay the reserved start of job {job.job_id!r}")
            elif any(fits(o.needs, free) for o in job.options):
                reasons[job.job_id] = would_delay
            seen += head is not None
            if seen > self.depth or (left == 0 and head is not None):
                break
        rest = None
        if head is not None:
            rest = Reason(code="busy", text=f"waits for devices; job {head.job_id!r} has the next reservation")
        return Decision(starts=tuple(starts), reasons=reasons, rest=rest, method="EASY backfilling")


def _first_allowed(job: QueuedJob, free: dict[str, int], reservation: Reservation | None, now: float) -> Option | None:
    for option in job.options:
        if fits(option.needs, free) and (reservation is None or reservation.allows(option, now)):
            return option
    return None
