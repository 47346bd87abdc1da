"""What the engine is able to run, so that only that is planned where a plan is to be run."""

from __future__ import annotations

from typing import Final

from ignite_scheduler.errors import IgniteError, InputError
from ignite_scheduler.model import Job, Plan

ABILITIES: Final = frozenset({"replicas", "recompute", "shard", "offload"})
"""What it does beyond a chain of stages with one device each: stages on several devices with their own shares of each
microbatch, segments that are computed again, optimizer state spread over replicas, activations in host memory."""

PRECISIONS: Final = ("fp32", "bf16", "fp64")
"""What it trains in. ``fp64`` is for checks; fp16 would need a loss scale."""


def abilities_of(job: Job) -> frozenset[str]:
    """What of that the engine does with the job's model.

    Replicas of batch normalisation would each normalise by their own samples: no replicas then. A model that cannot be
    built is none of this function's business; the run will say so.
    """
    from ignite_scheduler import zoo

    try:
        chain = zoo.outline(job.model, data=job.data)
    except IgniteError:
        return ABILITIES
    from ignite_scheduler.engine.reference import has_batch_statistics

    return ABILITIES - {"replicas"} if has_batch_statistics(chain) else ABILITIES


def check_able(plan: Plan) -> None:
    """Refuse a plan that the engine cannot run.

    Raises
    ------
    InputError
        It is no chain of stages, its replicas do not share each microbatch among themselves, a device holds two
        stages, or its precision is none of the engine's.
    """
    if plan.precision not in PRECISIONS:
        raise InputError(
            f"this engine trains in {', '.join(PRECISIONS)}; the plan for {plan.job!r} is in {plan.precision}"
        )
    for stage in plan.stages:
        before = () if stage.index == 0 else (stage.index - 1,)
        if stage.inputs is not None and tuple(stage.inputs) != before:
            raise InputError(
                f"stage {stage.index} of the plan for {plan.job!r} is fed by stages {list(stage.inputs)}: this engine "
                "runs chains of stages only, no stage graphs and no virtual workers; plan a chain"
            )
        samples = [share.samples for share in stage.devices]
        if len(samples) > 1 and (sum(samples) != max(plan.microbatches) or min(samples) < 1):
            raise InputError(
                f"stage {stage.index} of the plan for {plan.job!r}: expected shares of at least 1 sample that add up "
                f"to a microbatch of {max(plan.microbatches)}, found {samples}"
            )
        if stage.optimizer_shards not in (1, len(samples)):
            raise InputError(
                f"stage {stage.index} of the plan for {plan.job!r}: expected its optimizer's state whole or spread "
                f"over all of its {len(samples)} devices, found {stage.optimizer_shards} shards"
            )
    held = [share.device for stage in plan.stages for share in stage.devices]
    if len(set(held)) < len(held):
        raise InputError(f"the plan for {plan.job!r} has several stages on one device: this engine runs one a device")
