"""A run's steps as they were planned and as they were measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ignite_scheduler.api.planned import Planned
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.formats.timeline import StepTimes, TimelineRecord
from ignite_scheduler.model import Plan


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Planned and measured steps of one job. ``planned`` is None where a run has no cluster and profile beside it."""

    job: str
    planned: TimelineRecord | None
    measured: TimelineRecord

    @property
    def median_step(self) -> StepTimes:
        """The measured step of median length (the lower one of two)."""
        steps = sorted(self.measured.steps, key=lambda step: step.step)
        return steps[(len(steps) - 1) // 2]

    def to_chrome_trace(self) -> dict[str, Any]:
        """Planned and measured steps in one Chrome trace, which Perfetto opens."""
        from ignite_scheduler.formats import chrome_trace

        return chrome_trace(self.planned, self.measured)

    def to_svg(self) -> str:
        """The planned step and the measured one of median length, on one time axis."""
        from ignite_scheduler.api.pipeline_pictures import step_panel, step_svg

        step = self.median_step
        panels = []
        if self.planned is not None:
            panels.append(step_panel(f"{self.job}: planned", self.planned.steps[0], self.planned.devices))
        devices = self.planned.devices if self.planned is not None else self.measured.devices
        panels.append(step_panel(f"{self.job}: measured, step {step.step_index}", step, devices))
        return step_svg(panels)


def trace(run: str | Path, *, job: str | None = None) -> Traced:
    """The steps of one job of a run.

    Parameters
    ----------
    run
        The directory of a run, or that of one of its jobs.
    job
        Name of the job; may be left out if there is only one.

    Raises
    ------
    NotFoundError
        There is no such run or job, or it has no measured steps yet.
    InputError
        The run has several jobs and none was named.
    """
    from ignite_scheduler.formats import load_plan, load_timeline
    from ignite_scheduler.formats.run_files import PLAN_FILE, TIMELINE_FILE

    folder = _job_folder(Path(run), job)
    if not (folder / TIMELINE_FILE).is_file():
        raise NotFoundError(f"no measured steps in {folder}: expected {folder / TIMELINE_FILE}, as a run leaves it")
    measured = load_timeline(folder / TIMELINE_FILE)
    if not measured.steps:
        raise NotFoundError(f"no measured steps in {folder / TIMELINE_FILE}")
    plan = load_plan(folder / PLAN_FILE)
    return Traced(job=plan.job, planned=_planned(folder, plan), measured=measured)


def _planned(folder: Path, plan: Plan) -> TimelineRecord | None:
    from ignite_scheduler.formats import load_cluster, load_job, load_profile

    files = folder / "job.json", folder / "profile.json", folder.parent.parent / "cluster.json"
    if not all(file.is_file() for file in files):
        return None
    planned = Planned(
        answer=plan, job=load_job(files[0]), profile=load_profile(files[1]), cluster=load_cluster(files[2])
    )
    return planned.to_timeline()


def _job_folder(run: Path, job: str | None) -> Path:
    if not run.is_dir():
        raise NotFoundError(f"no run in {run}: there is no such folder")
    if not (run / "jobs").is_dir():
        return run
    names = {_name(folder): folder for folder in sorted((run / "jobs").iterdir()) if folder.is_dir()}
    if job is None and len(names) == 1:
        return next(iter(names.values()))
    if job is None:
        raise InputError(f"the run in {run} has several jobs; name one of {', '.join(names)}")
    if job not in names:
        raise NotFoundError(f"no job {job!r} in the run in {run}; there are: {', '.join(names)}")
    return names[job]


def _name(folder: Path) -> str:
    from ignite_scheduler.formats import load_job

    return load_job(folder / "job.json").name if (folder / "job.json").is_file() else folder.name
