"""Playing a workload under several policies, over the same deciding code as the live loop."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.api.markup import table
from ignite_scheduler.api.planning import profile_of, read_calibration
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats import load_cluster, load_profile
from ignite_scheduler.formats.calibration import named
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile

if TYPE_CHECKING:
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.formats.workload import WorkloadJob
    from ignite_scheduler.simulation import Costs, PolicyResult


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What each policy made of a workload. Shows itself as a table in a notebook."""

    results: tuple[PolicyResult, ...]
    cluster: Cluster
    workload: str

    def result(self, policy: str) -> PolicyResult:
        """Figures and rows of one policy; InputError names those that were played."""
        for one in self.results:
            if one.policy == policy:
                return one
        raise InputError(f"policy {policy!r} was not played; there are: {', '.join(r.policy for r in self.results)}")

    def to_dict(self) -> dict[str, Any]:
        """The document ``ignite/report/v1``."""
        from ignite_scheduler.simulation import report_document

        return report_document(self.results, cluster=self.cluster.name, workload=self.workload)

    def to_csv(self) -> str:
        """A line for each job under each policy."""
        from ignite_scheduler.simulation import CSV_COLUMNS, csv_rows

        text = io.StringIO()
        writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv_rows(self.results))
        return text.getvalue()

    def to_svg(self, policy: str) -> str:
        """What ran where under one policy, and who waited, as a Gantt picture."""
        from ignite_scheduler.api.cluster_pictures import Holding, cluster_panel, cluster_svg

        result = self.result(policy)
        holdings = [
            Holding(job=one.job, devices=one.device_ids, start=one.start, end=one.end) for one in result.segments
        ]
        submissions = {row.job: row.submit for row in result.rows if row.rejection is None}
        devices = [device.id for device in self.cluster.devices]
        panel = cluster_panel(
            f"{self.workload} on {self.cluster.name}: {policy}", devices, holdings, submissions=submissions
        )
        return cluster_svg([panel], submissions)

    def _repr_html_(self) -> str:
        figures = self.to_dict()["policies"]
        names = list(next(iter(figures.values()), {}))
        return table(["", *figures], [[name, *(figures[policy][name] for policy in figures)] for name in names])


def simulate(
    workload: Sequence[WorkloadJob] | str | Path,
    cluster: Cluster | str | Path,
    *,
    policies: Sequence[str] = ("ignite",),
    seed: int = 0,
    noise: float = 0.0,
    costs: Costs | None = None,
    promises: bool | None = None,
    profiles: Mapping[str, Profile] | None = None,
    calibration: Calibration | str | Path | None = None,
) -> Simulated:
    """What several policies make of one workload on a simulated cluster.

    Parameters
    ----------
    workload
        Jobs with their times of submission, or the path of a JSON-lines file.
    cluster
        A value, or the path of a document.
    policies
        Names; each is played on its own.
    seed, noise
        Of the true rates: log(true ÷ predicted) is normal with standard deviation ``noise``. 0 = as predicted.
    costs
        Seconds that each job pays beside its work: start-up, restart, checkpoint. What is None in there is as the
        calibration measured it, without one nothing.
    promises
        Foretell start and finish of each job at submission; None = only for small workloads.
    profiles
        Job name → measured layers, for jobs that name no profile.
    calibration
        What earlier runs taught; as in :func:`~ignite_scheduler.api.planning.plan`.

    Raises
    ------
    InputError
        A document or a name is wrong, or a job cannot be simulated.
    NotFoundError
        There is no such file.
    """
    from ignite_scheduler.formats.workload import load_workload
    from ignite_scheduler.policy import make_policy
    from ignite_scheduler.simulation import simulate as play

    if not policies or len(set(policies)) < len(policies):
        raise InputError(f"expected names of policies, each once, found {', '.join(policies) or 'none'}")
    chosen = [make_policy(name) for name in policies]
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    if isinstance(workload, str | Path):
        name, jobs = Path(workload).stem, load_workload(workload)
    else:
        name, jobs = "workload", tuple(workload)
    known = _profiles(jobs, profiles or {})
    learnt = read_calibration(calibration)
    planner = catalogue_planner(known, learnt)
    charges = costs if learnt is None else _measured_costs(jobs, known, learnt, costs)
    results = tuple(
        play(jobs, cluster, policy, seed=seed, noise=noise, costs=charges, planner=planner, promises=promises)
        for policy in chosen
    )
    return Simulated(results=results, cluster=cluster, workload=name)


def _measured_costs(
    jobs: Sequence[WorkloadJob], profiles: Mapping[str, Profile], calibration: Calibration, given: Costs | None
) -> dict[str, Costs]:
    """Job name → what was given, the rest as the calibration measured it."""
    from ignite_scheduler.cost.outlook import checkpoint_seconds
    from ignite_scheduler.simulation import Costs

    given, measured = given or Costs(), calibration.startup
    if given.startup is None and measured is not None:
        given = replace(given, startup=measured.middle, startup_range=(measured.low, measured.high))
    found = {one.name: given for one in jobs}
    if given.checkpoint is not None or calibration.checkpoint is None:
        return found
    for one in jobs:
        profile = profiles.get(one.name)
        if isinstance(one.job, Job) and profile is not None:
            found[one.name] = replace(given, checkpoint=checkpoint_seconds(one.job, profile, calibration))
    return found


def _profiles(jobs: Sequence[WorkloadJob], given: Mapping[str, Profile]) -> dict[str, Profile]:
    """Job name → the profile that is given or that the job names, each file read once.

    Read before anything is played: a missing one is said at once, and of which line.
    """
    found, files = dict(given), dict[str, Profile]()
    for one in jobs:
        path = one.job.model.profile if isinstance(one.job, Job) else None
        if path is None or one.name in given:
            continue
        if path not in files:
            if one.source is not None and not Path(path).is_file():
                raise one.source.error(("model", "profile"), f"no file {path!r}; check the path, or measure the model")
            files[path] = load_profile(path)
        found[one.name] = files[path]
    return found


def catalogue_planner(
    profiles: Mapping[str, Profile] | None = None,
    calibration: Calibration | None = None,
) -> Callable[[Job, Cluster, tuple[str, ...]], Sequence[Plan] | Infeasible]:
    """A planner that answers with a job's Pareto set, and remembers: several policies ask the same.

    ``profiles``: job name → profile, for jobs that name none themselves. ``calibration``: charged to each plan.
    """
    known = dict(profiles or {})
    answers: dict[tuple[str, Cluster, tuple[str, ...]], Sequence[Plan] | Infeasible] = {}
    files: dict[str, Profile] = {}

    def profile_for(job: Job) -> Profile:
        if job.name in known:
            return known[job.name]
        path = job.model.profile
        if path is None:
            return profile_of(job)
        if path not in files:
            files[path] = load_profile(path)
        return files[path]

    def plans(job: Job, cluster: Cluster, device_ids: tuple[str, ...]) -> Sequence[Plan] | Infeasible:
        from ignite_scheduler.engine.abilities import ABILITIES
        from ignite_scheduler.planner import Problem, catalogue
        from ignite_scheduler.planner.problem import charged

        key = (job.name, cluster, device_ids)
        if key not in answers:
            problem = Problem(
                job=job, profile=profile_for(job), cluster=cluster, devices=device_ids, abilities=ABILITIES
            )
            found = catalogue(charged(problem, calibration))
            named_too = found if isinstance(found, Infeasible) else [named(plan, calibration) for plan in found]
            answers[key] = named_too
        return answers[key]

    return plans
