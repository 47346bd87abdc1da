"""What one job asks of its planner, checked: devices, limits on stages and devices, permitted actions, families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from ignite_scheduler.model import Device, Infeasible, Unused
from ignite_scheduler.planner.contradictions import contradiction
from ignite_scheduler.planner.instance import Classes, group
from ignite_scheduler.planner.permit import allowed_devices, check, check_times, refuse, too_many_stages
from ignite_scheduler.planner.problem import Family, Problem, families


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A problem that has been checked, before any search.

    Parameters
    ----------
    devices
        Those that may be used, by id; ``barred`` are the others of the cluster that were considered, with reasons.
    classes
        The devices grouped by what makes them interchangeable.
    min_stages, max_stages
        Stages of a chain, ≥ 1 and at most one for each layer and each device.
    min_devices, max_devices
        Devices held in all.
    replicas
        Devices of every stage; None = any number.
    any_of
        Exact counts by kind, one of which must be met; empty = any devices.
    cuts
        Positions in the profile at which a stage may begin, 0 apart; with a split given, exactly where it must.
    split
        Whether ``cuts`` are demanded and not only permitted.
    recompute, shard, offload
        Values that a stage's action may take.
    """

    problem: Problem
    devices: tuple[Device, ...]
    barred: tuple[Unused, ...]
    classes: Classes
    min_stages: int
    max_stages: int
    min_devices: int
    max_devices: int
    replicas: int | None
    any_of: tuple[Mapping[str, int], ...]
    cuts: tuple[int, ...]
    split: bool
    recompute: tuple[bool, ...]
    shard: tuple[bool, ...]
    offload: tuple[bool, ...]
    families: tuple[Family, ...]

    @property
    def straight(self) -> bool:
        """Whether a chain of one device a stage without actions is permitted."""
        actions = (self.recompute, self.shard, self.offload)
        return self.replicas in (None, 1) and all(False in values for values in actions)

    @property
    def only_straight(self) -> bool:
        """Whether nothing else is permitted."""
        actions = (self.recompute, self.shard, self.offload)
        return self.replicas == 1 and all(values == (False,) for values in actions)


def requested(problem: Problem) -> Request | Infeasible:
    """The checked request; the refusal where it contradicts what there is.

    Raises
    ------
    InputError, NotFoundError
        The request contradicts itself or names what does not exist.
    """
    check(problem)
    refusal = contradiction(problem) or refuse(problem)
    if refusal is not None:
        return refusal
    allowed = allowed_devices(problem)
    if isinstance(allowed, Infeasible):
        return allowed
    check_times(problem, allowed.devices)
    job, num_layers = problem.job, len(problem.profile.layers)
    choice, resources = job.pipeline, job.resources
    replicas = choice.replicas if choice.replicas != "auto" else None if "replicas" in problem.abilities else 1
    most_devices = min(len(allowed.devices), resources.max_devices or len(allowed.devices))
    stages = len(choice.split) if choice.split != "auto" else choice.stages
    refusal = too_many_stages(num_layers, most_devices, stages, replicas or 1)
    if refusal is not None:
        return refusal
    most_stages = min(num_layers, most_devices // (replicas or 1))
    cuts = tuple(range(1, num_layers))
    if choice.split != "auto":
        cuts = tuple(accumulate(choice.split))[:-1]
    return Request(
        problem=problem,
        devices=tuple(sorted(allowed.devices, key=lambda device: device.id)),
        barred=allowed.unused,
        classes=group(problem.cluster, allowed.devices),
        min_stages=1 if stages == "auto" else stages,
        max_stages=most_stages if stages == "auto" else stages,
        min_devices=(1 if stages == "auto" else stages) * (replicas or 1),
        max_devices=most_devices,
        replicas=replicas,
        any_of=resources.any_of,
        cuts=cuts,
        split=choice.split != "auto",
        recompute=_values(problem, "recompute"),
        shard=_values(problem, "shard"),
        offload=_values(problem, "offload"),
        families=families(job),
    )


def _values(problem: Problem, action: str) -> tuple[bool, ...]:
    wish = getattr(problem.job.pipeline, action)
    if wish == "auto":
        return (False, True) if action in problem.abilities else (False,)
    return (wish,)
