"""Ctrl-C saves and stops with exit code 130, and the run goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

IGNITE = Path(sys.executable).parent / "ignite"

JOB = """
version: 1
name: long
model: {zoo: mlp, args: {features: 30, hidden: [64, 64], outputs: 2}, profile: long.profile.json}
data: {dataset: breast_cancer}
steps: 60
batch: {global: 64, micro: 32}
pipeline: {stages: 2}
"""
CLUSTER = """
version: 1
name: pair
nodes: [{name: n, devices: [{kind: box, count: 2, speed: 0.05, memory: 1GB}]}]
"""


def await_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until the file has so many lines; fail if the process ends before."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    pytest.fail(f"{path} did not get {count} lines")


@pytest.mark.torch
def test_an_interrupted_run_is_saved_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    layer = {
        "parameter_bytes": 1e4,
        "output_bytes": 1e3,
        "activation_bytes": 1e3,
        "times": {"cpu": {"1": [1e-3, 2e-3]}},
    }
    names = ("linear0", "linear1", "head")
    (tmp_path / "long.profile.json").write_text(
        json.dumps(
            {
                "schema": "ignite/profile/v1", "name": "long", "precision": "fp32", "reference": "cpu",
                "layers": [{"name": name, **layer} for name in names],
            }
        )
    )  # fmt: skip
    metrics = tmp_path / "run" / "jobs" / "long" / "metrics.jsonl"
    process = subprocess.Popen(
        [IGNITE, "run", "job.yaml", "--cluster", "cluster.yaml", "--directory", "run"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    await_lines(metrics, 3, process)

    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 130, said
    saved = len(metrics.read_text().splitlines())
    assert 3 <= saved < 60

    again = subprocess.run(
        [IGNITE, "run", "--resume", "run", "-o", "json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert again.returncode == 0, again.stderr
    [job] = json.loads(again.stdout)["jobs"]
    assert job["state"] == "finished"
    assert job["attempts"] == 2
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == list(range(1, 61))
