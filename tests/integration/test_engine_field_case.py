"""Field case D8b through the command line: uneven microbatches, the gradient of a real step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

CLUSTER = """\
version: 1
name: pair
nodes:
  - name: n
    devices:
      - {kind: core, id: a, speed: 0.5, memory: 4GB, dtypes: [fp32]}
      - {kind: core, id: b, speed: 0.5, memory: 4GB, dtypes: [fp32]}
links:
  default: {bandwidth: 1GB/s, latency: 0.1ms}
"""

JOB = """\
version: 1
name: d8b
model: {profile: profile.json, module: "field_models:one_weight"}
data: {dataset: "field_models:one_to_eight"}
loss: "field_models:output_sum"
steps: 1
batch: {global: 8, micro: 3}
pipeline: {stages: 2}
output: run
"""


def layer(name: str) -> dict[str, object]:
    times = {"core": {"1": [0.001, 0.002]}}
    return {"name": name, "parameter_bytes": 4, "output_bytes": 4, "activation_bytes": 4, "times": times}


def test_eight_samples_in_microbatches_of_3_3_and_2_make_a_gradient_of_4_5(tmp_path: Path) -> None:
    """A mean of means would be 4.83, a sum of means 14.5."""
    profile = {
        "schema": "ignite/profile/v1",
        "name": "toy",
        "precision": "fp32",
        "reference": "core",
        "layers": [layer("0"), layer("1")],
    }
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    ran = subprocess.run(
        [sys.executable, "-m", "ignite_scheduler.cli", "run", "job.yaml", "--cluster", "cluster.yaml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (len(plan["stages"]), plan["microbatches"]) == (2, [3, 3, 2])
    (line,) = (json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert line["grad_norm"] == 4.5
