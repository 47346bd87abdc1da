"""A plan, or why there is none, as people read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from ignite_scheduler.cli.output import bar, number, percent, seconds, span, table
from ignite_scheduler.model import Alternative, Infeasible, Plan, Stage
from ignite_scheduler.units import format_memory

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LAYERS_SHOWN = 3
ALTERNATIVES_SHOWN = 3
SHOWN_IN_TABLES = frozenset({"devices", "split", "stages", "num_microbatches", "times"})


def short_form(plan: Plan) -> str:
    """A plan in one line: schedule, microbatches, and layers at each device.

    Examples: ``1f1b ×8: 5@a/x-0 │ 3@b/y-0``.
    """
    stages = " │ ".join(
        f"{len(stage.layers)}@{'+'.join(share.device for share in stage.devices)}" for stage in plan.stages
    )
    return f"{plan.schedule} ×{len(plan.microbatches)}: {stages}"


def plan_parts(plan: Plan, *, currency: str | None, wide: bool = False) -> list[RenderableType]:
    """The plan's tables and lines, in reading order."""
    sizes = microbatch_text(plan.microbatches)
    head = f"[bold]{escape(plan.job)}[/]  {plan.schedule}, {sizes}, {plan.precision}"
    parts: list[RenderableType] = [head, "", stage_table(plan, wide=wide), "", *summary(plan, currency)]
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
    """Stages as rows: layers, device, times of one microbatch, memory against its limit, microbatches in flight."""
    rows = []
    for stage in plan.stages:
        fullest = stage.fullest
        used = f"{format_memory(fullest.memory)} of {_limit(fullest.memory_limit)}"
        gauge = bar(fullest.memory, fullest.memory_limit) if math.isfinite(fullest.memory_limit) else ""
        rows.append(
            [
                str(stage.index),
                escape(_layers(stage, wide=wide)),
                escape(", ".join(share.device for share in stage.devices)),
                seconds(stage.forward),
                seconds(stage.backward),
                f"{gauge} {used}".strip(),
                str(stage.in_flight),
            ]
        )
    columns = ["stage", "layers", "device", "forward", "backward", "memory", "in flight"]
    return table(columns, rows, right="0346")


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
    return f"at most {percent(bound.gap, 2)} above the best possible: bound {seconds(bound.step)} ({bound.method})"


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


def pareto_table(plans: Sequence[Plan], currency: str | None) -> Table:
    """Plans of which none beats another in time, devices and money at once, the fastest first."""
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
        ]
        for plan in sorted(plans, key=lambda plan: plan.predicted.step)
    ]
    columns = ["devices", "which", "layers", "schedule", "step", "against the fastest", "whole job", "cost"]
    return table(columns, rows, right="04567")


def ratio(value: float, reference: float) -> str:
    """How much longer or shorter than the reference, in percent.

    >>> ratio(1.1, 1.0), ratio(1.0, 1.0)
    ('+10.0 %', 'equal')
    """
    if reference <= 0 or abs(value / reference - 1) < 5e-4:
        return "equal"
    return f"{100 * (value / reference - 1):+.1f} %"


def against(plan: Plan, base: Plan | Infeasible, reference: float) -> str:
    """How much longer or shorter a step is than the first plan's, and whether that is more than their ranges."""
    text = ratio(plan.predicted.step, reference)
    if not isinstance(base, Plan) or text == "equal":
        return text
    one, other = plan.predicted, base.predicted
    ranged = one.step_low < one.step_high and other.step_low < other.step_high
    overlap = one.step_low <= other.step_high and other.step_low <= one.step_high
    return f"{text} (within their ranges)" if ranged and overlap else text


def infeasible_parts(answer: Infeasible) -> list[RenderableType]:
    """Why there is no plan, by how much, and what would cure it."""
    parts: list[RenderableType] = [f"[bold red]cannot be planned[/] ({answer.code}): {escape(answer.text)}"]
    if answer.shortfall is not None:
        parts.append(f"missing memory: {format_memory(answer.shortfall)}")
    if answer.earliest_finish is not None:
        parts.append(f"earliest finish: {seconds(answer.earliest_finish)} after submission")
    return parts + _list("what would help", answer.cures)


def difference_table(columns: Sequence[str], plans: Sequence[Plan | Infeasible], currency: str | None) -> Table:
    """Plans side by side, one column each; the first is the reference."""
    base = plans[0]
    reference = base.predicted.step if isinstance(base, Plan) else 0.0
    rows: list[list[str]] = [
        ["step", *(step_text(p) if isinstance(p, Plan) else f"none ({p.code})" for p in plans)],
        ["against the first", *(_of(plan, lambda p: against(p, base, reference)) for plan in plans)],
        ["samples/s", *(_of(plan, lambda p: number(p.predicted.samples_per_second)) for plan in plans)],
        ["bubble", *(_of(plan, lambda p: percent(p.predicted.bubble_fraction)) for plan in plans)],
        ["bottleneck", *(_of(plan, bottleneck_text) for plan in plans)],
        ["devices", *(_of(plan, lambda p: "\n".join(p.device_ids)) for plan in plans)],
        ["layers", *(_of(plan, lambda p: "-".join(str(len(s.layers)) for s in p.stages)) for plan in plans)],
        ["schedule", *(_of(plan, lambda p: f"{p.schedule} ×{len(p.microbatches)}") for plan in plans)],
        ["fullest device", *(_of(plan, _fullest) for plan in plans)],
        ["whole job", *(_of(plan, duration_text) for plan in plans)],
        ["cost", *(_of(plan, lambda p: money(p.predicted.cost, currency)) for plan in plans)],
    ]
    return table(["", *columns], [[escape(cell) for cell in row] for row in rows])


def _of(plan: Plan | Infeasible, cell: Callable[[Plan], str]) -> str:
    return cell(plan) if isinstance(plan, Plan) else "–"


def _fullest(plan: Plan) -> str:
    shares = [share for stage in plan.stages for share in stage.devices if math.isfinite(share.memory_limit)]
    if not shares:
        return "no limits"
    share = max(shares, key=lambda s: s.memory / s.memory_limit if s.memory_limit else math.inf)
    return f"{percent(share.memory / share.memory_limit if share.memory_limit else None, 0)} of {share.device}"


def _list(title: str, lines: Iterable[str]) -> list[RenderableType]:
    found = list(lines)
    return ["", f"{title}:", *(f"  • {escape(line)}" for line in found)] if found else []
