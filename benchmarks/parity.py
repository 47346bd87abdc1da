"""Parity: the same four-job workload in simulation and on real local processes, job completion times side by side.

Both sides have the same deciding code, documents, measured profiles and fixed cost of an attempt; they differ in
their world. The simulated times come from planned numbers alone. The last columns say where a difference comes from:
simulated once more with the step times that the run measured (what is left then is not the cost model's), and the
seconds that planning took in the run (none in simulation).

    python benchmarks/parity.py [--policy NAME] [--steps N] [--jobs a,b,…] [--calibration FILE] [--write FILE]

With ``--calibration`` both sides plan with it. Takes two or three minutes. The machine should have nothing else to do:
other load slows down the real side only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import median

from ignite_scheduler import api
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.daemon.report import JobReport
from ignite_scheduler.formats.workload import WorkloadJob
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile
from ignite_scheduler.policy import make_policy
from ignite_scheduler.simulation import Costs, PolicyResult, simulate
from tables import stamp, table

ARRIVALS = {"alexnet": 0.0, "gpt": 3.0, "vgg": 6.0, "squeezenet": 9.0}
BAND = 0.15  # of the real job completion time: what is asked for

Planner = Callable[[Job, Cluster, tuple[str, ...]], Sequence[Plan] | Infeasible]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job. Times in seconds."""

    job: str
    real: float
    simulated: float
    explained: float
    step_error: float | None
    startup: float | None
    planning: float | None
    real_start: float
    simulated_start: float

    @property
    def error(self) -> float:
        """Simulated ÷ real − 1."""
        return self.simulated / self.real - 1

    @property
    def explained_error(self) -> float:
        """The same with measured step times."""
        return self.explained / self.real - 1


def documents(steps: int | None, names: Sequence[str]) -> tuple[Cluster, list[Job]]:
    """The demo's cluster and jobs."""
    folder = resources.files("ignite_scheduler.cli.demo")
    with resources.as_file(folder / "cluster.yaml") as path:
        cluster = api.load_cluster(path)
    jobs = []
    for name in names:
        with resources.as_file(folder / f"{name}.yaml") as path:
            job = api.load_job(path)
            jobs.append(job if steps is None else replace(job, steps=steps))
    return cluster, jobs


def measured_fixed_cost(jobs: Sequence[Job], cluster: Cluster, profiles: Mapping[str, Profile], folder: Path) -> float:
    """Median seconds that an attempt takes beside its steps: processes, weights, data, a slow first step, the last
    save.

    From one-step runs of all jobs, one after another: command to end, less the planned step.
    """
    short = [replace(job, steps=1) for job in jobs]
    ran = api.run(short, cluster, policy="fifo", directory=folder, profiles=profiles)
    found = []
    for job in ran.report.jobs:
        attempt, step = job.story.attempts[-1], job.planned_step
        if attempt.ended is None or step is None:
            sys.exit(f"the one-step run of {job.job_id} did not finish")
        found.append(attempt.ended - attempt.commanded - step)
    return median(found)


def simulated(jobs: Sequence[Job], cluster: Cluster, policy: str, costs: Costs, planner: Planner) -> PolicyResult:
    """The workload, simulated."""
    workload = [WorkloadJob(submit=ARRIVALS[job.name], job=job) for job in jobs]
    return simulate(workload, cluster, make_policy(policy), planner=planner, costs=costs)


def with_measured_steps(planner: Planner, reports: Mapping[str, JobReport]) -> Planner:
    """The planner, with each job's step times stretched by what the run measured."""

    def plans(job: Job, cluster: Cluster, device_ids: tuple[str, ...]) -> Sequence[Plan] | Infeasible:
        found = planner(job, cluster, device_ids)
        factor = 1 + (reports[job.name].step_error or 0.0)
        return found if isinstance(found, Infeasible) else [_stretched(plan, factor) for plan in found]

    return plans


def _stretched(plan: Plan, factor: float) -> Plan:
    old = plan.predicted
    steps = {name: getattr(old, name) * factor for name in ("step", "step_low", "step_high")}
    return replace(plan, predicted=replace(old, **steps))


