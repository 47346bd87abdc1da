"""Strict first come, first served: gangs whole or not at all, nobody overtakes."""

from __future__ import annotations

from dataclasses import dataclass

from ignite_scheduler.policy.view import Decision, QueuedJob, Reason, Start, View, fits, lacking, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """Strict order: the head of the queue starts on its fastest option that fits what is free.

    The first job that fits nowhere ends the round.
    """

    name: str = "fifo"

    def decide(self, view: View) -> Decision:
        """What starts now; O(jobs started) jobs are looked at."""
        free: dict[str, int] | None = None
        starts: list[Start] = []
        blocked: QueuedJob | None = None
        for job in view.queue:
            option = next((o for o in job.options if fits(o.needs, view.free if free is None else free)), None)
            if option is None:
                blocked = job
                break
            if free is None:
                free = dict(view.free)
            take(option.needs, free)
            starts.append(Start(job_id=job.job_id, option=option))
        if blocked is None:
            return Decision(starts=tuple(starts), method="strict order")
        return Decision(
            starts=tuple(starts),
            reasons={blocked.job_id: lacking(blocked, view.free if free is None else free)},
            rest=Reason(code="order", text=f"waits behind job {blocked.job_id!r} in strict order"),
            method="strict order",
        )
