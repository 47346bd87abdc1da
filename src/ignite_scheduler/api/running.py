"""Training jobs now, in the foreground, and what came of it as a value for scripts and notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.api.markup import table
from ignite_scheduler.api.measuring import profile as measure
from ignite_scheduler.api.planning import read_calibration
from ignite_scheduler.api.staleness import check_structure
from ignite_scheduler.api.tracing import Traced, trace
from ignite_scheduler.errors import ConflictError, InputError
from ignite_scheduler.formats import load_cluster, load_job, load_profile
from ignite_scheduler.model import Cluster, Job, Profile

if TYPE_CHECKING:
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.cost.drift import Drift
    from ignite_scheduler.daemon.report import JobReport, RunReport
    from ignite_scheduler.daemon.view import Snapshot
    from ignite_scheduler.planner import Objective


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What came of a run: planned against measured for each job. Shows itself as table and picture in a notebook."""

    report: RunReport
    cluster: Cluster

    @property
    def directory(self) -> Path:
        """Where the run is kept."""
        return self.report.directory

    def job(self, name: str) -> JobReport:
        """What came of one job; InputError names those that there are."""
        for one in self.report.jobs:
            if one.job_id == name:
                return one
        raise InputError(f"no job {name!r} in this run; there are: {', '.join(one.job_id for one in self.report.jobs)}")

    def trace(self, job: str) -> Traced:
        """Planned and measured steps of one job."""
        return trace(self.directory, job=job)

    def to_dict(self) -> dict[str, Any]:
        """The document ``ignite/run-report/v1``."""
        report = self.report
        return {
            "schema": "ignite/run-report/v1",
            "outcome": report.outcome,
            "policy": report.policy,
            "directory": str(report.directory),
            "end_s": report.end,
            "jobs": [_job_entry(job) for job in report.jobs],
            "slow_devices": [drift_entry(drift) for drift in report.slow],
            "notices": list(report.notices),
        }

    def to_svg(self) -> str:
        """Who held which device when, and who waited, as a Gantt picture."""
        from ignite_scheduler.api.cluster_pictures import Holding, cluster_panel, cluster_svg

        holdings = [
            Holding(
                job=bar.job_id,
                devices=(bar.device_id,),
                start=bar.start,
                working=bar.end if bar.working is None else bar.working,
                end=bar.end,
            )
            for bar in self.report.bars
        ]
        submissions = {job.job_id: job.story.submitted for job in self.report.jobs}
        devices = [device.id for device in self.cluster.devices]
        title = f"{self.cluster.name}, measured: {self.report.policy}"
        return cluster_svg([cluster_panel(title, devices, holdings, submissions=submissions)], submissions)

    def _repr_html_(self) -> str:
        names = (
            "name",
            "state",
            "planned_step_s",
            "measured_step_s",
            "step_error",
            "promised_finish_low_s",
            "promised_finish_high_s",
            "finish_s",
            "promise_kept",
        )
        rows = [[entry[name] for name in names] for entry in self.to_dict()["jobs"]]
        said = (*map(str, self.report.slow), *self.report.notices)
        notices = "".join(f"<p>{html.escape(notice)}</p>" for notice in said)
        return table(names, rows) + notices + self.to_svg()


def _job_entry(job: JobReport) -> dict[str, Any]:
    story, promise, measured = job.story, job.promise, job.measured
    return {
        "name": job.job_id,
        "state": str(job.state),
        "reason": None if job.reason is None else job.reason.text,
        "refused": None if job.refused is None else job.refused.text,
        "directory": str(job.directory),
        "devices": list(job.plans[-1].device_ids) if job.plans else [],
        "attempts": len(story.attempts),
        "submit_s": story.submitted,
        "start_s": story.started,
        "finish_s": story.finished,
        "promised_start_s": None if promise is None else promise.start,
        "promised_finish_low_s": None if promise is None else promise.finish_low,
        "promised_finish_high_s": None if promise is None else promise.finish_high,
        "promise_error": job.promise_error,
        "promise_kept": job.promise_kept,
        "planned_step_s": job.planned_step,
        "planned_step_low_s": job.plans[-1].predicted.step_low if job.plans else None,
        "planned_step_high_s": job.plans[-1].predicted.step_high if job.plans else None,
        "measured_step_s": measured.step,
        "measured_steps": measured.num_steps,
        "step_error": job.step_error,
        "first_loss": measured.losses[0] if measured.losses else None,
        "last_loss": measured.losses[-1] if measured.losses else None,
    }


def drift_entry(drift: Drift) -> dict[str, Any]:
    """A device's computing time against what was predicted, as our documents have it."""
    return {
        "device": drift.device,
        "kind": drift.kind,
        "ratio": drift.ratio,
        "limit": drift.limit,
        "num_actions": drift.num_actions,
        "slow": drift.is_slow,
    }


