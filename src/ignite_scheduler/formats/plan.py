"""``ignite/plan/v1`` ↔ :class:`~ignite_scheduler.model.Plan` and :class:`~ignite_scheduler.model.Infeasible`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.model import (
    Alternative,
    Bottleneck,
    Bound,
    Infeasible,
    Plan,
    Prediction,
    Reason,
    Share,
    Stage,
    Unused,
)

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.plan import (
        BindingShape,
        InfeasibleShape,
        PlanShape,
        PredictedShape,
        StageShape,
    )

PLAN_SCHEMA: Final = "ignite/plan/v1"


def load_plan(path: str | Path) -> Plan:
    """The plan in the file at ``path``.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong, or says that there is no plan.
    """
    source = read_source(path)
    answer = _answer(source)
    if isinstance(answer, Infeasible):
        raise source.error(("feasible",), f"expected a plan, found a refusal: {answer.text}")
    return answer


def load_answer(path: str | Path) -> Plan | Infeasible:
    """The plan in the file at ``path``, or why there is none; errors as those of :func:`load_plan`."""
    return _answer(read_source(path))


def parse_answer(data: Mapping[str, Any]) -> Plan | Infeasible:
    """The answer of a document that is plain data already, such as :func:`answer_document` gives."""
    return _answer(Source(data=data))


def answer_document(answer: Plan | Infeasible, *, job: str) -> dict[str, Any]:
    """The document of what the planner answered about ``job``."""
    return plan_document(answer) if isinstance(answer, Plan) else infeasible_document(answer, job=job)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document that reads back as ``plan``; numbers that JSON lacks are null."""
    document = {
        "schema": PLAN_SCHEMA,
        "feasible": True,
        "job": plan.job,
        "schedule": plan.schedule,
        "precision": plan.precision,
        "microbatches": list(plan.microbatches),
        "stages": [_stage_entry(stage) for stage in plan.stages],
        "predicted": _predicted_entry(plan.predicted),
        "bound": {
            "step_s": plan.bound.step,
            "gap": _finite(plan.bound.gap),
            "method": plan.bound.method,
            "optimal": plan.bound.optimal,
        },
        "unused": [{"device": unused.device, "reason": unused.reason} for unused in plan.unused],
        "alternatives": [_alternative_entry(alternative) for alternative in plan.alternatives],
        "warnings": list(plan.warnings),
        "resolved": _plain(plan.resolved),
    }
    return document | {"why": {"binds": [_reason_entry(reason) for reason in plan.why]}} if plan.why else document


def infeasible_document(infeasible: Infeasible, *, job: str | None = None) -> dict[str, Any]:
    """The document of why ``job`` has no plan."""
    return {
        "schema": PLAN_SCHEMA,
        "feasible": False,
        "job": job,
        "reason": {"code": infeasible.code, "text": infeasible.text},
        "shortfall_bytes": infeasible.shortfall,
        "earliest_finish_s": infeasible.earliest_finish,
        "cures": list(infeasible.cures),
    }


