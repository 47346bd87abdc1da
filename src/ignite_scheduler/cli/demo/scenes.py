"""The demo, scene by scene: fleet, measuring, plans, the run, and what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Final

from ignite_scheduler import api
from ignite_scheduler.cli.live import watching
from ignite_scheduler.cli.output import console, seconds, show, table
from ignite_scheduler.cli.plan_table import bottleneck_text, proof_text, short_form, stage_table
from ignite_scheduler.errors import ConflictError, ExternalError
from ignite_scheduler.model import Cluster, Job, Plan, Profile

ARRIVALS: Final[Mapping[str, float]] = {"alexnet": 0.0, "gpt": 3.0, "vgg": 6.0, "squeezenet": 9.0}
"""Job → seconds from the start of the run to its submission."""
MARKER: Final = "demo.json"
"""File by which a report of an earlier demo is known, and may be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long the demo may take: training steps of each job, passes and seconds of each measurement."""

    steps: int
    repeats: int
    time_limit: float


FULL: Final = Effort(steps=36, repeats=30, time_limit=15.0)
QUICK: Final = Effort(steps=10, repeats=5, time_limit=4.0)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Everything that the demo brought about, for its report. ``startup`` is in seconds."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    profiles: Mapping[str, Profile]
    plans: Mapping[str, api.Planned]
    startup: float
    ran: api.Ran
    simulated: api.Simulated


def play(folder: Path, *, quick: bool, policy: str) -> int:
    """Run the demo and write its report into ``folder``; the exit code."""
    from ignite_scheduler.cli.demo.report import FINISH_COLUMNS, FORETOLD, finish_rows, write_report
    from ignite_scheduler.cli.run import exit_code, outcome_table
    from ignite_scheduler.policy import make_policy

    make_policy(policy)
    prepare_folder(folder)
    effort = QUICK if quick else FULL
    cluster, jobs = load_documents(effort)
    _title("1  The fleet")
    show_fleet(cluster)
    _title("2  Measuring each model on this machine")
    profiles = {job.name: measure(job, effort) for job in jobs}
    _title("3  The best plan of each job, alone on the cluster")
    plans = {job.name: plan_alone(job, cluster, profiles[job.name]) for job in jobs}
    _title("4  Training all of them, as they arrive")
    startup = measure_startup(cluster, profiles, jobs, folder)
    with watching() as watch:
        ran = api.run(
            jobs,
            cluster,
            policy=policy,
            directory=folder / "run",
            profiles=profiles,
            submit=ARRIVALS,
            startup=startup,
            watch=watch,
        )
    _title("5  What came of it")
    show(outcome_table(ran))
    demo = Demo(
        cluster=cluster,
        jobs=jobs,
        profiles=profiles,
        plans=plans,
        startup=startup,
        ran=ran,
        simulated=simulate_same(jobs, cluster, profiles, policy, startup),
    )
    show("", table(FINISH_COLUMNS, finish_rows(demo), right="1234567"), "", FORETOLD)
    write_report(demo, folder)
    show("", f"report: {folder / 'index.html'}")
    return exit_code(ran)


def load_documents(effort: Effort) -> tuple[Cluster, tuple[Job, ...]]:
    """The demo's cluster and jobs, from the files beside this module."""
    folder = resources.files("ignite_scheduler.cli.demo")
    with resources.as_file(folder / "cluster.yaml") as path:
        cluster = api.load_cluster(path)
    jobs = []
    for name in ARRIVALS:
        with resources.as_file(folder / f"{name}.yaml") as path:
            jobs.append(replace(api.load_job(path), steps=effort.steps))
    return cluster, tuple(jobs)


def prepare_folder(folder: Path) -> None:
    """Make room for the report; only the report of an earlier demo is ever removed.

    Raises
    ------
    ConflictError
        The folder holds something else.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MARKER).is_file():
            raise ConflictError(f"{folder} holds something that is not a demo's report: choose another place by --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text('{"schema": "ignite/demo/v1"}\n')


def show_fleet(cluster: Cluster) -> None:
    """Devices and links, and that they are emulated."""
    from ignite_scheduler.cli.devices import device_table, link_table

    show(device_table(cluster), "", link_table(cluster), "")
    total = sum(device.speed or 0.0 for device in cluster.devices)
    show(
        f"Emulated: each device is this machine's processor, slowed down to its speed by pauses ({total:g} cores in "
        "all); links pause for what their bytes would take. Models, data, training and all times are real."
    )


def measure(job: Job, effort: Effort) -> Profile:
    """Measure a job's layers, with a progress bar."""
    from ignite_scheduler.cli.profile import progress_on_stderr

    with progress_on_stderr(job.name) as progress:
        found = api.profile(job, repeats=effort.repeats, time_limit=effort.time_limit, progress=progress)
    kind = found.reference or next(iter(found.layers[0].times))
    size = max(found.layers[0].times[kind])
    whole = sum(layer.times[kind][size].forward + layer.times[kind][size].backward for layer in found.layers)
    weight = sum(layer.parameter_bytes for layer in found.layers) / 1e6
    show(
        f"{job.name}: {len(found.layers)} layers, {weight:.1f} MB of parameters, "
        f"forward and backward of {size} samples take {seconds(whole)} on one core"
    )
    return found


def plan_alone(job: Job, cluster: Cluster, profile: Profile) -> api.Planned:
    """Plan a job on the whole cluster and say why the plan is as it is."""
    planned = api.plan(job, cluster, profile=profile)
    if not isinstance(planned.answer, Plan):
        show(f"[bold]{job.name}[/] cannot be planned: {planned.answer.text}", "")
        return planned
    plan = planned.answer
    show(f"[bold]{job.name}[/]  {short_form(plan)}", "", stage_table(plan))
    show("", f"step {seconds(plan.predicted.step)}, bottleneck {bottleneck_text(plan)}; {proof_text(plan)}")
    show(*(f"  • left out {unused.device}: {unused.reason}" for unused in plan.unused), "")
    return planned


def measure_startup(cluster: Cluster, profiles: Mapping[str, Profile], jobs: Sequence[Job], folder: Path) -> float:
    """Seconds that a start takes here: two steps of the first job are run for it, so that promises can reckon with it.

    Raises
    ------
    ExternalError
        The trial did not finish.
    """
    trial = replace(jobs[0], name="trial", steps=2)
    with console(err=True).status("measuring how long a start takes"):
        ran = api.run([trial], cluster, directory=folder / "trial", profiles={"trial": profiles[jobs[0].name]})
    startups = ran.job("trial").startups
    if not ran.report.finished or not startups:
        reason = ran.job("trial").reason
        raise ExternalError(f"the trial run did not finish: {reason.text if reason else ran.report.outcome}")
    shutil.rmtree(folder / "trial")
    show(f"A start takes about {seconds(startups[-1])} here (measured: processes, weights, data).", "")
    return startups[-1]


def simulate_same(
    jobs: Sequence[Job], cluster: Cluster, profiles: Mapping[str, Profile], policy: str, startup: float
) -> api.Simulated:
    """The same jobs at the same times in simulation, by the same deciding code."""
    from ignite_scheduler.formats import WorkloadJob
    from ignite_scheduler.simulation import Costs

    workload = [WorkloadJob(submit=ARRIVALS[job.name], job=job) for job in jobs]
    return api.simulate(
        workload, cluster, policies=[policy], costs=Costs(startup=startup, restart=0.0), profiles=profiles
    )


def _title(text: str) -> None:
    show("", f"[bold reverse] {text} [/]", "")
