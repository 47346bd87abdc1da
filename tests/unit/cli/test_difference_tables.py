"""Answers side by side: what-if scenarios and compared plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter
from test_plan_table import PLAN, text

from ignite_scheduler.cli import ignite
from ignite_scheduler.cli.difference_tables import comparison_table, difference_lines, scenario_table
from ignite_scheduler.formats import answer_document, difference, write_json
from ignite_scheduler.formats.comparison import actions_of
from ignite_scheduler.formats.shapes.comparison import ComparisonShape, DifferenceShape
from ignite_scheduler.model import Infeasible, Plan, Share

FIRST, SECOND = PLAN.stages
NONE = Infeasible(code="memory", text="31 layers fit nowhere")


def with_step(plan: Plan, step: float) -> Plan:
    predicted = replace(plan.predicted, step=step, step_low=step, step_high=step, samples_per_second=11 / step)
    return replace(plan, predicted=predicted)


NOW = with_step(PLAN, 1.2)
MOVED = replace(
    with_step(PLAN, 1.8),
    schedule="gpipe",
    stages=(
        replace(FIRST, layers=FIRST.layers[:4]),
        replace(
            SECOND,
            layers=(FIRST.layers[4], *SECOND.layers),
            devices=(Share(device="lab2/new", samples=4, memory=15e9, memory_limit=16e9),),
            recompute=True,
        ),
    ),
)


def test_scenarios_are_rows_with_what_is_new_and_gone_and_a_refusal_is_a_row() -> None:
    shown = text(scenario_table(NOW, [("+1xnew", MOVED), ("-node:lab1", NONE)], "EUR"))

    now, changed, gone = (line for line in shown.splitlines() if line.startswith(("now", "+1xnew", "-node")))
    assert "equal" in now
    for word in ("+50.0 %", "2 +lab2/new", "4-3", "gap 0.84 %"):
        assert word in changed
    assert "none (memory)" in gone
    words = " ".join(shown.split())  # a cell may go over several lines
    assert "−lab2/box" in words
    assert "fit nowhere" in words


def test_what_is_known_of_no_scenario_has_no_column() -> None:
    free = replace(NOW, predicted=replace(NOW.predicted, cost=None, energy=None))

    assert "cost" not in text(scenario_table(free, [], "EUR"))
    assert "cost" in text(scenario_table(free, [("+1xnew", MOVED)], "EUR"))


def test_a_scenario_may_have_a_plan_where_now_has_none() -> None:
    shown = text(scenario_table(NONE, [("+1xnew", MOVED)], None))

    assert "none (memory)" in shown
    assert "1.8s" in shown


def test_many_new_devices_are_counted() -> None:
    shares = tuple(Share(device=f"lab9/{i}", samples=1, memory=1.0, memory_limit=2.0) for i in range(4))
    wide = replace(NOW, stages=(FIRST, replace(SECOND, devices=shares)))

    assert "5 +4 others −lab2/box" in " ".join(text(scenario_table(NOW, [("+4", wide)], None)).split())


def test_plans_are_compared_with_the_first() -> None:
    shown = text(comparison_table(["now", "less", "nothing"], [NOW, MOVED, NONE], "EUR"))

    for word in ("+50.0 %", "equal", "none (memory)", "5-2", "4-3", "stage 1: recompute", "gpipe ×3"):
        assert word in shown


def test_the_ranges_of_both_plans_say_whether_a_difference_counts() -> None:
    near = replace(PLAN, predicted=replace(PLAN.predicted, step=1.3, step_low=1.25, step_high=1.4))

    assert "within their ranges" in text(comparison_table(["a", "b"], [PLAN, near], None))


@pytest.mark.parametrize(
    "line",
    [
        "devices: without lab2/box; with lab2/new",
        "l4: on lab2/new instead of lab1/A100-40GB-0",
        "l10 … l11 (2 layers): on lab2/new instead of lab2/box",
        "schedule: gpipe with 3 × 4 samples instead of 1f1b with 3 × 4 samples",
        "to fit: stage 1: recompute instead of nothing",
        "fullest device: 94 % of lab2/new instead of 78 % of lab1/A100-40GB-0",
    ],
)
def test_what_differs_is_said_in_words(line: str) -> None:
    assert line in difference_lines(NOW, MOVED)


def test_the_same_choice_does_not_differ_and_a_refusal_says_why() -> None:
    assert difference_lines(NOW, NOW) == []
    assert difference_lines(NOW, NONE) == ["no plan: 31 layers fit nowhere"]
    assert difference_lines(NONE, NOW) == ["a plan, where the first has none: 31 layers fit nowhere"]


def test_the_difference_as_data() -> None:
    found = difference(NOW, MOVED)

    assert TypeAdapter(DifferenceShape).validate_python(found).feasible
    assert found["step_ratio"] == pytest.approx(1.5)
    assert found["step_s"] == pytest.approx(0.6)
    assert (found["devices_added"], found["devices_removed"]) == (["lab2/new"], ["lab2/box"])
    assert found["schedule"] == ["1f1b", "gpipe"]
    assert found["num_stages"] is None
    assert found["actions"] == [[], ["stage 1: recompute"]]
    assert found["layers_moved"][0] == {"layers": ["l4"], "from": ["lab1/A100-40GB-0"], "to": ["lab2/new"]}
    assert found["fullest"][1]["device"] == "lab2/new"
    assert difference(NOW, NONE) == {"feasible": False}
    assert difference(NONE, NOW) == {"feasible": True}


def test_what_a_stage_does_to_fit_names_the_layers_where_it_is_not_the_whole_stage() -> None:
    some = replace(FIRST, recompute=True, recompute_segments=(("l0", "l2"), ("l4", "l4")), offload=True)

    assert actions_of(FIRST) == []
    assert actions_of(replace(FIRST, recompute=True, optimizer_shards=4)) == ["recompute", "optimizer ÷ 4"]
    assert actions_of(some) == ["recompute l0 … l2, l4", "offload"]


def test_compare_prints_words_for_people_and_a_document_for_programs(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("now.json", "moved.json", "none.json")]
    for path, answer in zip(paths, (NOW, MOVED, NONE), strict=True):
        write_json(Path(path), answer_document(answer, job="gpt"))

    people = CliRunner().invoke(ignite, ["compare", *paths])
    programs = CliRunner().invoke(ignite, ["compare", *paths, "-o", "json"])

    assert "moved.json differs from now.json:" in people.stdout
    assert "• l4: on lab2/new instead of lab1/A100-40GB-0" in people.stdout
    assert "• no plan: 31 layers fit nowhere" in people.stdout
    document = json.loads(programs.stdout)
    assert TypeAdapter(ComparisonShape).validate_python(document).plans[1].step_ratio == pytest.approx(1.5)
    assert [plan["difference"] is None for plan in document["plans"]] == [True, False, False]
