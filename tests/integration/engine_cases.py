"""Jobs and plans for the engine's tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ignite_scheduler.engine.chain import build_chain, layer_names
from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.model import Batch, Bottleneck, Bound, Job, Plan, Prediction, Reference, Share, Stage


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


def make_plan(job: Job, split: Sequence[int], microbatches: Sequence[int], schedule: str = "1f1b") -> Plan:
    """A plan with these layer counts, one device ``lab/box-N`` per stage; its figures are of no interest here."""
    names = iter(layer_names(build_chain(job.model, seed=job.seed)))
    stages = tuple(
        Stage(
            index=index,
            layers=tuple(next(names) for _ in range(count)),
            devices=(Share(device=f"lab/box-{index}", samples=max(microbatches), memory=0.0, memory_limit=1.0),),
            forward=0.0,
            backward=0.0,
            in_flight=1,
        )
        for index, count in enumerate(split)
    )
    nothing = Prediction(
        step=0.0,
        step_low=0.0,
        step_high=0.0,
        samples_per_second=0.0,
        bubble_fraction=0.0,
        bottleneck=Bottleneck(kind="stage", index=0, busy=0.0),
        transfer_bytes=0.0,
    )
    return Plan(
        job=job.name,
        schedule=schedule,
        precision=job.precision,
        microbatches=tuple(microbatches),
        stages=stages,
        predicted=nothing,
        bound=Bound(step=0.0, gap=0.0, method="none", optimal=False),
    )


def make_spec(job: Job, plan: Plan, directory: Path, **more: Any) -> GangSpec:
    """A gang on real CPU ranks."""
    devices = more.pop("devices", tuple(RankDevice(id=device_id) for device_id in plan.device_ids))
    return GangSpec(job=job, plan=plan, devices=devices, directory=directory, timeout=60.0, **more)
