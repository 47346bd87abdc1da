"""What people see of a plan."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console

from ignite_scheduler.cli import plan_table
from ignite_scheduler.cli.output import bar, number, percent, seconds
from ignite_scheduler.model import Alternative, Bottleneck, Bound, Infeasible, Plan, Prediction, Share, Stage, Unused


def stage(index: int, num_layers: int, device: str, *, limit: float = 40e9) -> Stage:
    first = 10 * index
    return Stage(
        index=index,
        layers=tuple(f"l{first + offset}" for offset in range(num_layers)),
        devices=(Share(device=device, samples=4, memory=31e9, memory_limit=limit),),
        forward=0.1,
        backward=0.2,
        in_flight=2 - index,
    )


PLAN = Plan(
    job="gpt[small]",
    schedule="1f1b",
    precision="fp32",
    microbatches=(4, 4, 3),
    stages=(stage(0, 5, "lab1/A100-40GB-0"), stage(1, 2, "lab2/box", limit=math.inf)),
    predicted=Prediction(
        step=1.2,
        step_low=1.2,
        step_high=1.5,
        samples_per_second=9.1667,
        bubble_fraction=0.25,
        bottleneck=Bottleneck(kind="link", index=0, busy=0.35),
        transfer_bytes=1e9,
        duration=1200.0,
        cost=1.234,
        energy=7.2e6,
    ),
    bound=Bound(step=1.19, gap=0.0084, method="head + steady + tail", optimal=False),
    unused=(Unused(device="lab2/slow-0", reason="with one layer on it the best step is 10s"),),
    alternatives=(
        Alternative(devices=("lab1/A100-40GB-0",), num_layers=(7,), schedule="1f1b", num_microbatches=3, step=1.8),
    ),
    warnings=("lab2/box sets the pace",),
    resolved={"micro": 4, "stages": 2},
)


def text(*parts: object) -> str:
    out = Console(width=160, color_system=None, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    with out.file:
        for part in parts:
            out.print(part)
        return out.export_text()


@pytest.mark.parametrize(
    "word",
    [
        "gpt[small]",
        "3 microbatches of 4 (the last 3)",
        "5: l0 … l4",
        "2: l10, l11",
        "lab1/A100-40GB-0",
        "100ms",
        "200ms",
        "31GB of 40GB",
        "▰▰▰▰▰▰▰▰▱▱",
        "31GB of no limit",
        "step 1.2s (1.2s to 1.5s)",
        "9.167 samples/s",
        "bubble 25.0 %",
        "bottleneck link after stage 0 (350ms a microbatch)",
        "at most 0.84 % above the best possible: bound 1.19s",
        "whole job 20min",
        "cost 1.234 EUR",
        "energy 2 kWh",
        "lab2/slow-0: with one layer on it the best step is 10s",
        "lab2/box sets the pace",
        "resolved: micro=4",
        "+50.0 %",
    ],
)
def test_a_plan_says(word: str) -> None:
    assert word in text(*plan_table.plan_parts(PLAN, currency="EUR"))


def test_the_wide_form_names_every_layer_and_value() -> None:
    shown = text(*plan_table.plan_parts(PLAN, currency=None, wide=True))

    assert "l0, l1, l2, l3, l4" in shown
    assert "micro=4, stages=2" in shown


def test_a_proven_plan_says_so() -> None:
    proven = replace(PLAN, bound=Bound(step=1.2, gap=0.0, method="search", optimal=True))

    assert "proven optimal" in text(*plan_table.plan_parts(proven, currency=None))


def test_a_plan_without_prices_does_not_claim_to_be_free() -> None:
    free = replace(PLAN, predicted=replace(PLAN.predicted, cost=None, energy=None))

    shown = text(*plan_table.plan_parts(free, currency="EUR"))

    assert "EUR" not in shown
    assert "kWh" not in shown


def test_the_short_form_is_one_line() -> None:
    assert plan_table.short_form(PLAN) == "1f1b ×3: 5@lab1/A100-40GB-0 │ 2@lab2/box"


def test_a_refusal_says_what_is_missing_and_what_would_help() -> None:
    shown = text(
        *plan_table.infeasible_parts(
            Infeasible(code="memory", text="31 layers fit nowhere", shortfall=1e9, cures=("recompute: true",))
        )
    )

    assert "cannot be planned (memory): 31 layers fit nowhere" in shown
    assert "missing memory: 1GB" in shown
    assert "• recompute: true" in shown


def test_a_hopeless_deadline_names_the_earliest_finish() -> None:
    shown = text(*plan_table.infeasible_parts(Infeasible(code="deadline", text="too late", earliest_finish=2400.0)))

    assert "earliest finish: 40min after submission" in shown


def test_plans_are_compared_with_the_first() -> None:
    slower = replace(PLAN, predicted=replace(PLAN.predicted, step=1.8))
    none = Infeasible(code="memory", text="does not fit")

    shown = text(plan_table.difference_table(["now", "less", "nothing"], [PLAN, slower, none], "EUR"))

    assert "+50.0 %" in shown
    assert "equal" in shown
    assert "none (memory)" in shown
    assert "5-2" in shown


@pytest.mark.parametrize(
    ("part", "whole", "drawn"), [(0, 4, "▱▱▱▱"), (2, 4, "▰▰▱▱"), (4, 4, "▰▰▰▰"), (5, 4, "▰▰▰▰!"), (1, 0, "▰▰▰▰!")]
)
def test_a_bar_is_filled_in_proportion(part: float, whole: float, drawn: str) -> None:
    assert bar(part, whole, width=4) == drawn


def test_the_unknown_is_a_dash() -> None:
    assert (seconds(None), percent(None), number(None), plan_table.money(None, "EUR")) == ("–", "–", "–", "–")
