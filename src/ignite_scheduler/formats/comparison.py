"""``ignite/comparison/v1``: answers of the planner side by side, and in what each differs from the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from ignite_scheduler.formats.plan import answer_document
from ignite_scheduler.model import Infeasible, Plan, Share, Stage

COMPARISON_SCHEMA: Final = "ignite/comparison/v1"


def comparison_document(files: Sequence[str], answers: Sequence[Plan | Infeasible]) -> dict[str, Any]:
    """The document of answers side by side; the first is what the others are measured against."""
    first = answers[0]
    return {
        "schema": COMPARISON_SCHEMA,
        "plans": [
            {
                "file": file,
                "step_ratio": _step_ratio(first, answer),
                "difference": None if index == 0 else difference(first, answer),
                "plan": answer_document(answer, job=answer.job if isinstance(answer, Plan) else file),
            }
            for index, (file, answer) in enumerate(zip(files, answers, strict=True))
        ],
    }


def difference(first: Plan | Infeasible, other: Plan | Infeasible) -> dict[str, Any]:
    """In what ``other`` differs from ``first``, as plain data; the keys are those of ``ignite schema comparison``."""
    if isinstance(first, Infeasible) or isinstance(other, Infeasible):
        return {"feasible": isinstance(other, Plan)}
    before, after = first.predicted, other.predicted
    speed = after.samples_per_second - before.samples_per_second
    return {
        "feasible": True,
        "step_ratio": _step_ratio(first, other),
        "step_s": after.step - before.step,
        "samples_per_s": speed if math.isfinite(speed) else None,
        "cost": _minus(after.cost, before.cost),
        "energy_j": _minus(after.energy, before.energy),
        "devices_added": [name for name in other.device_ids if name not in first.device_ids],
        "devices_removed": [name for name in first.device_ids if name not in other.device_ids],
        "num_stages": _pair(first.num_stages, other.num_stages),
        "schedule": _pair(first.schedule, other.schedule),
        "num_microbatches": _pair(len(first.microbatches), len(other.microbatches)),
        "layers_moved": moved_layers(first, other),
        "actions": _pair(memory_actions(first), memory_actions(other)),
        "fullest": _pair(_fullest_entry(first), _fullest_entry(other)),
        "binds": _pair(_binds(first), _binds(other)),
    }


def moved_layers(first: Plan, other: Plan) -> list[dict[str, Any]]:
    """Runs of layers that other devices hold, in the first plan's order; layers that one of the plans lacks apart."""
    before, after = _holders(first), _holders(other)
    changes = [(before[name], after[name], name) for name in before if name in after and before[name] != after[name]]
    return [
        {"layers": [name for _, _, name in run], "from": list(old), "to": list(new)}
        for (old, new), run in groupby(changes, key=lambda change: change[:2])
    ]


def memory_actions(plan: Plan) -> list[str]:
    """What the stages do to fit their memory, in words.

    Examples: ``stage 0: recompute``, ``stage 2: optimizer ÷ 4``.
    """
    return [f"stage {stage.index}: {', '.join(words)}" for stage in plan.stages if (words := actions_of(stage))]


def actions_of(stage: Stage) -> list[str]:
    """What the stage does to fit its memory, a word or two for each action."""
    shards = f"optimizer ÷ {stage.optimizer_shards}" if stage.optimizer_shards > 1 else ""
    segments = [first if first == last else f"{first} … {last}" for first, last in stage.recompute_segments]
    recompute = f"recompute {', '.join(segments)}".strip() if stage.recompute else ""
    return [word for word in (recompute, "offload" if stage.offload else "", shards) if word]


def fullest_share(plan: Plan) -> Share | None:
    """The device with the least room left in proportion to its limit; None where none has a limit."""
    shares = [share for stage in plan.stages for share in stage.devices if math.isfinite(share.memory_limit)]
    return max(shares, key=_fill, default=None)


def _fill(share: Share) -> float:
    return share.memory / share.memory_limit if share.memory_limit else math.inf


def _holders(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The devices that hold each layer, in order of stages."""
    found: dict[str, tuple[str, ...]] = {}
    for stage in plan.stages:
        devices = tuple(share.device for share in stage.devices)
        for layer in stage.layers:
            found[layer] = (*found.get(layer, ()), *devices)
    return found


def _fullest_entry(plan: Plan) -> dict[str, Any] | None:
    share = fullest_share(plan)
    if share is None:
        return None
    return {"device": share.device, "memory_bytes": share.memory, "memory_limit_bytes": share.memory_limit}


def _binds(plan: Plan) -> str:
    if plan.why:
        return plan.why[0].text
    neck = plan.predicted.bottleneck
    return f"stage {neck.index}" if neck.kind == "stage" else f"link after stage {neck.index}"


def _step_ratio(first: Plan | Infeasible, other: Plan | Infeasible) -> float | None:
    if isinstance(first, Infeasible) or isinstance(other, Infeasible) or not first.predicted.step:
        return None
    return other.predicted.step / first.predicted.step


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _pair(before: Any, after: Any) -> list[Any] | None:
    return None if before == after else [before, after]
