"""Models and data that cannot be measured, planned or trained: one clear error each, and nothing left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")

from ignite_scheduler.cli import ignite
from ignite_scheduler.profiler import measurement, worker

pytestmark = pytest.mark.torch

MODELS = """
import torch
from torch import nn

class Fails(nn.Module):
    def forward(self, x): return x.view(7, 13, -1)

class Flaky(nn.Module):
    calls = 0
    def forward(self, x):
        Flaky.calls += 1
        return x[:, : 4 + Flaky.calls % 2]

class Summed(nn.Module):
    def forward(self, x): return x.sum(1, keepdim=True).expand(-1, 3)

def fails(): return nn.Sequential(nn.Linear(13, 8), Fails(), nn.Linear(8, 3))
def flaky(): return nn.Sequential(nn.Linear(13, 8), Flaky(), Summed())
def bare(): return nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

class Samples:
    def __init__(self, count, short): self.count, self.short = count, short
    def __len__(self): return self.count
    def __getitem__(self, i): return torch.ones(12 if i == self.short else 13), i % 3

def none(): return Samples(0, -1)
def uneven(): return Samples(50, 3)
def even(): return Samples(50, -1)
"""
CLUSTER: dict[str, Any] = {
    "version": 1,
    "name": "c",
    "nodes": [
        {
            "name": "n",
            "devices": [
                {"kind": "cpu", "id": name, "speed": 1.0, "memory": "1GB", "dtypes": ["fp32"]} for name in ("a", "b")
            ],
        }
    ],
    "links": {"default": {"bandwidth": "1GB/s", "latency": "0.1ms"}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models of our own, in which measuring takes place in this process."""
    (tmp_path / "shelf.py").write_text(MODELS)
    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shelf", raising=False)
    monkeypatch.setattr(measurement, "_in_fresh_process", worker.measure)
    for function in ("keep_freed_memory", "return_freed_memory"):
        monkeypatch.setattr(worker, function, lambda: True)
    return tmp_path


def job(folder: Path, model: str = "bare", data: str = "even", *, profile: str | None = None, **keys: Any) -> None:
    document = {
        "version": 1,
        "name": "j",
        "model": {"module": f"shelf:{model}"} | ({} if profile is None else {"profile": profile}),
        "data": {"dataset": f"shelf:{data}"},
        "loss": "cross_entropy",
        "steps": 3,
        "batch": {"global": 4, "micro": 2},
        "optimizer": {"name": "sgd", "lr": 0.1},
    }
    (folder / "job.json").write_text(json.dumps(document | keys))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(ignite, list(arguments), prog_name="ignite")


def measure(out: str = "p.json") -> Result:
    return call("profile", "job.json", "--samples", "2,4", "--repeats", "1", "--time-limit", "0s", "--out", out)


def refused(result: Result, *told: str, code: int = 2) -> None:
    assert result.exit_code == code, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, result.output
    for words in told:
        assert words in result.stderr, result.stderr
    assert "Traceback" not in result.output


BAD: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "a forward that fails": (lambda f: job(f, "fails"), ("layer '1'", "(2, 8) float32", "shape '[7, 13, -1]'")),
    "shapes that change": (lambda f: job(f, "flaky"), ("layer '1'", "float32[2, 4]", "float32[2, 5]")),
    "no samples": (lambda f: job(f, data="none"), ("'shelf:none'", "without samples")),
    "samples that differ": (lambda f: job(f, data="uneven"), ("differ in shape", "(12,)", "(13,)", "pad or crop")),
    "a precision that is not trained": (lambda f: job(f, precision="fp16"), ("'fp16'", "cpu", "bf16")),
}


@pytest.mark.parametrize(("spoil", "told"), BAD.values(), ids=BAD)
def test_what_cannot_be_measured_is_one_error(
    folder: Path, spoil: Callable[[Path], None], told: tuple[str, ...]
) -> None:
    spoil(folder)
    before = {path.name for path in folder.iterdir()}
    refused(measure(), *told)
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == before


def test_layers_without_parameters_are_measured_planned_and_trained(folder: Path) -> None:
    job(folder)
    assert measure().exit_code == 0
    layers = json.loads((folder / "p.json").read_text())["layers"]
    assert [layer["parameter_bytes"] > 0 for layer in layers] == [True, False, False, True]
    job(folder, profile="p.json", pipeline={"split": [1, 2, 1]})
    cluster = json.loads(json.dumps(CLUSTER))
    cluster["nodes"][0]["devices"].append(cluster["nodes"][0]["devices"][0] | {"id": "c"})
    (folder / "cluster.json").write_text(json.dumps(cluster))
    planned = call("plan", "job.json", "--cluster", "cluster.json", "-o", "json")
    assert [stage["layers"] for stage in json.loads(planned.stdout)["stages"]] == [["0"], ["1", "2"], ["3"]]
    ran = call("run", "job.json", "--cluster", "cluster.json", "--directory", "run")
    assert ran.exit_code == 0, ran.output


def test_a_device_that_does_not_have_the_precision_is_told(folder: Path) -> None:
    job(folder)
    assert measure().exit_code == 0
    job(folder, profile="p.json", precision="bf16")
    result = call("plan", "job.json", "--cluster", "cluster.json", "-o", "json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["reason"]["code"] == "dtype"


def test_a_profile_of_another_model_or_version_is_refused(folder: Path) -> None:
    job(folder)
    assert measure().exit_code == 0
    job(folder, "flaky", profile="p.json")
    other = "measured on another model: expected shelf:flaky(), found shelf:bare(); measure it anew"
    refused(call("plan", "job.json", "--cluster", "cluster.json"), other)
    job(folder, profile="p.json")
    (folder / "shelf.py").write_text(MODELS.replace("nn.ReLU()", "nn.Tanh()"))
    sys.modules.pop("shelf")
    changed = "measured on a model of other sizes or options"
    refused(call("run", "job.json", "--cluster", "cluster.json", "--directory", "run"), changed, "ignite profile JOB")
    assert not (folder / "run").exists()


def test_a_truncated_profile_is_told_with_its_line(folder: Path) -> None:
    job(folder)
    assert measure().exit_code == 0
    lines = (folder / "p.json").read_text().splitlines(keepends=True)
    (folder / "p.json").write_text("".join(lines[: len(lines) // 2]))
    job(folder, profile="p.json")
    refused(call("plan", "job.json", "--cluster", "cluster.json"), f"p.json:{len(lines) // 2 + 1}: broken JSON")


def test_several_devices_are_measured_into_one_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(folder)
    monkeypatch.setattr("ignite_scheduler.profiler.measurement._kind", lambda measured, device: device)
    monkeypatch.setattr(
        measurement, "_in_fresh_process", lambda request, hear: worker.measure(replace(request, device="cpu"), hear)
    )
    arguments = ("job.json", "--devices", "cpu,cuda:0", "--samples", "2", "--repeats", "1", "--out", "p.json")
    result = call("profile", *arguments)
    assert result.exit_code == 0, result.output
    document = json.loads((folder / "p.json").read_text())
    assert all(set(layer["times"]) == {"cpu", "cuda:0"} for layer in document["layers"])
    assert document["reference"] == "cpu"
    assert sorted(path.name for path in folder.glob(".*partial")) == []
    assert "spread of" in result.stdout
    for bad in ("cpu,cpu", "cpu,", "meta,cpu"):
        assert call("profile", "job.json", "--devices", bad).exit_code == 2
