"""``--pareto`` takes objectives, and the document has each plan's values beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ignite_scheduler.cli import ignite
from ignite_scheduler.cli.objectives import DEFAULT, KEYS
from ignite_scheduler.planner.pareto.objectives import CRITERIA
from ignite_scheduler.planner.pareto.objectives import DEFAULT as CORE_DEFAULT


def test_the_command_line_knows_all_objectives() -> None:
    assert tuple(KEYS) == CRITERIA
    assert DEFAULT == CORE_DEFAULT


@pytest.mark.parametrize("wrong", ["speed", "time,time", "job.yaml"])
def test_an_unknown_objective_is_a_usage_error(tmp_path: Path, wrong: str) -> None:
    done = CliRunner().invoke(ignite, ["plan", "job.yaml", "-c", "cluster.yaml", "--pareto", wrong])
    assert done.exit_code == 2
    assert "expected some of time, money, energy, devices, headroom" in done.output


def test_values_are_beside_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(ignite, ["init"]).exit_code == 0

    done = runner.invoke(ignite, ["plan", "job.yaml", "-c", "cluster.yaml", "--pareto", "headroom,time", "-o", "json"])

    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["objectives"] == ["time", "headroom"]
    assert len(found["values"]) == len(found["plans"]) >= 1
    values = [(one["step_s"], -one["headroom"]) for one in found["values"]]
    assert [plan["predicted"]["step_s"] for plan in found["plans"]] == [one[0] for one in values]
    assert values == sorted(values)
    assert [one[1] for one in values] == sorted((one[1] for one in values), reverse=True)