def run(
    jobs: Sequence[Job | str | Path],
    cluster: Cluster | str | Path,
    *,
    policy: str = "ignite",
    directory: str | Path | None = None,
    profiles: Mapping[str, Profile] | None = None,
    submit: Mapping[str, float] | None = None,
    objective: Objective = "time",
    memory_margin: float = 0.0,
    startup: float | None = None,
    calibration: Calibration | str | Path | None = None,
    watch: Callable[[Snapshot], None] | None = None,
) -> Ran:
    """Plan, schedule and train jobs now, on this machine, until all are done.

    Parameters
    ----------
    jobs, cluster
        Values, or paths of documents.
    policy
        Who gets what.
    directory
        Where the run is kept; must not hold anything. None = a new one under ``runs/``.
    profiles
        Job name → measured layers, for jobs that name no profile; what is still missing is measured first.
    submit
        Job name → seconds from the start of the run to its submission; 0 where missing.
    objective, memory_margin
        As in :func:`~ignite_scheduler.api.planning.plan`.
    startup
        Seconds that a start is expected to take, for what is foretold; None = as the calibration says, else
        :data:`~ignite_scheduler.daemon.estimate.STARTUP`.
    calibration
        What earlier runs taught; as in :func:`~ignite_scheduler.api.planning.plan`. It is kept with the run.
    watch
        Shown how the run stands, a few times a second.

    Raises
    ------
    InputError
        A document or a name is wrong; nothing was started then.
    ConflictError
        The directory is in use, or a job's ``output`` is taken.
    """
    from ignite_scheduler import wiring

    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    loaded = [job if isinstance(job, Job) else load_job(job) for job in jobs]
    learnt = read_calibration(calibration)
    known = check_jobs(loaded, profiles or {})
    outputs = {job.name: _free_output(job) for job in loaded if job.output is not None}
    place = Path(directory) if directory is not None else new_directory(loaded)
    asked = [
        wiring.ask(
            job,
            known[job.name] if job.name in known else measure(job),
            submitted=(submit or {}).get(job.name, 0.0),
            startup=startup,
            calibration=learnt,
        )
        for job in loaded
    ]
    report = wiring.run(
        asked,
        cluster,
        directory=place,
        policy=policy,
        objective=objective,
        memory_margin=memory_margin,
        calibration=learnt,
        watch=watch,
    )
    for job in report.jobs:
        if job.job_id in outputs:
            _link(outputs[job.job_id], job.directory)
    return Ran(report=report, cluster=cluster)


def resume(directory: str | Path, *, watch: Callable[[Snapshot], None] | None = None) -> Ran:
    """Go on with an interrupted or killed run where its journal ends.

    Raises
    ------
    NotFoundError
        There is no run in the directory.
    ConflictError
        Another process drives it.
    """
    from ignite_scheduler import wiring
    from ignite_scheduler.daemon.directory import RunDirectory

    report = wiring.resume(Path(directory), watch=watch)
    return Ran(report=report, cluster=RunDirectory(Path(directory)).request().cluster)


def new_directory(jobs: Sequence[Job]) -> Path:
    """A directory under ``runs/`` that does not exist yet, named by the time and, for one job, by the job."""
    from ignite_scheduler.daemon.directory import slug

    name = jobs[0].name if len(jobs) == 1 else "run"
    stem = Path("runs") / f"{slug(name)}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    place, serial = stem, 1
    while place.exists():
        serial += 1
        place = stem.with_name(f"{stem.name}-{serial}")
    return place


def check_jobs(jobs: Sequence[Job], profiles: Mapping[str, Profile]) -> dict[str, Profile]:
    """See that all jobs can be trained by their profiles, before anything is measured or started.

    ``profiles``: job name → profile, in place of the one that the job names. Returned are those that the jobs have;
    the others' are still to be measured.

    Raises
    ------
    InputError
        A job has nothing to train, or its profile is that of another model.
    ExternalError
        PyTorch is missing.
    """
    from ignite_scheduler import zoo

    found: dict[str, Profile] = {}
    for job in jobs:
        zoo.check_trainable(job)
        profile = profiles.get(job.name)
        if profile is None and job.model.profile is not None:
            profile = load_profile(job.model.profile)
        if profile is not None:  # otherwise it will be measured on this very model
            check_structure(job, profile)
            found[job.name] = profile
    return found


def _free_output(job: Job) -> Path:
    place = Path(job.output or "")
    if place.is_symlink() or not place.exists():
        return place
    raise ConflictError(f"the output of job {job.name!r}, {place}, is there already: move it away or name another")


def _link(place: Path, directory: Path) -> None:
    """Make a job's ``output`` a link to its directory in the run; a link of an earlier run is replaced."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    place.symlink_to(directory.resolve(), target_is_directory=True)
