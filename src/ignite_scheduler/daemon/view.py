"""How a run stands at one moment, for people who watch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ignite_scheduler.control import FINAL, HOLDING, Controller, State, forecast
from ignite_scheduler.cost.drift import Drift
from ignite_scheduler.daemon.story import JobStory
from ignite_scheduler.model import Plan
from ignite_scheduler.policy.view import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the gang of a job says itself. ``step`` and ``remaining`` are in seconds, None while estimating.

    ``slow`` are its devices that compute slower than their range allows.
    """

    done: float
    loss: float | None = None
    step: float | None = None
    remaining: float | None = None
    slow: tuple[Drift, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job now. Times are seconds since the run's origin.

    ``start``, ``finish_low`` and ``finish_high`` are foretold from the present state; None where nothing can be said.
    ``pace`` is None while no gang works. ``plan`` is that of the gang; its devices stand for ``device_ids``, in order.
    """

    job_id: str
    state: State
    reason: Reason | None
    device_ids: tuple[str, ...]
    epoch: int
    done: float
    work: float
    submitted: float
    started: float | None
    finished: float | None
    start: float | None
    finish_low: float | None
    finish_high: float | None
    pace: Pace | None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole run now. ``holders`` maps each device of the cluster to the job that holds it, None = free.

    ``arriving`` are (job id, time of submission) of jobs that are yet to come. ``stopping`` is whether the run was
    asked to save and stop.
    """

    now: float
    jobs: tuple[JobView, ...]
    arriving: tuple[tuple[str, float], ...]
    holders: Mapping[str, str | None]
    stopping: bool = False


def snapshot(
    controller: Controller,
    stories: Mapping[str, JobStory],
    paces: Mapping[str, Pace],
    *,
    now: float,
    arriving: tuple[tuple[str, float], ...] = (),
    stopping: bool = False,
) -> Snapshot:
    """The run as the controller, the records and the gangs (``paces``, by job id) have it at ``now``.

    Notes
    -----
    Looks ahead over all unfinished jobs, which costs as much as simulating them.
    """
    unfinished = any(record.state not in FINAL for record in controller.jobs.values())
    foretold = forecast(controller, now) if unfinished and not stopping else {}
    holders: dict[str, str | None] = {device.id: None for device in controller.cluster.devices}
    views = []
    for job_id, record in controller.jobs.items():
        held = record.gang.device_ids if record.gang is not None and record.state in HOLDING else ()
        holders.update(dict.fromkeys(held, job_id))
        start, low, high = foretold.get(job_id, (None, None, None))
        story, pace = stories[job_id], paces.get(job_id)
        views.append(
            JobView(
                job_id=job_id,
                state=record.state,
                reason=controller.reason(job_id),
                device_ids=held,
                epoch=record.epoch,
                done=record.done if pace is None else max(record.done, pace.done),
                work=record.spec.work,
                submitted=story.submitted,
                started=story.started,
                finished=story.finished,
                start=start,
                finish_low=low,
                finish_high=high,
                pace=pace,
                plan=record.gang.candidate.plan if held and record.gang is not None else None,
            )
        )
    return Snapshot(now=now, jobs=tuple(views), arriving=arriving, holders=holders, stopping=stopping)
