"""Planning one job: from values or files to :class:`~ignite_scheduler.api.planned.Planned`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ignite_scheduler.api.planned import Planned
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats import load_cluster, load_job, load_profile
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile

if TYPE_CHECKING:
    from ignite_scheduler.planner import Objective, Problem


def plan(
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    objective: Objective = "time",
    memory_margin: float = 0.0,
) -> Planned:
    """The best pipeline of one job on a cluster, or why there is none.

    Parameters
    ----------
    job, cluster
        Values, or paths of documents.
    profile
        Measured layers; None = the profile that the job names.
    objective
        What is least: the step time, the job's money or its energy.
    memory_margin
        Safety factor on memory: 0.05 counts 5 % more than the formula gives.

    Raises
    ------
    InputError
        A document is wrong, or the job names no profile.
    NotFoundError
        There is no such file, or the job excludes a device that does not exist.
    """
    from ignite_scheduler.planner import plan as search

    problem = _problem(job, cluster, profile, objective, memory_margin)
    return _planned(problem, search(problem))


def pareto(
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    objective: Objective = "time",
    memory_margin: float = 0.0,
) -> tuple[Planned, ...]:
    """All plans that no other beats in time, devices and money at once, the fastest first; or one refusal.

    Refused as by :func:`plan`: if no plan keeps the job's deadline and budget, the others are no choice.
    """
    from ignite_scheduler.planner import catalogue
    from ignite_scheduler.planner import plan as search

    problem = _problem(job, cluster, profile, objective, memory_margin)
    answer: Plan | Infeasible | tuple[Plan, ...] = catalogue(problem)
    queue = problem.job.queue
    if isinstance(answer, tuple) and (queue.deadline is not None or queue.budget is not None):
        kept = search(problem)
        answer = kept if isinstance(kept, Infeasible) else answer
    if not isinstance(answer, tuple):
        return (_planned(problem, answer),)
    return tuple(_planned(problem, one) for one in sorted(answer, key=lambda one: one.predicted.step))


def profile_of(job: Job) -> Profile:
    """The profile that the job names.

    Raises
    ------
    InputError
        It names none; the message says how to measure one.
    """
    if job.model.profile is None:
        raise InputError(
            f"job {job.name!r} names no profile, so nothing is known of its layers: measure it with "
            "'ignite profile JOB --out FILE' and give model: {profile: FILE} or --profile FILE"
        )
    return load_profile(job.model.profile)


def _problem(
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    profile: Profile | str | Path | None,
    objective: Objective,
    memory_margin: float,
) -> Problem:
    from ignite_scheduler.planner import Problem

    job = job if isinstance(job, Job) else load_job(job)
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    if profile is None:
        profile = profile_of(job)
    elif not isinstance(profile, Profile):
        profile = load_profile(profile)
    return Problem(
        job=job, profile=profile, cluster=cluster, devices=None, objective=objective, memory_margin=memory_margin
    )


def _planned(problem: Problem, answer: Plan | Infeasible) -> Planned:
    return Planned(answer=answer, job=problem.job, profile=problem.profile, cluster=problem.cluster)
