"""A plan, or why there is none, as people read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from ignite_scheduler.cli.output import bar, number, percent, seconds, span, table
from ignite_scheduler.formats.comparison import actions_of
from ignite_scheduler.model import Alternative, Infeasible, Plan, Stage
from ignite_scheduler.units import format_memory

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LAYERS_SHOWN = 3
ALTERNATIVES_SHOWN = 3
REASONS_SHOWN = 4
SHOWN_IN_TABLES = frozenset({"devices", "split", "stages", "num_microbatches", "times"})

_OTHERS: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = MappingProxyType(
    {
        "energy": ("energy a sample", lambda joules: f"{joules:.4g} J"),
        "headroom": ("memory left", lambda share: f"{100 * share:.1f} %"),
    }
)
"""Objectives that the table of a Pareto set shows on demand: heading and text."""


def short_form(plan: Plan) -> str:
    """A plan in one line: schedule, microbatches, and layers at each device.

    Examples: ``1f1b ×8: 5@a/x-0 │ 3@b/y-0``.
    """
    stages = " │ ".join(stage_short(stage) for stage in plan.stages)
    return f"{plan.schedule} ×{len(plan.microbatches)}: {stages}"


def stage_short(stage: Stage) -> str:
    """Number of layers and devices of a stage.

    Examples: ``5@a/x-0``, ``3@b/y-0+b/y-1``.
    """
    return f"{len(stage.layers)}@{'+'.join(share.device for share in stage.devices)}"


def plan_parts(plan: Plan, *, currency: str | None, wide: bool = False) -> list[RenderableType]:
    """The plan's tables and lines, in reading order."""
    sizes = microbatch_text(plan.microbatches)
    head = f"[bold]{escape(plan.job)}[/]  {plan.schedule}, {sizes}, {plan.precision}"
    parts: list[RenderableType] = [head, "", stage_table(plan, wide=wide), "", *summary(plan, currency)]
    parts += _list("what binds", (reason.text for reason in (plan.why if wide else plan.why[:REASONS_SHOWN])))
    parts += _list("unused devices", (f"{unused.device}: {unused.reason}" for unused in plan.unused))
    parts += _list("warnings", plan.warnings)
    if plan.resolved:
        parts += ["", "resolved: " + escape(resolved_text(plan, wide=wide))]
    if plan.alternatives:
        shown = plan.alternatives if wide else plan.alternatives[:ALTERNATIVES_SHOWN]
        parts += ["", alternative_table(plan, shown, currency)]
    return parts


def microbatch_text(sizes: Sequence[int]) -> str:
    """Microbatches in words: ``8 microbatches of 4``, the odd last one named.

    >>> microbatch_text((3, 3, 2))
    '3 microbatches of 3 (the last 2)'
    """
    noun = "microbatch" if len(sizes) == 1 else "microbatches"
    odd = f" (the last {sizes[-1]})" if sizes[-1] != sizes[0] else ""
    return f"{len(sizes)} {noun} of {sizes[0]}{odd}"


def stage_table(plan: Plan, *, wide: bool = False) -> Table:
    """Stages as rows: layers, devices with their shares, times of one microbatch, memory, microbatches in flight.

    Memory is that of the device with the least room, against its limit. Columns that say the same of every plan of a
    simple kind are there only where they say something: what a stage does to fit, what feeds it, its virtual worker.
    """
    workers = workers_of(plan)
    columns: list[tuple[str, Callable[[Stage], str]]] = [
        ("stage", lambda stage: str(stage.index)),
        ("layers", lambda stage: escape(_layers(stage, wide=wide))),
        ("device", lambda stage: escape(devices_text(stage))),
        ("forward", lambda stage: seconds(stage.forward)),
        ("backward", lambda stage: seconds(stage.backward)),
        ("memory", _memory),
        ("in flight", lambda stage: str(stage.in_flight)),
    ]
    if any(actions_of(stage) for stage in plan.stages):
        columns.append(("to fit", lambda stage: ", ".join(actions_of(stage))))
    if any(stage.allreduce for stage in plan.stages):
        columns.append(("all-reduce", lambda stage: seconds(stage.allreduce)))
    if workers:
        columns.insert(1, ("worker", lambda stage: str(workers[stage.index])))
    elif any(stage.inputs is not None for stage in plan.stages):
        columns.insert(1, ("fed by", lambda stage: ", ".join(map(str, _feeds(stage))) or "input"))
    names = [name for name, _ in columns]
    right = "".join(
        str(index) for index, name in enumerate(names) if name not in ("layers", "device", "memory", "to fit", "fed by")
    )
    return table(names, [[cell(stage) for _, cell in columns] for stage in plan.stages], right=right)