# --- writing ----------------------------------------------------------------------------------------------------------


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """A value made of what JSON has: a tuple is a list, a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return _finite(value) if isinstance(value, float) else value


def _stage_entry(stage: Stage) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": stage.index,
        "layers": list(stage.layers),
        "devices": [
            {
                "id": share.device,
                "samples": share.samples,
                "memory_bytes": share.memory,
                "memory_limit_bytes": _finite(share.memory_limit),
            }
            for share in stage.devices
        ],
        "forward_s": stage.forward,
        "backward_s": stage.backward,
        "in_flight": stage.in_flight,
        "memory_bytes": stage.fullest.memory,
        "memory_limit_bytes": _finite(stage.fullest.memory_limit),
        "recompute": stage.recompute,
        "offload": stage.offload,
        "optimizer_shards": stage.optimizer_shards,
        "update_s": stage.update,
        "allreduce_s": stage.allreduce,
    }
    if stage.recompute_segments:
        entry["recompute_segments"] = [list(segment) for segment in stage.recompute_segments]
    return entry if stage.inputs is None else entry | {"inputs": list(stage.inputs)}


def _predicted_entry(predicted: Prediction) -> dict[str, Any]:
    slowest = predicted.bottleneck
    entry = {
        "step_s": predicted.step,
        "step_low_s": predicted.step_low,
        "step_high_s": predicted.step_high,
        "samples_per_s": _finite(predicted.samples_per_second),
        "bubble_fraction": predicted.bubble_fraction,
        "bottleneck": {"kind": slowest.kind, "index": slowest.index, "busy_s": slowest.busy},
        "duration_s": predicted.duration,
        "cost": predicted.cost,
        "energy_j": predicted.energy,
        "transfer_bytes": predicted.transfer_bytes,
    }
    if predicted.duration_low is None and predicted.duration_high is None:
        return entry
    return entry | {"duration_low_s": predicted.duration_low, "duration_high_s": predicted.duration_high}


def _alternative_entry(alternative: Alternative) -> dict[str, Any]:
    return {
        "devices": list(alternative.devices),
        "num_layers": list(alternative.num_layers),
        "schedule": alternative.schedule,
        "num_microbatches": alternative.num_microbatches,
        "step_s": alternative.step,
        "cost": alternative.cost,
    }


def _reason_entry(reason: Reason) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "index": reason.index,
        "device": reason.device,
        "share_of_step": reason.share,
        "text": reason.text,
    }


# --- reading ----------------------------------------------------------------------------------------------------------


def _answer(source: Source) -> Plan | Infeasible:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.plan import InfeasibleShape, PlanShape

    if isinstance(source.data, Mapping) and source.data.get("feasible") is False:
        return _infeasible(check(InfeasibleShape, source))
    shape = check(PlanShape, source)
    for index, stage in enumerate(shape.stages):
        _check_stage(source, index, stage, len(shape.stages))
    return _plan(shape)


def _check_stage(source: Source, index: int, stage: StageShape, num_stages: int) -> None:
    """What a shape alone cannot say: names and numbers that point at something."""
    if stage.index != index:
        raise source.error(("stages", index, "index"), f"expected {index}, found {stage.index}: stages stand in order")
    for number, feeding in enumerate(stage.inputs or ()):
        if feeding >= num_stages or feeding == index:
            raise source.error(
                ("stages", index, "inputs", number),
                f"expected another of the {num_stages} stages, found {feeding}: stages are numbered from 0",
            )
    for number, segment in enumerate(stage.recompute_segments):
        for name in segment:
            if name not in stage.layers:
                raise source.error(
                    ("stages", index, "recompute_segments", number),
                    f"expected the first and the last layer of a segment of this stage, found {name!r}",
                )


def _infeasible(shape: InfeasibleShape) -> Infeasible:
    return Infeasible(
        code=shape.reason.code,
        text=shape.reason.text,
        shortfall=shape.shortfall_bytes,
        earliest_finish=shape.earliest_finish_s,
        cures=tuple(shape.cures),
    )


def _plan(shape: PlanShape) -> Plan:
    return Plan(
        job=shape.job,
        schedule=shape.schedule,
        precision=shape.precision,
        microbatches=tuple(shape.microbatches),
        stages=tuple(_stage(stage) for stage in shape.stages),
        predicted=_prediction(shape.predicted),
        bound=Bound(
            step=shape.bound.step_s,
            gap=_or_inf(shape.bound.gap),
            method=shape.bound.method,
            optimal=shape.bound.optimal,
        ),
        unused=tuple(Unused(device=unused.device, reason=unused.reason) for unused in shape.unused),
        alternatives=tuple(
            Alternative(
                devices=tuple(alternative.devices),
                num_layers=tuple(alternative.num_layers),
                schedule=alternative.schedule,
                num_microbatches=alternative.num_microbatches,
                step=alternative.step_s,
                cost=alternative.cost,
            )
            for alternative in shape.alternatives
        ),
        warnings=tuple(shape.warnings),
        resolved=shape.resolved,
        why=() if shape.why is None else tuple(_reason(reason) for reason in shape.why.binds),
    )


def _reason(shape: BindingShape) -> Reason:
    return Reason(kind=shape.kind, text=shape.text, index=shape.index, device=shape.device, share=shape.share_of_step)


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _stage(shape: StageShape) -> Stage:
    return Stage(
        index=shape.index,
        layers=tuple(shape.layers),
        devices=tuple(
            Share(
                device=share.id,
                samples=share.samples,
                memory=share.memory_bytes,
                memory_limit=_or_inf(share.memory_limit_bytes),
            )
            for share in shape.devices
        ),
        forward=shape.forward_s,
        backward=shape.backward_s,
        in_flight=shape.in_flight,
        recompute=shape.recompute,
        offload=shape.offload,
        optimizer_shards=shape.optimizer_shards,
        update=shape.update_s,
        allreduce=shape.allreduce_s,
        inputs=None if shape.inputs is None else tuple(shape.inputs),
        recompute_segments=tuple((first, last) for first, last in shape.recompute_segments),
    )


def _prediction(shape: PredictedShape) -> Prediction:
    slowest = shape.bottleneck
    return Prediction(
        step=shape.step_s,
        step_low=shape.step_low_s,
        step_high=shape.step_high_s,
        samples_per_second=_or_inf(shape.samples_per_s),
        bubble_fraction=shape.bubble_fraction,
        bottleneck=Bottleneck(kind=slowest.kind, index=slowest.index, busy=slowest.busy_s),
        transfer_bytes=shape.transfer_bytes,
        duration=shape.duration_s,
        cost=shape.cost,
        energy=shape.energy_j,
        duration_low=shape.duration_low_s,
        duration_high=shape.duration_high_s,
    )
