"""A second opinion: the same schedule executed by ``torch.distributed.pipelining``.

It exists to cross-check the engine's own executor, not to train jobs: custom orders need torch's private runtime class,
microbatches must be equal, a chain's boundary must be one tensor, and dropout cannot be keyed. See
``docs/decisions/0002-own-executor.md``.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import StageModule, build_chain, cut, element_type
from ignite_scheduler.engine.data import SampleOrder, Samples
from ignite_scheduler.engine.pool import Seat
from ignite_scheduler.engine.reference import named_gradients
from ignite_scheduler.engine.specification import GangSpec
from ignite_scheduler.errors import InputError
from ignite_scheduler.pipeline import make_schedule


def first_gradients(seat: Seat, spec: GangSpec) -> tuple[float, dict[str, Any]]:
    """Task of one rank: loss (on the last stage, else 0) and gradients of the first step, as arrays by name.

    Raises
    ------
    InputError
        Unequal microbatches.
    """
    job, plan = spec.job, spec.plan
    if len(set(plan.microbatches)) != 1:
        raise InputError(f"torch.distributed.pipelining needs equal microbatches, found {plan.microbatches}")
    logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)
    dtype, count = element_type(plan.precision), len(plan.microbatches)
    chain = build_chain(job.model, seed=job.seed, data=job.data, dtype=dtype)
    stages = cut(chain, [stage.layers for stage in plan.stages])
    data = Samples(job.data, dtype=dtype, device=torch.device("cpu"), owner=job.name)
    indices = SampleOrder(num_samples=len(data), batch=job.batch.total, seed=job.seed).indices(0)
    (inputs,), targets = data.read(indices, f"{job.seed}/0")
    loss, total = zoo.loss(job.loss), job.batch.total

    schedule = make_schedule(plan.schedule, plan.num_stages, count)
    stage = _stage(stages, seat, inputs[: plan.microbatches[0]])
    runtime = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        [stage], count, loss_fn=lambda output, target: loss(output, target) / total, scale_grads=False
    )
    order: dict[int, list[_Action | None]] = {
        row: [_Action.from_str(str(action)) for action in actions] for row, actions in enumerate(schedule.rows)
    }
    runtime.pipeline_order = order
    runtime._prepare_schedule_with_comms(order)
    losses: list[Tensor] = []
    arguments = (inputs,) if seat.rank == 0 else ()
    runtime.step(*arguments, target=targets if stage.is_last else None, losses=losses if stage.is_last else None)
    own = stages[seat.rank].layers
    gradients = {name: tensor.numpy() for name, tensor in named_gradients(own).items()}
    return float(sum(float(part.detach()) for part in losses)), gradients


def _stage(stages: tuple[StageModule, ...], seat: Seat, example: Tensor) -> PipelineStage:
    """This rank's stage with static shapes; torch's own shape inference would touch running statistics."""
    boundaries = [example]
    with torch.no_grad():
        for part in stages:
            part.layers.eval()
            boundaries.append(part.layers(boundaries[-1]))
            part.layers.train()
    incoming, outgoing = boundaries[seat.rank : seat.rank + 2]
    needs = seat.rank > 0 and incoming.is_floating_point()
    return PipelineStage(
        stages[seat.rank].layers,
        seat.rank,
        len(stages),
        torch.device("cpu"),
        input_args=(torch.empty_like(incoming).requires_grad_(needs),),
        output_args=(torch.empty_like(outgoing).requires_grad_(True),),
        group=seat.group or dist.group.WORLD,
    )
