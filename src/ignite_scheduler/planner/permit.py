"""What the job permits, before any search: devices, multisets of them, cuts, and the refusals that need no search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ignite_scheduler.cost import layer_seconds, resolved_precision
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Device, Infeasible, Profile, Unused
from ignite_scheduler.pipeline import SCHEDULES
from ignite_scheduler.planner.instance import Classes
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.solve import Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Devices that may be used, and why the others may not."""

    devices: tuple[Device, ...]
    unused: tuple[Unused, ...]


def refuse(problem: Problem) -> Infeasible | None:
    """The refusal of what whoever runs the plan is not able to do; None where nothing of it is demanded."""
    choice = problem.job.pipeline
    if choice.replicas not in ("auto", 1) and "replicas" not in problem.abilities:
        return Infeasible(
            code="replicas",
            text=f"{choice.replicas} devices for each stage are asked for; what runs the plan has one device a stage",
            cures=("set pipeline.replicas to 1 or auto",),
        )
    for name in ("recompute", "shard", "offload"):
        if getattr(choice, name) is True and name not in problem.abilities:
            return Infeasible(
                code=name,
                text=f"pipeline.{name} is demanded; what runs the plan is not able to do it",
                cures=(f"set pipeline.{name} to false or auto",),
            )
    if choice.schedule not in ("auto", *SCHEDULES):
        return Infeasible(
            code="schedule",
            text=f"schedule {choice.schedule!r} is asked for; this version plans {' and '.join(SCHEDULES)}",
            cures=("set pipeline.schedule to auto",),
        )
    return None


def check(problem: Problem) -> None:
    """Raise InputError where the request contradicts itself."""
    job, num_layers = problem.job, len(problem.profile.layers)
    if job.batch.total < 1 or (job.batch.micro is not None and job.batch.micro < 1):
        raise InputError(f"a batch has at least 1 sample; found global {job.batch.total}, micro {job.batch.micro}")
    if num_layers == 0:
        raise InputError(f"profile {problem.profile.name!r} has no layers")
    split, stages = job.pipeline.split, job.pipeline.stages
    if split != "auto":
        if sum(split) != num_layers or min(split) < 1:
            raise InputError(
                f"pipeline.split gives each of the {num_layers} layers to one stage and leaves no stage empty; "
                f"found {list(split)}, which holds {sum(split)}"
            )
        if stages not in ("auto", len(split)):
            raise InputError(f"pipeline.stages is {stages} but pipeline.split has {len(split)} stages")
    if stages != "auto" and stages < 1:
        raise InputError(f"a pipeline has at least 1 stage; found {stages}")


def allowed_devices(problem: Problem) -> Allowed | Infeasible:
    """Devices left by the request, ``exclude``, precision and the profile's times."""
    cluster, job = problem.cluster, problem.job
    names = {device.id for device in cluster.devices} | {node.name for node in cluster.nodes}
    for name in job.resources.exclude:
        if name not in names:
            raise NotFoundError(
                f"resources.exclude names {name!r}, which is no device or node of cluster {cluster.name!r}; "
                f"there are: {', '.join(sorted(names))}"
            )
    asked = None if problem.devices is None else {cluster.device(device_id).id for device_id in problem.devices}
    excluded = set(job.resources.exclude)
    precision = resolved_precision(job, problem.profile)
    kept: list[Device] = []
    unused: list[Unused] = []
    wrong_type = 0
    for device in cluster.devices:
        if asked is not None and device.id not in asked:
            continue
        if device.id in excluded or device.node in excluded:
            unused.append(Unused(device=device.id, reason="excluded by resources.exclude"))
        elif precision not in device.dtypes:
            wrong_type += 1
            can = ", ".join(sorted(device.dtypes))
            unused.append(Unused(device=device.id, reason=f"cannot compute {precision}, only {can}"))
        elif not _has_times(problem, device):
            unused.append(
                Unused(
                    device=device.id, reason=f"the profile has no times for kind {device.kind} and no speed is given"
                )
            )
        else:
            kept.append(device)
    if kept:
        return Allowed(devices=tuple(kept), unused=tuple(unused))
    if wrong_type:
        return Infeasible(
            code="dtype",
            text=f"no allowed device computes {precision}",
            cures=("choose another precision", f"add a device that computes {precision}"),
        )
    if unused and all("no times" in entry.reason for entry in unused):
        kinds = ", ".join(sorted({device.kind for device in cluster.devices}))
        raise InputError(
            f"no layer of profile {problem.profile.name!r} has times on any allowed kind ({kinds}): "
            f"measure it there, or {_cure_of_no_times(problem.profile)}"
        )
    return Infeasible(code="devices", text="no device is allowed", cures=("exclude fewer devices",))


def _cure_of_no_times(profile: Profile) -> str:
    if not any(layer.times for layer in profile.layers):
        return "give the devices in the cluster file their figures (peak_flops, memory_bandwidth): it has FLOPs"
    if profile.reference is None:
        return "name the kind that its times are of as its reference"
    return f"give the devices a speed relative to its reference {profile.reference!r}"


