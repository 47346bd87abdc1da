"""What people see of a plan."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console

from ignite_scheduler.cli import plan_table
from ignite_scheduler.cli.output import bar, number, percent, seconds
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


GROUP = replace(
    PLAN.stages[1],
    devices=(
        Share(device="lab2/T4-0", samples=3, memory=10e9, memory_limit=16e9),
        Share(device="lab2/T4-1", samples=1, memory=12e9, memory_limit=16e9),
    ),
    recompute=True,
    optimizer_shards=2,
    allreduce=0.25,
)


@pytest.mark.parametrize(
    "word",
    ["lab2/T4-0 ×3, lab2/T4-1 ×1", "12GB of 16GB on lab2/T4-1", "recompute, optimizer ÷ 2", "all-reduce", "250ms"],
)
def test_a_group_of_devices_says_their_shares_the_fullest_and_what_it_does_to_fit(word: str) -> None:
    plan = replace(PLAN, stages=(PLAN.stages[0], GROUP))

    assert word in text(plan_table.stage_table(plan))


@pytest.mark.parametrize("word", ["to fit", "all-reduce", "fed by", "worker"])
def test_columns_that_say_nothing_are_left_out(word: str) -> None:
    assert word not in text(plan_table.stage_table(PLAN))


def columns(plan: Plan) -> list[list[str]]:
    return [line.split() for line in text(plan_table.stage_table(plan)).splitlines()]


def test_a_stage_graph_says_what_feeds_each_stage() -> None:
    sink = replace(stage(2, 1, "lab3/x"), inputs=(0, 1))
    graph = replace(PLAN, stages=(*(replace(one, inputs=()) for one in PLAN.stages), sink))

    lines = columns(graph)

    assert lines[0][:3] == ["stage", "fed", "by"]
    assert [line[1:3] for line in lines[2:]] == [["input", "5:"], ["input", "2:"], ["0,", "1"]]


def test_virtual_workers_hold_the_same_layers_and_are_numbered() -> None:
    first, second = PLAN.stages
    other = tuple(
        replace(
            one,
            index=one.index + 2,
            inputs=() if one.index == 0 else None,
            devices=(replace(one.devices[0], device="z"),),
        )
        for one in PLAN.stages
    )
    plan = replace(PLAN, stages=(replace(first, inputs=()), second, *other))

    assert plan_table.workers_of(plan) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert [line[:2] for line in columns(plan)][2:] == [["0", "0"], ["1", "0"], ["2", "1"], ["3", "1"]]


def test_what_binds_is_listed_and_named_in_short() -> None:
    why = (
        Reason(kind="link", index=0, share=0.62, text="link from stage 0 to stage 1"),
        Reason(kind="memory", device="lab2/box", text="memory of lab2/box"),
    )
    told = replace(PLAN, why=why)

    shown = text(*plan_table.plan_parts(told, currency=None))

    assert "• link from stage 0 to stage 1" in shown
    assert "• memory of lab2/box" in shown
    assert plan_table.binds_text(told) == "link after stage 0 (62 % of the step)"
    assert plan_table.binds_text(PLAN) == "link after stage 0 (350ms a microbatch)"


def test_a_plan_without_a_bound_claims_nothing() -> None:
    bare = replace(PLAN, bound=Bound(step=0.0, gap=math.inf, method="none", optimal=False))

    assert plan_table.proof_text(bare) == "nothing is proven of better plans (none)"
    assert plan_table.gap_text(bare) == "no bound"


@pytest.mark.parametrize(
    ("part", "whole", "drawn"), [(0, 4, "▱▱▱▱"), (2, 4, "▰▰▱▱"), (4, 4, "▰▰▰▰"), (5, 4, "▰▰▰▰!"), (1, 0, "▰▰▰▰!")]
)
def test_a_bar_is_filled_in_proportion(part: float, whole: float, drawn: str) -> None:
    assert bar(part, whole, width=4) == drawn


def test_the_unknown_is_a_dash() -> None:
    assert (seconds(None), percent(None), number(None), plan_table.money(None, "EUR")) == ("–", "–", "–", "–")
