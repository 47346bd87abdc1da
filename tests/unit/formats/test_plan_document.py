"""ignite/plan/v1: the keys that other programs read, and the refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import answer_document, load_answer, load_plan, parse_answer, plan_document, write_json
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

GOLDEN = Path(__file__).parents[2] / "golden" / "plan_v1.json"


def stage(index: int, device: str, memory: float, limit: float) -> Stage:
    held = Share(device=device, samples=4, memory=memory, memory_limit=limit)
    return Stage(index=index, layers=(f"l{index}",), devices=(held,), forward=0.1, backward=0.2, in_flight=2 - index)


PLAN = Plan(
    job="gpt-small",
    schedule="1f1b",
    precision="fp32",
    microbatches=(4, 4, 4),
    stages=(stage(0, "lab1/A100-40GB-0", 31e9, 40e9), stage(1, "lab2/box", 1e9, 64e9)),
    predicted=Prediction(
        step=1.2,
        step_low=1.2,
        step_high=1.2,
        samples_per_second=10.0,
        bubble_fraction=0.25,
        bottleneck=Bottleneck(kind="stage", index=0, busy=0.3),
        duration=1200.0,
        cost=1.2,
        transfer_bytes=1e9,
    ),
    bound=Bound(step=1.19, gap=0.0084, method="branch and bound", optimal=False),
    unused=(Unused(device="lab1/A100-40GB-1", reason="no gain"),),
    alternatives=(Alternative(devices=("lab2/box",), num_layers=(2,), schedule="gpipe", num_microbatches=1, step=2.0),),
    warnings=("few microbatches",),
    resolved={"schedule": "1f1b", "split": (1, 1)},
)
REFUSAL = Infeasible(code="memory", text="too large", shortfall=1e9, cures=("a larger device",))


def test_the_document_is_the_golden_one() -> None:
    assert plan_document(PLAN) == json.loads(GOLDEN.read_text())


def test_the_golden_document_reads_back() -> None:
    assert load_plan(GOLDEN) == replace(PLAN, resolved={"schedule": "1f1b", "split": [1, 1]})


def test_the_memory_of_a_stage_is_that_of_its_fullest_device() -> None:
    small = Share(device="s", samples=1, memory=9.0, memory_limit=10.0)
    large = Share(device="l", samples=3, memory=20.0, memory_limit=80.0)
    both = replace(PLAN.stages[0], devices=(large, small))
    entry = plan_document(replace(PLAN, stages=(both,)))["stages"][0]
    assert (entry["memory_bytes"], entry["memory_limit_bytes"]) == (9.0, 10.0)


def test_inputs_stand_in_a_stage_graph_only() -> None:
    assert "inputs" not in plan_document(PLAN)["stages"][0]
    graph = replace(PLAN, stages=(replace(PLAN.stages[0], inputs=()),))
    assert plan_document(graph)["stages"][0]["inputs"] == []


def test_what_binds_stands_under_why_where_it_was_worked_out(tmp_path: Path) -> None:
    assert "why" not in plan_document(PLAN)
    told = replace(PLAN, why=(Reason(kind="stage", index=0, share=0.8, text="stage 0 sets the pace"),))

    document = plan_document(told)

    entry = {"kind": "stage", "index": 0, "device": None, "share_of_step": 0.8, "text": "stage 0 sets the pace"}
    assert document["why"] == {"binds": [entry]}
    write_json(tmp_path / "p.json", document)
    assert load_plan(tmp_path / "p.json").why == told.why


def test_numbers_that_json_lacks_are_null() -> None:
    bound = Bound(step=0.0, gap=math.inf, method="none", optimal=False)
    document = plan_document(replace(PLAN, bound=bound, resolved={"x": math.nan}))
    assert document["bound"]["gap"] is None
    assert document["resolved"] == {"x": None}
    json.dumps(document, allow_nan=False)


def test_a_refusal(tmp_path: Path) -> None:
    document = answer_document(REFUSAL, job="j")
    assert document == {
        "schema": "ignite/plan/v1",
        "feasible": False,
        "job": "j",
        "reason": {"code": "memory", "text": "too large"},
        "shortfall_bytes": 1e9,
        "earliest_finish_s": None,
        "cures": ["a larger device"],
    }
    path = tmp_path / "p.json"
    write_json(path, document)
    assert load_answer(path) == REFUSAL
    with pytest.raises(DocumentError, match="too large"):
        load_plan(path)


def spoil(document: dict[str, Any], *place: Any, value: Any) -> dict[str, Any]:
    spoilt = json.loads(json.dumps(document))
    inner = spoilt
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return spoilt


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (("schema",), "ignite/plan/v2", "schema"),
        (("feasible",), "yes", "feasible"),
        (("stages",), [], "stages"),
        (("stages", 0, "forward_s"), -1, "stages[0].forward_s"),
        (("stages", 1, "index"), 0, "stages[1].index"),
        (("predicted", "bottleneck", "kind"), "wire", "predicted.bottleneck.kind"),
        (("predicted", "step"), 1.0, "predicted.step"),
        (("microbatches",), [4, 0], "microbatches[1]"),
    ],
)
def test_a_wrong_plan_is_refused(tmp_path: Path, place: tuple[Any, ...], value: Any, field: str) -> None:
    path = tmp_path / "p.json"
    write_json(path, spoil(plan_document(PLAN), *place, value=value))
    with pytest.raises(DocumentError) as caught:
        load_plan(path)
    assert caught.value.field == field


def test_a_plan_may_carry_what_was_asked_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_json(path, plan_document(PLAN) | {"what_if": {"+1xT4": {}}, "differences": {"+1xT4": {}}})
    assert load_plan(path).job == "gpt-small"


def test_what_a_stage_does_to_fit_and_what_feeds_it_stand_there_only_where_they_say_something() -> None:
    plain, acting = PLAN.stages
    entries = plan_document(PLAN)["stages"]
    assert all("inputs" not in entry and "recompute_segments" not in entry for entry in entries)

    group = tuple(Share(device=f"lab2/box-{i}", samples=2, memory=1e9, memory_limit=2e9) for i in range(2))
    acting = replace(
        acting,
        devices=group,
        recompute=True,
        recompute_segments=(("l1", "l1"),),
        offload=True,
        optimizer_shards=2,
        inputs=(0,),
    )
    plan = replace(PLAN, stages=(replace(plain, recompute=True, inputs=()), acting))
    document = json.loads(json.dumps(plan_document(plan)))
    whole, part = document["stages"]
    assert (whole["recompute"], whole["inputs"]) == (True, [])
    assert "recompute_segments" not in whole  # the whole stage
    assert part["recompute_segments"] == [["l1", "l1"]]
    assert [share["id"] for share in part["devices"]] == ["lab2/box-0", "lab2/box-1"]
    assert parse_answer(document).stages == plan.stages

    for spoiled, said in (
        ({"recompute_segments": [["l1"]]}, "recompute_segments"),
        ({"recompute_segments": [["l1", "l0"]]}, "of a segment of this stage, found 'l0'"),
        ({"inputs": [2]}, "another of the 2 stages, found 2"),
        ({"inputs": [1]}, "another of the 2 stages, found 1"),
    ):
        with pytest.raises(DocumentError, match=said):
            parse_answer(document | {"stages": [whole, part | spoiled]})