def compare(
    jobs: Sequence[Job], cluster: Cluster, policy: str, folder: Path, calibration: Calibration | None
) -> tuple[list[Row], float]:
    """Measure, run, simulate; a row for each job, and the fixed cost of an attempt."""
    profiles = {job.name: api.profile(job) for job in jobs}
    fixed = measured_fixed_cost(jobs, cluster, profiles, folder / "fixed")
    arrivals = {job.name: ARRIVALS[job.name] for job in jobs}
    ran = api.run(
        jobs,
        cluster,
        policy=policy,
        directory=folder / "run",
        profiles=profiles,
        submit=arrivals,
        startup=fixed,
        calibration=calibration,
    )
    unfinished = [job.job_id for job in ran.report.jobs if job.story.jct is None]
    if unfinished:
        sys.exit(f"these jobs did not finish: {', '.join(unfinished)}")
    reports = {job.job_id: job for job in ran.report.jobs}
    planner, costs = api.catalogue_planner(profiles, calibration), Costs(startup=fixed)
    plain = {row.job: row for row in simulated(jobs, cluster, policy, costs, planner).rows}
    stretched = with_measured_steps(planner, reports)
    explained = {row.job: row for row in simulated(jobs, cluster, policy, costs, stretched).rows}
    rows = []
    for name, report in reports.items():
        story = report.story
        rows.append(
            Row(
                job=name,
                real=story.jct or 0.0,
                simulated=plain[name].jct or 0.0,
                explained=explained[name].jct or 0.0,
                step_error=report.step_error,
                startup=report.startups[-1] if report.startups else None,
                planning=None if story.planned is None else story.planned - story.submitted,
                real_start=story.started or 0.0,
                simulated_start=plain[name].start or 0.0,
            )
        )
    return rows, fixed


def comparison(rows: Sequence[Row], fixed: float, policy: str) -> str:
    """The comparison as Markdown."""
    head = [
        "job",
        "simulated s",
        "real s",
        "error",
        "step error",
        "with measured steps s",
        "error",
        "start-up s",
        "planning s",
    ]
    lines = [
        [
            row.job,
            f"{row.simulated:.2f}",
            f"{row.real:.2f}",
            f"{row.error:+.1%}",
            "–" if row.step_error is None else f"{row.step_error:+.1%}",
            f"{row.explained:.2f}",
            f"{row.explained_error:+.1%}",
            "–" if row.startup is None else f"{row.startup:.2f}",
            "–" if row.planning is None else f"{row.planning:.2f}",
        ]
        for row in rows
    ]
    inside = sum(abs(row.error) <= BAND for row in rows)
    found = [
        table(head, lines),
        "",
        f"Policy `{policy}`; charged to each attempt in simulation beside its steps: {fixed:.2f} s (one-step runs).",
        f"{inside} of {len(rows)} jobs within {BAND:.0%}; median |error| {median(abs(row.error) for row in rows):.1%}, "
        f"with measured step times {median(abs(row.explained_error) for row in rows):.1%}.",
        f"Order of starts: real {in_order(rows, 'real_start')}; simulated {in_order(rows, 'simulated_start')}.",
        stamp(),
    ]
    return "\n".join(found)


def in_order(rows: Sequence[Row], field: str) -> str:
    """Jobs in the order of their starts: a decision that falls otherwise moves whole jobs, not per cents."""
    return ", ".join(row.job for row in sorted(rows, key=lambda row: float(getattr(row, field))))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="ignite")
    parser.add_argument("--steps", type=int, help="training steps of each job [default: as the demo's jobs say]")
    parser.add_argument("--jobs", default=",".join(ARRIVALS), help="names, separated by commas")
    parser.add_argument("--calibration", type=Path, help="as 'ignite calibrate' writes it")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    cluster, jobs = documents(chosen.steps, chosen.jobs.split(","))
    calibration = None if chosen.calibration is None else api.load_calibration(chosen.calibration)
    with tempfile.TemporaryDirectory() as folder:
        text = comparison(*compare(jobs, cluster, chosen.policy, Path(folder), calibration), chosen.policy)
    print(text)
    if chosen.write is not None:
        chosen.write.write_text(f"# Parity of simulation and real runs\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
