"""``ignite compare``: plans side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli.arguments import FILE, calibration_option
from ignite_scheduler.cli.output import emit, is_document, output_option, show

if TYPE_CHECKING:
    from ignite_scheduler.model import Infeasible, Plan

EPILOG: Final = """\b
Examples:
  ignite plan job.yaml -c small.yaml -o json > small.json
  ignite plan job.yaml -c large.yaml -o json > large.json
  ignite compare small.json large.json
  ignite compare one.json other.json --calibration calibration.json --job job.yaml --cluster cluster.yaml
"""


@click.command(epilog=EPILOG)
@click.argument("plan_files", type=FILE, nargs=-1, required=True, metavar="PLAN PLAN...")
@calibration_option
@click.option("--job", "job_file", type=FILE, metavar="FILE", help="The plans' job; needed with --calibration.")
@click.option(
    "-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="Their cluster; needed with --calibration."
)
@click.option("--profile", "profile_file", type=FILE, metavar="FILE", help="Measured layers, instead of the job's own.")
@output_option
def command(
    *,
    plan_files: tuple[Path, ...],
    calibration_file: Path | None,
    job_file: Path | None,
    cluster_file: Path | None,
    profile_file: Path | None,
    output: str,
) -> None:
    """Put plans side by side; the first one is what the others are measured against.

    Beside the figures it says in what each differs: devices, where layers stand, schedule, memory, what binds. With
    -o json the keys are those of "ignite schema comparison".

    With --calibration each plan is timed anew from its job, profile and cluster, with what earlier runs taught: a
    difference that is within the ranges of both is said to be none.
    """
    if len(plan_files) < 2:
        raise click.UsageError("give at least two plans to compare")
    documents = [job_file, cluster_file]
    if calibration_file is None and any((*documents, profile_file)):
        raise click.UsageError("--job, --cluster and --profile are for timing plans anew: give --calibration too")
    if calibration_file is not None and not all(documents):
        raise click.UsageError("--calibration times the plans anew: give --job and --cluster too")
    from ignite_scheduler.formats import comparison_document, load_answer
    from ignite_scheduler.model import Plan

    answers = [load_answer(path) for path in plan_files]
    if calibration_file is not None and job_file is not None and cluster_file is not None:
        from ignite_scheduler import api

        job, cluster = api.load_job(job_file), api.load_cluster(cluster_file)
        profile = None if profile_file is None else api.load_profile(profile_file)
        calibration = api.load_calibration(calibration_file)
        answers = [
            api.retimed(each, job, cluster, profile=profile, calibration=calibration).answer
            if isinstance(each, Plan)
            else each
            for each in answers
        ]
    if is_document(output):
        emit(comparison_document([str(path) for path in plan_files], answers), output)
        return
    _show([path.name for path in plan_files], answers)


def _show(names: list[str], answers: list[Plan | Infeasible]) -> None:
    from rich.markup import escape

    from ignite_scheduler.cli.difference_tables import comparison_table, difference_lines

    show(comparison_table(names, answers, None))
    for name, answer in zip(names[1:], answers[1:], strict=True):
        lines = difference_lines(answers[0], answer) or ["the same choice"]
        show("", f"{escape(name)} differs from {escape(names[0])}:", *(f"  • {escape(line)}" for line in lines))
