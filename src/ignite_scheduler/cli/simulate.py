"""``ignite simulate``: a workload under several policies, side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, FOLDER, Duration, Spread, calibration_option, cluster_option
from ignite_scheduler.cli.output import (
    emit,
    is_document,
    number,
    output_option,
    percent,
    searching,
    seconds,
    show,
    table,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ignite_scheduler.api import Simulated
    from ignite_scheduler.simulation import JobRow, PolicyResult

EPILOG: Final = """\b
Examples:
  ignite simulate workload.jsonl --cluster cluster.yaml --policy fifo,backfill,ignite
  ignite simulate workload.jsonl -c cluster.yaml --jobs-csv jobs.csv --report pictures
  ignite simulate workload.jsonl -c cluster.yaml --startup 30s --checkpoint 5s --noise 10% --seed 1

\b
WORKLOAD has one job a line: its time of submission and the keys of job.yaml, or a throughput table:
  {"submit_s": 0, "name": "j1", "rates": {"V100:1": 12.5, "V100:4": 44.0}, "total": 100000}

\b
Policies: fifo (strict order), backfill (a reservation for the head of the queue), ignite (the default: chooses
devices for all jobs jointly). The deciding code is that of the live loop.
"""


@click.command(epilog=EPILOG)
@click.argument("workload_file", type=FILE, metavar="WORKLOAD")
@cluster_option
@click.option(
    "--policy", "policies", default="ignite", show_default=True, metavar="NAME,NAME,…", help="Policies to play."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the noise.")
@click.option(
    "--noise", type=Spread(), default=0.0, show_default=True, help="Spread of true rates: sd of log(true ÷ predicted)."
)
@click.option("--startup", type=Duration(), help="Paid at each start of a job [default: the calibration's, else 0s].")
@click.option("--restart", type=Duration(), help="Paid beside it at a start from a checkpoint [default: 0s].")
@click.option("--checkpoint", type=Duration(), help="Paid for each checkpoint [default: the calibration's, else 0s].")
@calibration_option
@click.option("--jobs-csv", type=FILE, metavar="FILE", help="Write a line for each job under each policy.")
@click.option(
    "--report",
    "folder",
    type=FOLDER,
    metavar="FOLDER",
    help="Write report.json, jobs.csv and a picture for each policy.",
)
@output_option
def command(
    *,
    workload_file: Path,
    cluster_file: Path,
    policies: str,
    seed: int,
    noise: float,
    startup: float | None,
    restart: float | None,
    checkpoint: float | None,
    calibration_file: Path | None,
    jobs_csv: Path | None,
    folder: Path | None,
    output: str,
) -> None:
    """Play WORKLOAD on a simulated cluster under several policies and compare what they make of it."""
    from ignite_scheduler import api
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats.files import write_text
    from ignite_scheduler.simulation import Costs

    check_places(jobs_csv)
    names = tuple(name.strip() for name in policies.split(",") if name.strip())
    costs = Costs(startup=startup, restart=restart, checkpoint=checkpoint)
    with searching():
        simulated = api.simulate(
            workload_file,
            cluster_file,
            policies=names,
            seed=seed,
            noise=noise,
            costs=costs,
            calibration=calibration_file,
        )
    if jobs_csv is not None:
        write_text(jobs_csv, simulated.to_csv())
    if folder is not None:
        _write_report(simulated, folder)
    _warn_of_rejections(simulated)
    if is_document(output):
        emit(simulated.to_dict(), output)
    else:
        show(comparison_table(simulated))
        if output == "wide":
            show("", job_table(simulated))


def _write_report(simulated: Simulated, folder: Path) -> None:
    from ignite_scheduler.formats.files import write_json, write_text

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "report.json", simulated.to_dict())
    write_text(folder / "jobs.csv", simulated.to_csv())
    for result in simulated.results:
        write_text(folder / f"{result.policy}.svg", simulated.to_svg(result.policy))
    exits.say(f"report: {folder}")


def _warn_of_rejections(simulated: Simulated) -> None:
    for result in simulated.results:
        for row in result.rows:
            if row.rejection is not None:
                exits.say(f"warning: {result.policy} rejects {row.job}: {row.rejection.text}")


def comparison_table(simulated: Simulated) -> Table:
    """Figures as rows, policies as columns."""
    from ignite_scheduler.cli.plan_table import money

    def row(name: str, cell: Callable[[PolicyResult], str]) -> list[str]:
        return [name, *(cell(result) for result in simulated.results)]

    currency = simulated.cluster.currency
    rows = [
        row("jobs finished", lambda r: f"{r.finished} of {r.jobs}"),
        row("JCT mean", lambda r: seconds(r.jct_mean)),
        row("JCT median", lambda r: seconds(r.jct_p50)),
        row("JCT 95th percentile", lambda r: seconds(r.jct_p95)),
        row("makespan", lambda r: seconds(r.makespan)),
        row("queueing mean", lambda r: seconds(r.queueing_delay_mean)),
        row("deadlines met", lambda r: f"{r.deadlines_met} of {r.deadlines}" if r.deadlines else "–"),
        row("utilisation", lambda r: percent(r.utilisation)),
        row("device hours", lambda r: number(r.device_hours)),
        row("cost", lambda r: money(r.cost, currency)),
        row("energy", lambda r: "–" if r.energy is None else f"{r.energy / 3.6e6:.4g} kWh"),
        row("worst fairness ρ", lambda r: number(r.fairness_worst_rho, 3)),
        row("preemptions", lambda r: str(r.preemptions)),
        row("promise error, median", lambda r: percent(r.promise_error_p50)),
        row("decision, mean", lambda r: seconds(r.decision_mean)),
        row("decision, longest", lambda r: seconds(r.decision_max)),
        row("processor time", lambda r: seconds(r.cpu)),
    ]
    return table(["", *(result.policy for result in simulated.results)], rows, right="123456789")


def job_table(simulated: Simulated) -> Table:
    """A row for each job under each policy."""
    rows = [
        [
            result.policy,
            row.job,
            *map(seconds, (row.submit, row.start, row.finish, row.jct)),
            str(row.devices),
            note(row),
        ]
        for result in simulated.results
        for row in result.rows
    ]
    columns = ["policy", "job", "submitted", "start", "finish", "JCT", "devices", ""]
    return table(columns, rows, right="23456")


def note(row: JobRow) -> str:
    """What is remarkable about a job: rejected, late, preempted."""
    if row.rejection is not None:
        return f"rejected: {row.rejection.code}"
    said = ["late"] if row.met is False else []
    return ", ".join([*said, *([f"preempted {row.preemptions}×"] if row.preemptions else [])])
