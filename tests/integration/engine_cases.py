"""Jobs and plans for the engine's tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ignite_scheduler.engine.chain import build_chain, layer_names
from ignite_scheduler.engine.doctor import Arrangement, bare_plan
from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.model import Batch, Job, Plan, Reference


def make_job(
    model: str = "field_models:perceptron",
    data: str = "field_models:rows",
    *,
    batch: int = 8,
    steps: int = 5,
    args: dict[str, Any] | None = None,
    **more: Any,
) -> Job:
    """A small job over the modules of ``field_models``."""
    return Job(
        name=more.pop("name", "small"),
        model=Reference(module=model, args=args or {}),
        data=Reference(module=data),
        batch=Batch(total=batch),
        steps=steps,
        **more,
    )


def zoo_job(model: str, data: str, args: dict[str, Any], data_args: dict[str, Any], **more: Any) -> Job:
    """A small job over the zoo."""
    return Job(
        name=model,
        model=Reference(zoo=model, args=args),
        data=Reference(zoo=data, args=data_args),
        batch=Batch(total=8),
        steps=10,
        **more,
    )


def make_plan(
    job: Job, split: Sequence[int], microbatches: Sequence[int], schedule: str = "1f1b", **arranged: Any
) -> Plan:
    """A plan with these layer counts, shares and actions on the devices ``rank-0``, ``rank-1``, …"""
    names = layer_names(build_chain(job.model, seed=job.seed, data=job.data))
    return bare_plan(job, names, Arrangement(split=tuple(split), **arranged), tuple(microbatches), schedule)


def make_spec(job: Job, plan: Plan, directory: Path, **more: Any) -> GangSpec:
    """A gang on real CPU ranks unless ``devices`` says otherwise."""
    devices = more.pop("devices", tuple(RankDevice(id=device_id) for device_id in plan.device_ids))
    return GangSpec(job=job, plan=plan, devices=devices, directory=directory, timeout=60.0, **more)
