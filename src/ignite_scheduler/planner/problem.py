"""What the planner is asked, and the counts of microbatches that it may choose from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ignite_scheduler.cost.calibration import Calibration, calibrated
from ignite_scheduler.model import Cluster, Job, Profile
from ignite_scheduler.pipeline import SCHEDULES

Objective = Literal["time", "cost", "energy"]

ABILITIES: Final = frozenset({"replicas", "recompute", "shard", "offload", "graph", "workers"})
"""All that plans may have beyond a chain of one device a stage."""

DEFAULT_WORK: Final = 8_000_000
"""Pipelines timed before the search gives up a proof: a few seconds of one core."""

EVERY_SIZE: Final = 64
"""Largest batch of which every microbatch size is tried: uneven ones such as 3 + 1 of 4 samples are sometimes best."""
MOST_MICROBATCHES: Final = 1024
"""More microbatches than this are only taken where the job fixes their size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One job to be planned on one cluster.

    Parameters
    ----------
    devices
        Ids that may be used; None = all but ``job.resources.exclude``, which holds in both cases.
    objective
        What is made small: the step time, or the money or the energy of a step.
    memory_margin
        Safety factor on memory: 0.05 counts 5 % more than the formula gives.
    calibration
        What profile and cluster are charged with already (see :func:`charged`); gives the ranges. None = nothing.
    abilities
        What whoever runs the plan is able to do beyond a chain of one device a stage, of :data:`ABILITIES`.
    work
        Search budget: the number of pipelines timed. Counted, never clocked, so that a plan is repeatable.
    """

    job: Job
    profile: Profile
    cluster: Cluster
    devices: tuple[str, ...] | None = None
    objective: Objective = "time"
    memory_margin: float = 0.0
    calibration: Calibration | None = None
    abilities: frozenset[str] = frozenset()
    work: int = DEFAULT_WORK


def charged(problem: Problem, calibration: Calibration | None) -> Problem:
    """The problem with the calibration charged to its profile and cluster; unchanged where there is none."""
    if calibration is None:
        return problem
    profile, cluster = calibrated(problem.profile, problem.cluster, calibration)
    return replace(problem, profile=profile, cluster=cluster, calibration=calibration)


class Family(NamedTuple):
    """Plans that share the schedule and the samples of a microbatch."""

    schedule: str
    samples: int
    num_microbatches: int
    last_samples: int


def microbatch_choices(total: int) -> tuple[int, ...]:
    """Samples of a full microbatch that the planner may choose for a batch of ``total`` samples, largest first.

    Up to :data:`EVERY_SIZE` samples every size. Above, one size for each distinct number of microbatches up to
    :data:`MOST_MICROBATCHES`: of all sizes that give that number the one whose microbatches are the most even.
    O(√total).

    >>> microbatch_choices(5)
    (5, 4, 3, 2, 1)
    """
    if total <= EVERY_SIZE:
        return tuple(range(total, 0, -1))
    sizes = []
    count = 1
    while count <= min(total, MOST_MICROBATCHES):
        size = -(-total // count)
        sizes.append(size)
        if size == 1:
            break
        count = (total - 1) // (size - 1) + 1  # the least count that needs smaller microbatches
    return tuple(sizes)


def families(job: Job) -> tuple[Family, ...]:
    """All families that the job leaves open, 1F1B before GPipe since it needs less memory."""
    total, micro = job.batch.total, job.batch.micro
    sizes = microbatch_choices(total) if micro is None else (min(micro, total),)
    names = ("1f1b", "gpipe") if job.pipeline.schedule == "auto" else (job.pipeline.schedule,)
    assert set(names) <= set(SCHEDULES)
    found = []
    for u in sizes:
        count = -(-total // u)
        last = total - (count - 1) * u
        found += [Family(name, u, count, last) for name in names]
    return tuple(found)
