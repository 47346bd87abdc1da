"""Requests that contradict themselves: two keys of the job that no cluster could satisfy together.

Found before any search and before the cluster is looked at; the text names both keys with their values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner.problem import Problem


def contradiction(problem: Problem) -> Infeasible | None:
    """The refusal of a request that contradicts itself; None where it does not."""
    return _too_few_samples(problem) or _over_the_limit(problem) or _unmatched_counts(problem)


def _too_few_samples(problem: Problem) -> Infeasible | None:
    """Each device of a stage gets a sample of every full microbatch."""
    replicas, batch = problem.job.pipeline.replicas, problem.job.batch
    if replicas == "auto":
        return None
    for key, samples in (("batch.micro", batch.micro), ("batch.global", batch.total)):
        if samples is not None and samples < replicas:
            return Infeasible(
                code="batch",
                text=(
                    f"pipeline.replicas is {replicas} but {key} is {samples}: "
                    "each device of a stage needs a sample of every microbatch"
                ),
                cures=(f"set pipeline.replicas to {samples} or less", f"set {key} to {replicas} or more"),
            )
    return None


def _over_the_limit(problem: Problem) -> Infeasible | None:
    """Stages and devices for each of them against the most devices."""
    most = problem.job.resources.max_devices
    needed, keys = _fewest_devices(problem)
    if most is None or needed <= most:
        return None
    return Infeasible(
        code="devices",
        text=f"{keys}, which takes {needed} devices, but resources.max_devices is {most}",
        cures=(f"set resources.max_devices to {needed} or more", "ask for fewer stages or devices a stage"),
    )


def _unmatched_counts(problem: Problem) -> Infeasible | None:
    """Every alternative of the exact request against the limits; a reason where none of them can be met."""
    found = []
    for request in problem.job.resources.any_of:
        why = _why_not(problem, request)
        if why is None:
            return None
        asked = " + ".join(f"{count} {kind}" for kind, count in request.items())
        found.append(f"resources.any_of asks for {asked}, but {why}")
    if not found:
        return None
    return Infeasible(code="devices", text="; ".join(found), cures=("make resources.any_of and the other key agree",))


def _why_not(problem: Problem, request: Mapping[str, int]) -> str | None:
    """Which other key an exact count contradicts."""
    job, size = problem.job, sum(request.values())
    most = job.resources.max_devices
    if most is not None and size > most:
        return f"resources.max_devices is {most}"
    needed, keys = _fewest_devices(problem)
    each = _devices_each(problem)
    exact = each is not None and _stages(problem) is not None
    if size < needed or (exact and size != needed):
        return f"{keys}, which takes {'' if exact else 'at least '}{needed} devices"
    if each is not None and size % each:
        return f"pipeline.replicas is {each}, of which {size} is no multiple"
    return None


def _fewest_devices(problem: Problem) -> tuple[int, str]:
    """The fewest devices that stages and replicas take, and the keys that say so."""
    choice = problem.job.pipeline
    stages, each = _stages(problem), _devices_each(problem)
    texts = []
    if choice.split != "auto":
        texts.append(f"pipeline.split has {stages} stages")
    elif stages is not None:
        texts.append(f"pipeline.stages is {stages}")
    if choice.replicas != "auto" and (choice.replicas > 1 or not texts):
        texts.append(f"pipeline.replicas is {choice.replicas}")
    return (stages or 1) * (each or 1), " and ".join(texts)


def _stages(problem: Problem) -> int | None:
    choice = problem.job.pipeline
    if choice.split != "auto":
        return len(choice.split)
    return None if choice.stages == "auto" else choice.stages


def _devices_each(problem: Problem) -> int | None:
    """Devices of every stage; None where any number is permitted."""
    replicas = problem.job.pipeline.replicas
    if replicas != "auto":
        return replicas
    return None if "replicas" in problem.abilities else 1