def devices_text(stage: Stage) -> str:
    """The devices of a stage; of several each with its samples of a full microbatch.

    Examples: ``lab1/A100-0``, ``lab1/A100-0 ×6, lab1/T4-1 ×2``.
    """
    if len(stage.devices) == 1:
        return stage.devices[0].device
    return ", ".join(f"{share.device} ×{share.samples}" for share in stage.devices)


def workers_of(plan: Plan) -> dict[int, int]:
    """The virtual worker of each stage, counted from 0; empty where every layer is held by one stage only."""
    names = [name for stage in plan.stages for name in stage.layers]
    if len(set(names)) == len(names):
        return {}
    workers: dict[int, int] = {}
    count = 0
    for stage in plan.stages:
        feeds = _feeds(stage)
        if not feeds:
            count += 1
        workers[stage.index] = workers[feeds[0]] if feeds else count - 1
    return workers


def _feeds(stage: Stage) -> tuple[int, ...]:
    """The stages that feed a stage; of a chain the one before."""
    if stage.inputs is not None:
        return stage.inputs
    return (stage.index - 1,) if stage.index else ()


def _memory(stage: Stage) -> str:
    fullest = stage.fullest
    gauge = bar(fullest.memory, fullest.memory_limit) if math.isfinite(fullest.memory_limit) else ""
    where = f" on {escape(fullest.device)}" if len(stage.devices) > 1 else ""
    return f"{gauge} {format_memory(fullest.memory)} of {_limit(fullest.memory_limit)}{where}".strip()


def resolved_text(plan: Plan, *, wide: bool = False) -> str:
    """Values that were left to the planner; what the tables show already only in the wide form."""
    values = {key: value for key, value in plan.resolved.items() if wide or key not in SHOWN_IN_TABLES}
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _limit(limit: float) -> str:
    return format_memory(limit) if math.isfinite(limit) else "no limit"


def _layers(stage: Stage, *, wide: bool) -> str:
    names = stage.layers
    count = f"{len(names)}: "
    if wide or len(names) <= LAYERS_SHOWN:
        return count + ", ".join(names)
    return f"{count}{names[0]} … {names[-1]}"


def summary(plan: Plan, currency: str | None) -> list[str]:
    """Lines on time, bottleneck, proof and money."""
    predicted = plan.predicted
    lines = [
        f"step {step_text(plan)}   {number(predicted.samples_per_second)} samples/s   "
        f"bubble {percent(predicted.bubble_fraction)}   bottleneck {bottleneck_text(plan)}",
        proof_text(plan),
    ]
    totals = [f"whole job {duration_text(plan)}"] if predicted.duration is not None else []
    if predicted.cost is not None:
        totals.append(f"cost {money(predicted.cost, currency)}")
    if predicted.energy is not None:
        totals.append(f"energy {number(predicted.energy / 3.6e6)} kWh")
    totals.append(f"traffic {format_memory(predicted.transfer_bytes)} a step")
    return [*lines, "   ".join(totals)]


def step_text(plan: Plan) -> str:
    """Seconds of a step, with the range of 80 % of the cases where a calibration gives one."""
    predicted = plan.predicted
    if predicted.step_low == predicted.step_high:
        return seconds(predicted.step)
    return f"{seconds(predicted.step)} ({span(predicted.step_low, predicted.step_high)})"


def duration_text(plan: Plan) -> str:
    """Seconds of the whole job, with their range where a calibration gives one."""
    predicted = plan.predicted
    if predicted.duration_low is None or predicted.duration_high is None:
        return seconds(predicted.duration)
    return f"{seconds(predicted.duration)} ({span(predicted.duration_low, predicted.duration_high)})"


def money(value: float | None, currency: str | None) -> str:
    """An amount in the cluster's currency, a dash where unknown."""
    return "–" if value is None else f"{value:.4g} {currency or ''}".strip()


