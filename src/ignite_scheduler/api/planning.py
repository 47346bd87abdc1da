"""Planning one job: from values or files to :class:`~ignite_scheduler.api.planned.Planned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ignite_scheduler.api.planned import Planned
from ignite_scheduler.api.staleness import check_reference
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats import load_calibration, load_cluster, load_job, load_profile
from ignite_scheduler.formats.calibration import named
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile

if TYPE_CHECKING:
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.planner import Objective, Problem

OURS: Final = "ignite"
"""The planner that is asked unless another is named."""


def plan(
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    objective: Objective = "time",
    memory_margin: float = 0.0,
    calibration: Calibration | str | Path | None = None,
    planner: str = OURS,
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
    calibration
        What earlier runs taught: charged to every figure, which then has a range, and deadlines are held against its
        late end. None = the documents alone.
    planner
        Who plans: ``ignite``, or the name of a baseline of :mod:`ignite_scheduler.planner.peers`, for comparisons.

    Raises
    ------
    InputError
        A document is wrong, the job names no profile, or there is no such planner.
    NotFoundError
        There is no such file, or the job excludes a device that does not exist.
    """
    from ignite_scheduler.planner import plan as search
    from ignite_scheduler.planner.peers import PEERS, peer_plan

    if planner not in (OURS, *PEERS):
        raise InputError(f"there is no planner {planner!r}: expected {OURS} or a baseline, {', '.join(PEERS)}")
    problem = _problem(job, cluster, profile, objective, memory_margin, calibration)
    return _planned(problem, search(problem) if planner == OURS else peer_plan(problem, planner))


@dataclass(frozen=True, kw_only=True)
class Compromise(Planned):
    """A plan of a Pareto set, with the figures that it is compared by.

    ``objectives``: ``time`` (seconds of a step), ``money`` and ``energy`` (of a sample), ``devices`` (held) and
    ``headroom`` (the share of its memory that the fullest device has left); those that are unknown are left out.
    Empty where there is no plan.
    """

    objectives: Mapping[str, float]


def pareto(
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    objective: Objective = "time",
    memory_margin: float = 0.0,
    calibration: Calibration | str | Path | None = None,
    objectives: Sequence[str] | None = None,
) -> tuple[Compromise, ...]:
    """The plans of which no other is as good in all objectives at once; or one refusal.

    Refused as by :func:`plan`: if no plan keeps the job's deadline and budget, the others are no choice.

    Parameters
    ----------
    objective
        That of the plan which is held against deadline and budget.
    objectives
        Some of time, money, energy, devices and headroom; None = time, money and devices, without money where a price
        is unknown. The plans are sorted by the first of them in this order.

    Raises
    ------
    InputError, NotFoundError
        As :func:`plan`; or an objective is unknown, or needs a figure that the cluster does not give.
    """
    from ignite_scheduler.planner import plan as search
    from ignite_scheduler.planner.pareto import pareto as front

    problem = _problem(job, cluster, profile, objective, memory_margin, calibration)
    found = front(problem, objectives)
    queue = problem.job.queue
    if not isinstance(found, Infeasible) and (queue.deadline is not None or queue.budget is not None):
        kept = search(problem)
        found = kept if isinstance(kept, Infeasible) else found
    if isinstance(found, Infeasible):
        return (_compromise(problem, found, {}),)
    return tuple(_compromise(problem, point.plan, point.figures.known()) for point in found.points)


def _compromise(problem: Problem, answer: Plan | Infeasible, objectives: Mapping[str, float]) -> Compromise:
    planned = _planned(problem, answer)
    return Compromise(
        answer=planned.answer,
        job=planned.job,
        profile=planned.profile,
        cluster=planned.cluster,
        objectives=objectives,
    )


def retimed(
    plan: Plan,
    job: Job | str | Path,
    cluster: Cluster | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    calibration: Calibration | str | Path | None = None,
) -> Planned:
    """The same choice of split, devices, microbatches and schedule with other figures.

    Parameters
    ----------
    plan
        Whose choice is timed anew; what is known of better plans is dropped, since it spoke of other figures.
    job, cluster, profile, calibration
        As in :func:`plan`.

    Raises
    ------
    InputError
        A document is wrong, or the plan is not one of this job on this cluster.
    NotFoundError
        There is no such file, or the cluster lacks a device of the plan.
    """
    from ignite_scheduler.cost import evaluate
    from ignite_scheduler.cost.outlook import foretold
    from ignite_scheduler.daemon.placement import choice_of

    problem = _problem(job, cluster, profile, "time", 0.0, calibration)
    layers = {name for stage in plan.stages for name in stage.layers}  # virtual workers name each several times
    if layers != {layer.name for layer in problem.profile.layers}:
        raise InputError(
            f"the plan for {plan.job!r} is of other layers than those of profile {problem.profile.name!r}: give the "
            "job that it was made for, with its profile"
        )
    timed = evaluate(
        problem.job,
        problem.profile,
        problem.cluster,
        choice_of(plan, problem.profile),
        unused=plan.unused,
        resolved=plan.resolved,
    )
    if problem.calibration is not None:
        timed = foretold(timed, problem.job, problem.profile, problem.calibration)
    return _planned(problem, timed)


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
    calibration: Calibration | str | Path | None,
) -> Problem:
    from ignite_scheduler.planner import Problem
    from ignite_scheduler.planner.problem import ABILITIES, charged

    job = job if isinstance(job, Job) else load_job(job)
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    if profile is None:
        profile = profile_of(job)
    elif not isinstance(profile, Profile):
        profile = load_profile(profile)
    check_reference(job, profile)
    problem = Problem(
        job=job,
        profile=profile,
        cluster=cluster,
        objective=objective,
        memory_margin=memory_margin,
        abilities=ABILITIES,
    )
    return charged(problem, read_calibration(calibration))


def read_calibration(calibration: Calibration | str | Path | None) -> Calibration | None:
    """A calibration given as a value or by the path of its document; errors as those of its reader."""
    return load_calibration(calibration) if isinstance(calibration, str | Path) else calibration


def _planned(problem: Problem, answer: Plan | Infeasible) -> Planned:
    if isinstance(answer, Plan):
        answer = named(answer, problem.calibration)
    return Planned(answer=answer, job=problem.job, profile=problem.profile, cluster=problem.cluster)
