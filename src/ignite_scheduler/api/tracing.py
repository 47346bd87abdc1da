"""A run's steps as they were planned and as they were measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.api.planned import Planned
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.formats.timeline import StepTimes, TimelineRecord

if TYPE_CHECKING:
    from ignite_scheduler.daemon.directory import Asked
    from ignite_scheduler.model import Cluster


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
            panels.append(step_panel(f"{self.job}: planned", self.planned.steps[0], self.planned.row_names))
        names = self.measured.row_names or (self.planned.row_names if self.planned is not None else ())
        panels.append(step_panel(f"{self.job}: measured, step {step.step_index}", step, names))
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

    folder, asked, cluster = _find(Path(run), job)
    if not (folder / TIMELINE_FILE).is_file():
        raise NotFoundError(f"no measured steps in {folder}: expected {folder / TIMELINE_FILE}, as a run leaves it")
    measured = load_timeline(folder / TIMELINE_FILE)
    if not measured.steps:
        raise NotFoundError(f"no measured steps in {folder / TIMELINE_FILE}")
    plan = load_plan(folder / PLAN_FILE)
    planned = None
    if asked is not None and cluster is not None:
        planned = Planned(answer=plan, job=asked.job, profile=asked.profile, cluster=cluster).to_timeline()
    return Traced(job=plan.job, planned=planned, measured=measured)


def _find(run: Path, job: str | None) -> tuple[Path, Asked | None, Cluster | None]:
    """The folder of the job, and what the run was asked about it (None where the folder stands alone)."""
    from ignite_scheduler.daemon.directory import RunDirectory

    if not run.is_dir():
        raise NotFoundError(f"no run in {run}: there is no such folder")
    folder = run.resolve()
    inside = folder.parent.name == "jobs" and not (folder / "jobs").is_dir()
    root = RunDirectory(folder.parent.parent if inside else folder)
    if not (root.root / "run.json").is_file():
        return run, None, None
    request = root.request()
    by_name = {asked.job.name: asked for asked in request.jobs}
    if inside:
        asked = next((asked for name, asked in by_name.items() if root.job(name) == folder), None)
        return run, asked, request.cluster
    if job is None and len(by_name) > 1:
        raise InputError(f"the run in {run} has several jobs; name one of {', '.join(by_name)}")
    name = job if job is not None else next(iter(by_name))
    if name not in by_name:
        raise NotFoundError(f"no job {name!r} in the run in {run}; there are: {', '.join(by_name)}")
    return root.job(name), by_name[name], request.cluster
