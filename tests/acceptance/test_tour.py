"""The first quarter of an hour of a newcomer, through the installed command and in true processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

IGNITE = Path(sys.executable).parent / "ignite"


def ignite(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [IGNITE, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | environment
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    done = ignite("init", "tour", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "tour"


def test_the_examples_plan_with_all_side_outputs(tour: Path) -> None:
    done = ignite(
        "plan",
        "job.yaml",
        "--cluster",
        "cluster.yaml",
        "-o",
        "json",
        "--trace",
        "step.json",
        "--svg",
        "step.svg",
        cwd=tour,
    )

    plan = document(done)
    assert plan["feasible"] is True
    assert sum(len(stage["layers"]) for stage in plan["stages"]) == 12
    events = json.loads((tour / "step.json").read_text())["traceEvents"]
    assert any(event["ph"] == "X" for event in events)
    assert ET.parse(tour / "step.svg").getroot().tag.endswith("svg")


def test_a_second_init_overwrites_nothing(tour: Path) -> None:
    (tour / "job.yaml").write_text("mine")

    done = ignite("init", ".", cwd=tour)

    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert (tour / "job.yaml").read_text() == "mine"


def test_a_plan_for_people_is_plain_text_in_a_pipe(tour: Path) -> None:
    done = ignite("plan", "job.yaml", "--cluster", "cluster.yaml", cwd=tour, NO_COLOR="1")

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    for word in ("stage", "desk/fast-0", "bottleneck", "memory", "resolved"):
        assert word in done.stdout


def test_what_if_answers_for_each_change(tour: Path) -> None:
    done = ignite(
        "plan",
        "job.yaml",
        "-c",
        "cluster.yaml",
        "-o",
        "json",
        "--what-if",
        "+1xfast",
        "--what-if",
        "-node:desk",
        cwd=tour,
    )

    plan = document(done)
    more, less = plan["what_if"]["+1xfast"], plan["what_if"]["-node:desk"]
    assert more["predicted"]["step_s"] <= plan["predicted"]["step_s"] <= less["predicted"]["step_s"]


def test_no_plan_of_the_pareto_set_is_beaten(tour: Path) -> None:
    plans = document(ignite("plan", "job.yaml", "-c", "cluster.yaml", "--pareto", "-o", "json", cwd=tour))["plans"]

    held = [{device["id"] for stage in plan["stages"] for device in stage["devices"]} for plan in plans]
    figures = [
        (plan["predicted"]["step_s"], len(devices), plan["predicted"]["cost"])
        for plan, devices in zip(plans, held, strict=True)
    ]
    assert len(figures) >= 2
    for mine in figures:
        assert not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in figures)


def test_two_plans_are_compared(tour: Path) -> None:
    for name, extra in (("a", []), ("b", ["--objective", "cost"])):
        done = ignite("plan", "job.yaml", "-c", "cluster.yaml", "-o", "json", *extra, cwd=tour)
        (tour / f"{name}.json").write_text(done.stdout)

    compared = document(ignite("compare", "a.json", "b.json", "-o", "json", cwd=tour))

    first, second = compared["plans"]
    assert first["step_ratio"] == 1
    assert second["step_ratio"] >= 1
    assert second["plan"]["predicted"]["cost"] <= first["plan"]["predicted"]["cost"]


def test_the_example_workload_is_played_under_each_policy(tour: Path) -> None:
    done = ignite(
        "simulate", "workload.jsonl", "-c", "cluster.yaml", "--policy", "fifo,backfill,ignite",
        "--jobs-csv", "jobs.csv", "--report", "played", "-o", "json", cwd=tour,
    )  # fmt: skip

    report = document(done)
    assert report["schema"] == "ignite/report/v1"
    assert list(report["policies"]) == ["fifo", "backfill", "ignite"]
    with (tour / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["policy"] for row in rows} == set(report["policies"])
    for policy in report["policies"]:
        assert ET.parse(tour / "played" / f"{policy}.svg").getroot().tag.endswith("svg")


def test_the_same_workload_gives_the_same_report(tour: Path) -> None:
    measured = {"decision_s_mean", "decision_s_max", "cpu_s"}

    def play() -> dict[str, Any]:
        done = ignite("simulate", "workload.jsonl", "-c", "cluster.yaml", "-o", "json", "--noise", "0.1", cwd=tour)
        figures = document(done)["policies"]["ignite"]
        return {name: value for name, value in figures.items() if name not in measured}

    assert play() == play()


def test_errors_leave_stdout_empty_and_show_no_traceback(tour: Path) -> None:
    done = ignite("plan", "job.yaml", "--cluster", "nowhere.yaml", "-o", "json", cwd=tour)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.torch
def test_the_examples_are_trained_and_traced(tour: Path) -> None:
    pytest.importorskip("torch")
    job = (tour / "job.yaml").read_text().replace("steps: 100", "steps: 8")
    (tour / "job.yaml").write_text(job)

    done = ignite("run", "job.yaml", "--cluster", "cluster.yaml", "--directory", "run", "-o", "json", cwd=tour)

    report = document(done)
    [entry] = report["jobs"]
    assert entry["state"] == "finished"
    assert "emulated" in report["notices"][0]
    assert "emulated" in done.stderr
    assert len((tour / "run" / "jobs" / "digits" / "metrics.jsonl").read_text().splitlines()) == 8

    traced = ignite("trace", "run", "--out", "trace.json", "--svg", "step.svg", cwd=tour)

    assert traced.returncode == 0, traced.stderr
    processes = {
        event["args"]["name"]
        for event in json.loads((tour / "trace.json").read_text())["traceEvents"]
        if event["name"] == "process_name"
    }
    assert processes == {"planned: digits", "measured: digits"}

    again = ignite("run", "job.yaml", "--cluster", "cluster.yaml", "--directory", "run", cwd=tour)
    assert again.returncode == 1
    assert "run" in again.stderr


@pytest.mark.torch
def test_the_doctor_compares_every_gradient(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = {
        "version": 1, "name": "mlp", "model": {"zoo": "mlp", "args": {"hidden": [8, 8]}},
        "data": {"dataset": "breast_cancer"}, "steps": 1, "batch": {"global": 10, "micro": 4},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    report = document(ignite("doctor", "--gradients", "job.yaml", "--precision", "fp64", "-o", "json", cwd=tmp_path))

    assert report["passed"] is True
    assert report["bit_equal"] is True
    assert {len(case["split"]) for case in report["cases"]} == {1, 2, 3}
    assert all(case["gradient_error"] <= 1e-9 for case in report["cases"])
