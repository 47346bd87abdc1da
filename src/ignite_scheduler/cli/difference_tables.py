"""Answers side by side, as people read them: scenarios as rows, documents as columns, and what differs in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from ignite_scheduler.cli.output import number, percent, table
from ignite_scheduler.cli.plan_table import (
    binds_text,
    devices_text,
    duration_text,
    gap_text,
    money,
    ratio,
    stage_short,
    step_text,
)
from ignite_scheduler.formats.comparison import fullest_share, memory_actions, moved_layers
from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.units import format_memory

if TYPE_CHECKING:
    from rich.table import Table

DEVICES_SHOWN = 3
"""Devices that a scenario adds or drops and that are named; of more their number is said."""
MOVES_SHOWN = 6


def scenario_table(
    now: Plan | Infeasible, scenarios: Sequence[tuple[str, Plan | Infeasible]], currency: str | None
) -> Table:
    """Scenarios as rows, the cluster as it is first; what has no plan says why in its row.

    What is known of none, such as money, has no column.
    """
    rows = []
    for name, answer in [("now", now), *scenarios]:
        if isinstance(answer, Infeasible):
            rows.append([escape(name), f"none ({answer.code})", *["–"] * 7, escape(answer.text)])
            continue
        found = answer.predicted
        rows.append(
            [
                escape(name),
                step_text(answer),
                against(answer, now) if isinstance(now, Plan) else "–",
                number(found.samples_per_second),
                money(found.cost, currency),
                "–" if found.energy is None else f"{number(found.energy / 3.6e6)} kWh",
                escape(_devices(answer, now)),
                "-".join(str(len(stage.layers)) for stage in answer.stages),
                gap_text(answer),
                binds_text(answer),
            ]
        )
    columns = ["scenario", "step", "against now", "samples/s", "cost", "energy"]
    columns += ["devices", "layers", "proof", "what binds"]
    known = [index for index in range(len(columns)) if any(row[index] != "–" for row in rows)]
    right = "".join(str(place) for place, index in enumerate(known) if 1 <= index <= 5)
    return table([columns[index] for index in known], [[row[index] for index in known] for row in rows], right=right)


def _devices(answer: Plan, now: Plan | Infeasible) -> str:
    """How many devices, and which of them are new or gone."""
    held = answer.device_ids
    before = now.device_ids if isinstance(now, Plan) else held
    changes = [
        ("+", [name for name in held if name not in before]),
        ("−", [name for name in before if name not in held]),
    ]
    texts = [str(len(held))]
    for sign, names in changes:
        short = len(names) <= DEVICES_SHOWN
        texts += [f"{sign}{name}" for name in names] if short else [f"{sign}{len(names)} others"]
    return " ".join(texts)


def comparison_table(columns: Sequence[str], plans: Sequence[Plan | Infeasible], currency: str | None) -> Table:
    """Plans as columns; the first is the reference."""
    base = plans[0]
    cells: list[tuple[str, Callable[[Plan], str]]] = [
        ("samples/s", lambda p: number(p.predicted.samples_per_second)),
        ("bubble", lambda p: percent(p.predicted.bubble_fraction)),
        ("what binds", binds_text),
        ("proof", gap_text),
        ("devices", lambda p: "\n".join(devices_text(stage) for stage in p.stages)),
        ("layers", lambda p: "-".join(str(len(stage.layers)) for stage in p.stages)),
        ("schedule", lambda p: f"{p.schedule} ×{len(p.microbatches)}"),
        ("to fit", lambda p: "\n".join(memory_actions(p)) or "–"),
        ("fullest device", _fullest),
        ("whole job", duration_text),
        ("cost", lambda p: money(p.predicted.cost, currency)),
        ("energy", lambda p: "–" if p.predicted.energy is None else f"{number(p.predicted.energy / 3.6e6)} kWh"),
        ("traffic", lambda p: format_memory(p.predicted.transfer_bytes)),
    ]
    rows = [
        ["step", *(step_text(p) if isinstance(p, Plan) else f"none ({p.code})" for p in plans)],
        [
            "against the first",
            *(against(p, base) if isinstance(p, Plan) and isinstance(base, Plan) else "–" for p in plans),
        ],
        *([name, *(cell(p) if isinstance(p, Plan) else "–" for p in plans)] for name, cell in cells),
    ]
    return table(["", *columns], [[escape(cell) for cell in row] for row in rows])


def against(plan: Plan, base: Plan) -> str:
    """How much longer or shorter a step is than the first plan's, and whether that is more than their ranges."""
    one, other = plan.predicted, base.predicted
    text = ratio(one.step, other.step)
    if text == "equal":
        return text
    ranged = one.step_low < one.step_high and other.step_low < other.step_high
    overlap = one.step_low <= other.step_high and other.step_low <= one.step_high
    return f"{text} (within their ranges)" if ranged and overlap else text


def difference_lines(first: Plan | Infeasible, other: Plan | Infeasible) -> list[str]:
    """In what a plan differs from the first, a line for each thing; what is the same is left out."""
    if isinstance(other, Infeasible):
        return [f"no plan: {other.text}"]
    if isinstance(first, Infeasible):
        return [f"a plan, where the first has none: {first.text}"]
    lines = []
    gone = [name for name in first.device_ids if name not in other.device_ids]
    new = [name for name in other.device_ids if name not in first.device_ids]
    if gone or new:
        texts = [f"{verb} {', '.join(names)}" for verb, names in (("without", gone), ("with", new)) if names]
        lines.append(f"devices: {'; '.join(texts)}")
    order = [[stage_short(stage) for stage in plan.stages] for plan in (first, other)]
    if order[0] != order[1] and not (gone or new):
        lines.append(f"stages: {' │ '.join(order[1])} instead of {' │ '.join(order[0])}")
    moved = moved_layers(first, other)
    for run in moved[:MOVES_SHOWN]:
        names = run["layers"]
        text = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} layers)"
        lines.append(f"{text}: on {', '.join(run['to'])} instead of {', '.join(run['from'])}")
    if len(moved) > MOVES_SHOWN:
        lines.append(f"{len(moved) - MOVES_SHOWN} more runs of layers on other devices")
    for noun, text in (
        ("schedule", _schedule),
        ("to fit", _to_fit),
        ("fullest device", _fullest),
        ("binds", binds_text),
    ):
        before, after = text(first), text(other)
        if before != after:
            lines.append(f"{noun}: {after} instead of {before}")
    return lines


def _schedule(plan: Plan) -> str:
    return f"{plan.schedule} with {len(plan.microbatches)} × {plan.microbatches[0]} samples"


def _to_fit(plan: Plan) -> str:
    return "; ".join(memory_actions(plan)) or "nothing"


def _fullest(plan: Plan) -> str:
    share = fullest_share(plan)
    if share is None:
        return "no limits"
    part = share.memory / share.memory_limit if share.memory_limit else None
    return f"{percent(part, 0)} of {share.device}"