def bottleneck_text(plan: Plan) -> str:
    """The busiest resource in words."""
    neck = plan.predicted.bottleneck
    where = f"stage {neck.index}" if neck.kind == "stage" else f"link after stage {neck.index}"
    return f"{where} ({seconds(neck.busy)} a microbatch)"


def proof_text(plan: Plan) -> str:
    """What is known about how good the plan is."""
    bound = plan.bound
    if bound.optimal:
        return f"proven optimal: no plan of this kind is faster ({bound.method})"
    if not math.isfinite(bound.gap):
        return f"nothing is proven of better plans ({bound.method})"
    return f"at most {percent(bound.gap, 2)} above the best possible: bound {seconds(bound.step)} ({bound.method})"


def binds_text(plan: Plan) -> str:
    """What binds most, in a few words: as worked out, else the busiest resource."""
    first = next((reason for reason in plan.why if reason.share is not None), None)
    if first is None:
        return bottleneck_text(plan)
    place = "" if first.index is None else f" {first.index}"
    where = {"stage": f"stage{place}", "link": f"link after stage{place}", "allreduce": "all-reduce"}
    noun = where.get(first.kind) or (f"memory of {first.device}" if first.kind == "memory" else first.kind)
    return f"{noun} ({percent(first.share, 0)} of the step)"


def gap_text(plan: Plan) -> str:
    """What is proven, in a word or two."""
    if plan.bound.optimal:
        return "optimal"
    return f"gap {percent(plan.bound.gap, 2)}" if math.isfinite(plan.bound.gap) else "no bound"


def alternative_table(plan: Plan, alternatives: Iterable[Alternative], currency: str | None) -> Table:
    """Other plans in short, each with its step time and how it compares."""
    rows = [
        [
            escape(", ".join(other.devices)),
            "-".join(map(str, other.num_layers)),
            f"{other.schedule} ×{other.num_microbatches}",
            seconds(other.step),
            ratio(other.step, plan.predicted.step),
            money(other.cost, currency),
        ]
        for other in alternatives
    ]
    return table(["alternative", "layers", "schedule", "step", "against the plan", "cost"], rows, right="345")


def pareto_table(
    plans: Sequence[Plan], currency: str | None, others: Mapping[str, Sequence[float]] = MappingProxyType({})
) -> Table:
    """Plans of which none beats another in all objectives at once, in the order given.

    ``others``: objectives beside time, money and devices, energy (J a sample) or headroom (a share), by plan.
    """
    fastest = min(plan.predicted.step for plan in plans)
    rows = [
        [
            str(len(plan.device_ids)),
            escape(", ".join(plan.device_ids)),
            "-".join(str(len(stage.layers)) for stage in plan.stages),
            f"{plan.schedule} ×{len(plan.microbatches)}",
            step_text(plan),
            ratio(plan.predicted.step, fastest),
            duration_text(plan),
            money(plan.predicted.cost, currency),
            *(_OTHERS[name][1](values[place]) for name, values in others.items()),
        ]
        for place, plan in enumerate(plans)
    ]
    columns = ["devices", "which", "layers", "schedule", "step", "against the fastest", "whole job", "cost"]
    columns += [_OTHERS[name][0] for name in others]
    return table(columns, rows, right="0456789"[: len(columns) - 3])


def ratio(value: float, reference: float) -> str:
    """How much longer or shorter than the reference, in percent.

    >>> ratio(1.1, 1.0), ratio(1.0, 1.0)
    ('+10.0 %', 'equal')
    """
    if reference <= 0 or abs(value / reference - 1) < 5e-4:
        return "equal"
    return f"{100 * (value / reference - 1):+.1f} %"


def infeasible_parts(answer: Infeasible) -> list[RenderableType]:
    """Why there is no plan, by how much, and what would cure it."""
    parts: list[RenderableType] = [f"[bold red]cannot be planned[/] ({answer.code}): {escape(answer.text)}"]
    if answer.shortfall is not None:
        parts.append(f"missing memory: {format_memory(answer.shortfall)}")
    if answer.earliest_finish is not None:
        parts.append(f"earliest finish: {seconds(answer.earliest_finish)} after submission")
    return parts + _list("what would help", answer.cures)


def _list(title: str, lines: Iterable[str]) -> list[RenderableType]:
    found = list(lines)
    return ["", f"{title}:", *(f"  • {escape(line)}" for line in found)] if found else []
