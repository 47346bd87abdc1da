"""``ignite demo --quick`` as a whole: real trainings, and a report that holds what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

IGNITE = Path(sys.executable).parent / "ignite"
JOBS = ("alexnet", "gpt", "vgg", "squeezenet")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_demo_trains_four_models_and_leaves_a_report(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    done = subprocess.run(
        [IGNITE, "demo", "--quick", "--out", "report"], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Emulated" in done.stdout
    report = tmp_path / "report"
    run = json.loads((report / "run.json").read_text())
    assert {job["name"]: job["state"] for job in run["jobs"]} == dict.fromkeys(JOBS, "finished")
    for job in run["jobs"]:
        assert job["planned_step_s"] > 0
        assert job["measured_step_s"] > 0
        assert job["promised_finish_low_s"] is not None
        assert job["last_loss"] is not None
    for name in JOBS:
        assert json.loads((report / f"{name}.plan.json").read_text())["feasible"] is True
        assert json.loads((report / f"{name}.trace.json").read_text())["traceEvents"]
        assert ET.parse(report / f"{name}.step.svg").getroot().tag.endswith("svg")
    assert ET.parse(report / "cluster.svg").getroot().tag.endswith("svg")
    page = (report / "index.html").read_text()
    assert page.count("<svg") == 2 + len(JOBS)
    assert "emulated" in page
