"""Calibrations and observations as documents: what is wrong is named with its line and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.cost.calibration import Calibration, CheckpointTime, KindCalibration, Quantiles
from ignite_scheduler.cost.observation import Observation, Promised, Sample, StageObservation
from ignite_scheduler.errors import DocumentError, NotFoundError
from ignite_scheduler.formats import (
    calibration_document,
    calibration_name,
    load_calibration,
    load_observation,
    observation_document,
    parse_calibration,
    parse_observation,
    schema,
    write_json,
)

CALIBRATION = Calibration(
    kinds={"core": KindCalibration(rate=1.1, launch=2e-4, num_stages=6, spread=0.03), "*": KindCalibration()},
    message=1e-4,
    overlap=0.9,
    update=1.2,
    step=1e-3,
    startup=Quantiles(low=0.2, middle=0.3, high=0.5),
    checkpoint=CheckpointTime(base=0.01, bandwidth=2e8),
    residual=Quantiles(low=0.95, middle=1.0, high=1.08),
    num_runs=4,
    provenance={"date": "2026-05-04"},
)
STAGE = StageObservation(
    device="lab/core-0",
    kind="core",
    speed=0.5,
    num_sharing=2,
    forward=(0.1, 0.05),
    backward=(0.2, 0.1),
    update=0.01,
    measured_forward=Sample(median=0.11, spread=0.02, count=10),
    measured_backward=None,
    measured_update=None,
)
OBSERVATION = Observation(
    job="a",
    model="0123",
    schedule="1f1b",
    microbatches=(4, 2),
    stages=(STAGE,),
    edges=(),
    planned_step=0.5,
    step=Sample(median=0.55, spread=0.01, count=40),
    startup=0.3,
    checkpoints=((1e6, 0.02),),
    promised=Promised(
        calibration=None,
        step=Quantiles(low=0.5, middle=0.5, high=0.5),
        finish_low=10.0,
        finish_high=12.0,
        finished=11.0,
    ),
)


def text(document: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(document, indent=1))
    return path


def test_documents_read_back_from_files(tmp_path: Path) -> None:
    write_json(tmp_path / "calibration.json", calibration_document(CALIBRATION))
    write_json(tmp_path / "observation.json", observation_document(OBSERVATION))
    assert load_calibration(tmp_path / "calibration.json") == CALIBRATION
    assert load_observation(tmp_path / "observation.json") == OBSERVATION


def test_an_empty_calibration_changes_nothing() -> None:
    assert parse_calibration({"schema": "ignite/calibration/v1"}) == Calibration()


def test_the_name_of_a_calibration_says_how_much_is_behind_it() -> None:
    name = calibration_name(CALIBRATION)
    assert name.startswith("4 runs of 2026-05-04 (")
    assert name == calibration_name(parse_calibration(calibration_document(CALIBRATION)))
    assert name != calibration_name(Calibration(num_runs=4, provenance={"date": "2026-05-04"}))


def test_whether_a_promise_was_kept_is_written_out() -> None:
    assert observation_document(OBSERVATION)["promised"]["kept"] is True


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"schema": "ignite/calibration/v2"}, "schema", "expected 'ignite/calibration/v1'"),
        ({"messages_s": 1.0}, "messages_s", "did you mean 'message_s'"),
        ({"kinds": {"core": {"rate": 0}}}, "kinds.core.rate", "above 0"),
        ({"kinds": {"core": {"launch_s": "1ms"}}}, "kinds.core.launch_s", "expected a number"),
        ({"kinds": {"core": {"achievable_flops": 1.5}}}, "kinds.core.achievable_flops", "at most 1"),
        ({"overlap": 2}, "overlap", "at most 1"),
        ({"residual": {"low": 1.2, "middle": 1.0, "high": 1.1}}, "residual", "low ≤ middle ≤ high"),
        ({"residual": {"low": 1.1, "middle": 1.2, "high": 1.3}}, "residual", "low ≤ 1 ≤ high, found 1.1 to 1.3"),
        ({"step_s": -1}, "step_s", "at least 0"),
        ({"startup": {"low_s": 2, "middle_s": 1, "high_s": 3}}, "startup", "low_s ≤ middle_s ≤ high_s"),
        ({"num_runs": 1.5}, "num_runs", "whole number"),
    ],
)
def test_a_wrong_calibration_is_refused(change: dict[str, Any], field: str, said: str, tmp_path: Path) -> None:
    path = text(calibration_document(CALIBRATION) | change, tmp_path / "c.json")
    with pytest.raises(DocumentError, match=said) as caught:
        load_calibration(path)
    assert (caught.value.field, caught.value.file) == (field, str(path))
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("key", "value", "field", "said"),
    [
        ("planned_step_s", 0, "planned_step_s", "above 0"),
        ("microbatches", [4], "stages[0].forward_s", "each of the 1 microbatches, found 2"),
        ("reductions", [{"stages": [0, 1], "planned_s": 1}], "reductions[0].stages[1]", "from 0 to 0, found 1"),
        ("stages", [], "stages", "at least 1 item"),
        ("step", {"median_s": 1, "count": 0}, "step.count", "at least 1"),
        ("step", {"median_s": 0}, "step.median_s", "above 0"),
        ("step", {"median_s": 1e-320}, "step.median_s", "at least 1e-30"),
    ],
)
def test_a_wrong_observation_is_refused(key: str, value: Any, field: str, said: str, tmp_path: Path) -> None:
    path = text(observation_document(OBSERVATION) | {key: value}, tmp_path / "o.json")
    with pytest.raises(DocumentError, match=said) as caught:
        load_observation(path)
    assert caught.value.field == field
    assert caught.value.line is not None


def test_a_file_that_is_cut_off_or_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(calibration_document(CALIBRATION))[:-40])
    with pytest.raises(DocumentError, match="broken JSON"):
        load_calibration(path)
    with pytest.raises(NotFoundError, match="no file"):
        load_observation(tmp_path / "nothing.json")


def test_an_edge_to_a_stage_that_is_not_there_is_refused() -> None:
    edge = {"source": 0, "target": 3, "kind": "F", "wire": "w", "bytes": 1, "planned_s": [1, 1]}
    with pytest.raises(DocumentError, match="from 0 to 0, found 3"):
        parse_observation(observation_document(OBSERVATION) | {"edges": [edge]})


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([("F", 0, 1)], "expected messages B from stage 1 to 0 too"),
        ([("B", 1, 0)], "expected messages F from stage 0 to 1 too"),
        ([("F", 0, 1), ("B", 1, 0), ("F", 0, 1)], "there twice"),
        ([("F", 0, 0), ("B", 0, 0)], "expected two stages"),
    ],
)
def test_messages_go_both_ways(ends: list[tuple[str, int, int]], said: str) -> None:
    edges = [
        {"source": source, "target": target, "kind": kind, "wire": "w", "bytes": 1, "planned_s": [1, 1]}
        for kind, source, target in ends
    ]
    stage = observation_document(OBSERVATION)["stages"][0]
    with pytest.raises(DocumentError, match=said):
        parse_observation(observation_document(OBSERVATION) | {"stages": [stage, stage], "edges": edges})


@pytest.mark.parametrize("name", ["calibration", "observation"])
def test_each_has_a_schema_with_units_in_its_keys(name: str) -> None:
    found = schema(name)
    assert found["title"] == f"ignite {name}"
    assert {"calibration": "message_s", "observation": "planned_step_s"}[name] in found["properties"]