def _has_times(problem: Problem, device: Device) -> bool:
    precision = resolved_precision(problem.job, problem.profile)
    return any(
        layer_seconds(problem.profile, index, device, 1, precision) is not None
        for index in range(len(problem.profile.layers))
    )


def check_times(problem: Problem, devices: tuple[Device, ...]) -> None:
    """Raise InputError for a layer that has no time on any of the devices."""
    by_kind = {(d.kind, d.speed, d.peak_flops, d.memory_bandwidth): d for d in devices}.values()
    precision = resolved_precision(problem.job, problem.profile)
    for index, layer in enumerate(problem.profile.layers):
        if all(layer_seconds(problem.profile, index, device, 1, precision) is None for device in by_kind):
            kinds = ", ".join(sorted({device.kind for device in devices}))
            raise InputError(
                f"layer {layer.name!r} has no time on any allowed kind ({kinds}): measure it on one of them"
            )


def permit(problem: Problem, classes: Classes) -> Permit | Infeasible:
    """The multisets and cuts that the job leaves, or why there are none.

    Where there are too many multisets to list, ``allowed`` has one entry for each number of devices instead.
    """
    job, num_layers = problem.job, len(problem.profile.layers)
    choice, resources = job.pipeline, job.resources
    num_devices = int(classes.counts.sum())
    stages = len(choice.split) if choice.split != "auto" else choice.stages
    most = min(num_devices, num_layers, resources.max_devices or num_devices)
    refusal = too_many_stages(num_layers, most, stages, 1)
    if refusal is not None:
        return refusal
    counts = classes.counts_of() if not classes.wide else np.arange(num_devices + 1)[:, None]
    totals = counts.sum(axis=1)
    allowed = (totals >= 1) & (totals <= most)
    if stages != "auto":
        allowed &= totals == stages
    if resources.any_of and not classes.wide:
        kinds = [device.kind for device in classes.devices]
        match = np.zeros(len(totals), dtype=bool)
        for request in resources.any_of:
            same = np.ones(len(totals), dtype=bool)
            for kind in set(kinds) | set(request):
                held = counts[:, [c for c, name in enumerate(kinds) if name == kind]].sum(axis=1)
                same &= held == request.get(kind, 0)
            match |= same
        allowed &= match
        if not allowed.any():
            return unmet_request(classes, resources.any_of, num_layers, most, stages)
    may_cut = np.ones(num_layers + 1, dtype=bool)
    if choice.split != "auto":
        may_cut[:] = False
        may_cut[np.concatenate(([0], np.cumsum(choice.split)))] = True
    return Permit(allowed, may_cut, int(totals[allowed].max()))


def too_many_stages(num_layers: int, num_devices: int, stages: int | str, replicas: int) -> Infeasible | None:
    """The refusal of more stages than layers or devices allow; ``stages`` may be ``auto``, then one is needed."""
    least = 1 if stages == "auto" else int(stages)
    if least > num_layers:
        return _too_few_layers(num_layers, least, "stages")
    if least * replicas <= num_devices:
        return None
    each = "a device of its own" if replicas == 1 else f"{replicas} devices"
    noun = "stage: it needs" if least == 1 else "stages: each stage needs"
    cures = [f"allow {least * replicas - num_devices} more devices"]
    if num_devices >= replicas and least > 1:
        cures.append(f"ask for {num_devices // replicas} stages")
    if replicas > 1:
        cures.append("ask for fewer replicas (pipeline.replicas)")
    return Infeasible(code="devices", text=f"{num_devices} devices < {least} {noun} {each}", cures=tuple(cures))


def _too_few_layers(num_layers: int, wanted: int, noun: str) -> Infeasible:
    return Infeasible(
        code="layers",
        text=f"{num_layers} layers < {wanted} {noun}: each holds at least one layer",
        cures=(f"ask for at most {num_layers} {noun}", "cut the model into more layers"),
    )


def unmet_request(
    classes: Classes, any_of: tuple[object, ...], num_layers: int, most: int, stages: int | str
) -> Infeasible:
    there: dict[str, int] = {}
    for device, count in zip(classes.devices, classes.counts, strict=True):
        there[device.kind] = there.get(device.kind, 0) + int(count)
    wanted = [dict(request) for request in any_of]  # type: ignore[call-overload]
    sizes = [sum(request.values()) for request in wanted]
    enough = [r for r in wanted if all(there.get(kind, 0) >= count for kind, count in r.items())]
    if enough and min(sizes) > num_layers:
        return _too_few_layers(num_layers, min(sizes), "devices")
    asked = " or ".join(" + ".join(f"{count} {kind}" for kind, count in request.items()) for request in wanted)
    has = ", ".join(f"{count} {kind}" for kind, count in sorted(there.items()))
    if enough:
        limit = f"pipeline.stages is {stages}" if stages != "auto" else f"at most {most} devices may be used"
        return Infeasible(
            code="devices",
            text=f"resources.any_of asks for {asked}, but {limit}",
            cures=("make resources.any_of and the other limits agree",),
        )
    return Infeasible(
        code="devices",
        text=f"resources.any_of asks for {asked}; allowed devices are {has}",
        cures=("ask for devices that there are", "wait for or add the missing devices"),
    )
