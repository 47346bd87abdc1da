"""From the devices on which a plan was made to those that its gang was given, and back to the choice behind it."""

from __future__ import annotations

from dataclasses import replace

from ignite_scheduler.cost import Assignment, straight
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Plan


def on_devices(plan: Plan, device_ids: tuple[str, ...]) -> Plan:
    """The plan with its devices, which stand for any of their pools, replaced in order by ``device_ids``.

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


def choice_of(plan: Plan) -> Assignment:
    """The choice that the plan is made of, to be timed again."""
    return straight(
        split=tuple(len(stage.layers) for stage in plan.stages),
        devices=tuple(stage.devices[0].device for stage in plan.stages),
        microbatches=plan.microbatches,
        schedule=plan.schedule,
    )
