"""What is refused at the door: a job whose deadline or budget no candidate can keep, even alone on an idle cluster,
and one whose own document rules out every plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ignite_scheduler.control.events import JobSubmitted
from ignite_scheduler.model import Infeasible
from ignite_scheduler.policy.candidates import Candidate, RangeEnd
from ignite_scheduler.policy.view import remaining_seconds
from ignite_scheduler.units import format_duration

_ROUNDING: Final = 1e-9
"""Relative: a limit that is met but for rounding is met."""

MENDABLE: Final = frozenset({"devices", "memory", "links", "dtype", "deadline", "budget"})
"""Codes of refusals that other devices may mend: a job refused so waits while known devices are out of service.

More or larger devices mend ``devices`` and ``memory``, others links and ``dtype``, faster ones a ``deadline``, cheaper
ones a ``budget``. All other codes (``input``, ``layers``, ``schedule``, …) are about the job alone."""


def startup_seconds(spec: JobSubmitted, work: float, end: RangeEnd = "expected") -> float:
    """Seconds before the first unit of work of a gang that has ``work`` units left to do."""
    startup = spec.startup
    if spec.startup_range is not None and end != "expected":
        startup = spec.startup_range[end == "late"]
    return startup + (spec.restart if work < spec.work else 0.0)


def run_seconds(spec: JobSubmitted, work: float, rate: float, end: RangeEnd = "expected") -> float:
    """Seconds of a gang of the job for the last ``work`` units at ``rate``: start-up, work and checkpoints.

    ``end`` says which start-up is meant.
    """
    return remaining_seconds(
        work,
        rate,
        startup=startup_seconds(spec, work, end),
        checkpoint_every=spec.checkpoint_every,
        checkpoint_cost=spec.checkpoint_cost,
    )


def late_seconds(spec: JobSubmitted, work: float, candidate: Candidate) -> float:
    """Seconds of such a gang at the late end of its range; what is expected where no range is known."""
    return run_seconds(spec, work, candidate.pace("late"), "late")


def refusal(spec: JobSubmitted, candidates: Iterable[Candidate], at: float) -> Infeasible | None:
    """Why the job is not admitted at time ``at``; None if it is. Times in the answer count from its submission.

    A deadline is held against the late end of the range, a budget against what is expected.
    """
    seconds = [(run_seconds(spec, spec.work, each.rate), each) for each in candidates]
    if not seconds:
        return None
    deadline, budget = spec.terms.deadline, spec.terms.budget
    earliest = at - spec.at + min(late_seconds(spec, spec.work, each) for _, each in seconds)
    if deadline is not None and earliest > deadline * (1 + _ROUNDING):
        return Infeasible(
            code="deadline",
            text=f"the deadline of {format_duration(deadline)} cannot be met: the earliest finish, alone on an idle "
            f"cluster, is {format_duration(earliest)} after submission",
            earliest_finish=earliest,
            cures=(f"a deadline of at least {format_duration(earliest)}", "faster or more devices", "less work"),
        )
    costs = [_cost(time, each) for time, each in seconds]
    known = [cost for cost in costs if cost is not None]
    if budget is not None and len(known) == len(costs) and min(known) > budget * (1 + _ROUNDING):
        return Infeasible(
            code="budget",
            text=f"the budget of {budget:g} cannot be kept: the cheapest way to run the job costs {min(known):.4g}",
            cures=(f"a budget of at least {min(known):.4g}", "cheaper devices", "less work"),
        )
    return None


def affordable(spec: JobSubmitted, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidates that keep the job's budget; those of unknown price are kept."""
    budget = spec.terms.budget
    if budget is None:
        return candidates
    costs = [_cost(run_seconds(spec, spec.work, each.rate), each) for each in candidates]
    return tuple(
        each for each, cost in zip(candidates, costs, strict=True) if cost is None or cost <= budget * (1 + _ROUNDING)
    )


def _cost(seconds: float, candidate: Candidate) -> float | None:
    return None if candidate.price is None else candidate.price * seconds
