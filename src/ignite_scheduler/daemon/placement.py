"""From the devices on which a plan was made to those that its gang was given, and back to the choice behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ignite_scheduler.cost import Assignment, StageChoice
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Plan, Profile, Stage


def on_devices(plan: Plan, device_ids: tuple[str, ...]) -> Plan:
    """The plan with its devices, which stand for any of their pools, replaced in order by ``device_ids``.

    The order is that of :attr:`~ignite_scheduler.model.Plan.device_ids`: of stages, and within a stage of its replicas.

    Raises
    ------
    InputError
        There are not as many ids as the plan has devices, or one comes twice.
    """
    if len(device_ids) != len(plan.device_ids) or len(set(device_ids)) != len(device_ids):
        raise InputError(f"the plan for {plan.job!r} needs {len(plan.device_ids)} different devices, not {device_ids}")
    real = dict(zip(plan.device_ids, device_ids, strict=True))
    stages = tuple(
        replace(stage, devices=tuple(replace(share, device=real[share.device]) for share in stage.devices))
        for stage in plan.stages
    )
    return replace(plan, stages=stages)


def choice_of(plan: Plan, profile: Profile) -> Assignment:
    """The choice that the plan is made of, to be timed again; its layers are those of ``profile``.

    Where the plan is no chain, every stage of the choice names its inputs.

    Raises
    ------
    InputError
        The plan names a layer that the profile lacks.
    """
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    unknown = [name for stage in plan.stages for name in stage.layers if name not in position]
    if unknown:
        raise InputError(
            f"the plan for {plan.job!r} has a layer {unknown[0]!r}, which profile {profile.name!r} lacks: give the "
            "profile that it was made for"
        )
    return Assignment(
        stages=tuple(_stage_choice(stage, position) for stage in plan.stages),
        microbatches=plan.microbatches,
        schedule=plan.schedule,
    )


def _stage_choice(stage: Stage, position: Mapping[str, int]) -> StageChoice:
    segments = stage.recompute_segments or (((stage.layers[0], stage.layers[-1]),) if stage.recompute else ())
    return StageChoice(
        layers=tuple(position[name] for name in stage.layers),
        devices=tuple(share.device for share in stage.devices),
        samples=tuple(share.samples for share in stage.devices),
        inputs=stage.inputs,
        recompute=tuple((position[first], position[last] + 1) for first, last in segments),
        offload=stage.offload,
        shard=stage.optimizer_shards > 1,
    )
