"""``ignite run``: plan, schedule and train jobs now, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, FOLDER, Duration, Percent, calibration_option
from ignite_scheduler.cli.output import emit, is_document, output_option, seconds, show, span, table
from ignite_scheduler.daemon.estimate import STARTUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ignite_scheduler.api import Ran
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.daemon.report import JobReport
    from ignite_scheduler.model import Cluster, Job, Profile

EPILOG: Final = """\b
Examples:
  ignite run job.yaml --cluster cluster.yaml
  ignite run a.yaml b.yaml c.yaml --cluster cluster.yaml --policy backfill --directory runs/three
  ignite run --resume runs/three
  ignite calibrate runs/three --write calibration.json
  ignite run job.yaml --cluster cluster.yaml --calibration calibration.json

\b
Ctrl-C once saves a checkpoint of every job and stops (exit code 130; --resume goes on from there); twice kills.
Devices with a speed are played by this machine: each works at that share of one core, and says so.
"""


@click.command(epilog=EPILOG)
@click.argument("job_files", type=FILE, nargs=-1, metavar="JOB...")
@click.option("-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="The cluster's document.")
@click.option("--policy", default="ignite", show_default=True, help="Who gets what: fifo, backfill or ignite.")
@click.option("--directory", type=FOLDER, metavar="FOLDER", help="Where the run is kept [default: a new one in runs/].")
@click.option("--resume", "resumed", type=FOLDER, metavar="FOLDER", help="Go on with an interrupted run.")
@click.option(
    "--memory-margin", type=Percent(), default="0%", show_default=True, help="Count so much more memory than computed."
)
@click.option(
    "--startup",
    type=Duration(),
    help=f"Expected time of a start, for promises [default: the calibration's, else {STARTUP:g}s].",
)
@calibration_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    job_files: tuple[Path, ...],
    cluster_file: Path | None,
    policy: str,
    directory: Path | None,
    resumed: Path | None,
    memory_margin: float,
    startup: float | None,
    calibration_file: Path | None,
    output: str,
) -> None:
    """Plan, schedule and train JOBs now, until all are done; then show planned against measured."""
    from ignite_scheduler import api
    from ignite_scheduler.api.running import check_jobs
    from ignite_scheduler.cli.live import watching

    if resumed is not None:
        if job_files or cluster_file or directory or calibration_file:
            raise click.UsageError("--resume knows its jobs, cluster, directory and calibration: give nothing else")
        with watching() as watch:
            ran = api.resume(resumed, watch=watch)
    else:
        if not job_files or cluster_file is None:
            raise click.UsageError("give at least one JOB and --cluster FILE, or --resume FOLDER")
        jobs, cluster = [api.load_job(path) for path in job_files], api.load_cluster(cluster_file)
        calibration = None if calibration_file is None else api.load_calibration(calibration_file)
        profiles = check_jobs(jobs, {}) | measured_profiles(jobs)
        _warn_of_limits(jobs, cluster, profiles, calibration)
        with watching() as watch:
            ran = api.run(
                jobs,
                cluster,
                policy=policy,
                directory=directory,
                profiles=profiles,
                memory_margin=memory_margin,
                startup=startup,
                calibration=calibration,
                watch=watch,
            )
    _show(ran, output)
    ctx.exit(exit_code(ran))


def measured_profiles(jobs: Sequence[Job]) -> dict[str, Profile]:
    """Profiles of the jobs that name none, measured now on this machine."""
    from ignite_scheduler import api
    from ignite_scheduler.cli.profile import progress_on_stderr

    found = {}
    for job in jobs:
        if job.model.profile is None:
            with progress_on_stderr(job.name) as progress:
                found[job.name] = api.profile(job, progress=progress)
    return found


def _warn_of_limits(
    jobs: Sequence[Job], cluster: Cluster, profiles: dict[str, Profile], calibration: Calibration | None
) -> None:
    """Say before the start what each job's plan warns of, such as a time limit that cannot hold its steps."""
    from ignite_scheduler import api

    for job in jobs:
        if job.queue.max_time is None:
            continue
        planned = api.plan(job, cluster, profile=profiles.get(job.name), calibration=calibration)
        for warning in planned.plan.warnings if planned.feasible else ():
            exits.say(f"warning: {job.name}: {warning}")


def _show(ran: Ran, output: str) -> None:
    for notice in ran.report.notices:
        exits.say(notice)
    exits.say(f"run: {ran.directory}")
    if is_document(output):
        emit(ran.to_dict(), output)
        return
    show(outcome_table(ran))
    for drift in ran.report.slow:
        show(str(drift))
    for job in ran.report.jobs:
        if job.refused is not None:
            show(f"{job.job_id} cannot run ({job.refused.code}): {job.refused.text}")
        elif str(job.state) != "finished" and job.reason is not None:
            show(f"{job.job_id} is {job.state}: {job.reason.text}")


def outcome_table(ran: Ran) -> Table:
    """Planned against measured, promised against real, a row for each job."""
    rows = [_row(job) for job in ran.report.jobs]
    columns = [
        "job",
        "state",
        "devices",
        "planned step",
        "measured",
        "error",
        "promised finish",
        "real",
        "error",
        "kept",
        "loss",
    ]
    return table(columns, rows, right="345678")


def _row(job: JobReport) -> list[str]:
    from rich.markup import escape

    losses = job.measured.losses
    return [
        escape(job.job_id),
        str(job.state),
        escape(", ".join(job.plans[-1].device_ids)) if job.plans else "–",
        seconds(job.planned_step),
        seconds(job.measured.step),
        signed(job.step_error),
        promise_text(job),
        seconds(job.story.finished),
        signed(job.promise_error),
        kept_text(job),
        f"{losses[0]:.3g} → {losses[-1]:.3g}" if losses else "–",
    ]


def promise_text(job: JobReport) -> str:
    """The finish that was promised when the job was admitted, with its range where there was one."""
    return "–" if job.promise is None else span(job.promise.finish_low, job.promise.finish_high)


def kept_text(job: JobReport) -> str:
    """Whether the job finished within the range that was promised; a dash where no range was."""
    return "–" if job.promise_kept is None else "yes" if job.promise_kept else "no"


def signed(value: float | None) -> str:
    """A relative error in percent, with its sign.

    >>> signed(0.051)
    '+5.1 %'
    """
    return "–" if value is None else f"{100 * value:+.1f} %"


def exit_code(ran: Ran) -> int:
    """What the run amounts to: done, interrupted, failed, or refused."""
    report = ran.report
    if report.outcome in ("interrupted", "killed"):
        return exits.INTERRUPTED
    if report.finished:
        return exits.DONE
    refusals = [job.refused for job in report.jobs if job.refused is not None]
    if len(refusals) < sum(str(job.state) != "finished" for job in report.jobs):
        return exits.FAILED
    late = all(refusal.code == "deadline" for refusal in refusals)
    return exits.DEADLINE if late else exits.CANNOT_BE_PLANNED
