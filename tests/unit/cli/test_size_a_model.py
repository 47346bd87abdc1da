"""From a name to a plan without ever having the model: sized by the profiler, timed by each device's figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ignite_scheduler.cli import ignite
from ignite_scheduler.formats import load_profile

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

CLUSTER = """
version: 1
name: two
nodes:
  - {name: n, devices: [{kind: H100-SXM5-80GB, count: 1}, {kind: A100-SXM4-80GB, count: 1}]}
links:
  default: {bandwidth: 300GB/s, latency: 5us}
"""
JOB = """
version: 1
name: falcon
model: {profile: falcon.json}
steps: 10
batch: {global: 8, micro: 1}
precision: bf16
optimizer: {name: sgd, lr: 1e-3}
"""


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(ignite, list(arguments), prog_name="ignite")
    assert result.exit_code == 0, result.output
    return result


def test_a_large_model_is_sized_and_planned_on_devices_of_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(CLUSTER)
    Path("job.yaml").write_text(JOB)
    shown = call("profile", "falcon-40b", "--devices", "meta", "--args", "depth=6", "--out", "falcon.json").stdout
    assert "sized, without times" in shown
    assert "4,609,753,088 parameters" in shown  # 6 of 60 blocks of 679,510,016, and what lies around them
    profile = load_profile("falcon.json")
    assert [layer.times for layer in profile.layers] == [{}] * 8
    plan = json.loads(call("plan", "job.yaml", "--cluster", "cluster.yaml", "-o", "json").stdout)
    assert plan["feasible"]
    assert [name for stage in plan["stages"] for name in stage["layers"]] == [layer.name for layer in profile.layers]
    flops = sum(layer.forward_flops for layer in profile.layers)
    forward = sum(stage["forward_s"] for stage in plan["stages"])
    # Between the faster card's peak and half of the slower one's.
    assert flops / 989.4e12 < forward < flops / 312e12 * 2
    assert not any("no times" in warning for warning in plan["warnings"])


def test_people_see_bytes_and_flops_programs_the_whole_document() -> None:
    shown = call("profile", "gpt", "--device", "meta").stdout
    assert "forward/sample" in shown
    assert "backward" in shown
    document = json.loads(call("profile", "gpt", "--device", "meta", "-o", "json").stdout)
    assert all("times" not in layer for layer in document["layers"])
    assert document["provenance"]["parameters"] == 867_072
