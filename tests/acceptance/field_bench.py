"""A bench for field cases: small documents in a folder, the command line in this process, answers as JSON.

The model that all field cases share: layers form a chain; a stage is a contiguous run of layers on one device; its
time is the sum of layer times ÷ the speed of the device; links are full duplex and overlap with compute; bytes that a
layer needs stand in its parameters (factors 1, 0, 0). Forward : backward = 1 : 2; 64 microbatches of one sample and
1F1B where a case says nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from ignite_scheduler.cli import ignite

GB = 1_000_000_000
PLENTY = "1000TB"
FREE = {"bandwidth": "1000000TB/s", "latency": "0s"}


@dataclass(frozen=True)
class Answer:
    """What a command left: exit code, stdout and stderr."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def plan(self) -> dict[str, Any]:
        assert self.code == 0, (self.code, self.stdout, self.stderr)
        assert self.document["feasible"] is True
        return self.document

    @property
    def refusal(self) -> dict[str, Any]:
        assert self.code in (3, 4), (self.code, self.stdout, self.stderr)
        assert self.document["feasible"] is False
        return self.document


def sizes(plan: Mapping[str, Any]) -> list[int]:
    """Layers of each stage, in order."""
    return [len(stage["layers"]) for stage in plan["stages"]]


def held(plan: Mapping[str, Any]) -> list[str]:
    """The one device of each stage, in order."""
    return [stage["devices"][0]["id"] for stage in plan["stages"]]


def busy(plan: Mapping[str, Any]) -> list[float]:
    """Seconds of each stage for one microbatch."""
    return [stage["forward_s"] + stage["backward_s"] for stage in plan["stages"]]


def layers(plan: Mapping[str, Any]) -> list[str]:
    """All layers in order of stages."""
    return [name for stage in plan["stages"] for name in stage["layers"]]


class Bench:
    """Writes documents and runs verbs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ignite(self, *args: str) -> Answer:
        result = CliRunner().invoke(ignite, [str(arg) for arg in args], prog_name="ignite")
        return Answer(result.exit_code, result.stdout, result.stderr)

    def write(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path

    def profile(
        self,
        times: Sequence[float],
        *,
        memory: Sequence[float] | None = None,
        boundaries: Sequence[float] | None = None,
        name: str = "toy.profile.json",
        **changes: Any,
    ) -> Path:
        """A chain: forward + backward seconds of each layer, bytes it needs, bytes that leave it for one sample."""
        memory = memory or [0] * len(times)
        boundaries = [*(boundaries or [0] * (len(times) - 1)), 0]
        document = {
            "schema": "ignite/profile/v1",
            "name": "toy",
            "precision": "fp32",
            "reference": "reference",
            "layers": [
                {
                    "name": f"l{index}",
                    "parameter_bytes": memory[index],
                    "output_bytes": boundaries[index],
                    "activation_bytes": 0,
                    "times": {"reference": {"1": [time / 3, 2 * time / 3]}},
                }
                for index, time in enumerate(times)
            ],
        }
        return self.write(name, document | changes)

    def cluster(self, *nodes: Mapping[str, Any], links: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        document = {"version": 1, "name": "bench", "nodes": list(nodes), "links": links or {"default": FREE}}
        return self.write("cluster.yaml", document | changes)

    def job(self, *, microbatches: int = 64, pipeline: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        document = {
            "version": 1,
            "name": "toy",
            "model": {"profile": "toy.profile.json"},
            "steps": 1000,
            "batch": {"global": microbatches, "micro": 1},
            "optimizer": {"name": "sgd", "lr": 0.1, "memory": {"weights": 1, "gradients": 0, "optimizer": 0}},
            "pipeline": {"schedule": "1f1b", "replicas": 1} | dict(pipeline or {}),
        }
        return self.write("job.yaml", document | changes)

    def plan(self, *options: str) -> Answer:
        """Plan the documents that were written."""
        return self.ignite(
            "plan",
            str(self.folder / "job.yaml"),
            "--cluster",
            str(self.folder / "cluster.yaml"),
            "-o",
            "json",
            *options,
        )

    def simulate(self, jobs: Sequence[Mapping[str, Any]], policies: str) -> tuple[Answer, list[dict[str, str]]]:
        """Play a workload; the answer and the rows of the jobs table."""
        workload = self.write("workload.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
        table = self.folder / "jobs.csv"
        answer = self.ignite(
            "simulate", str(workload), "--cluster", str(self.folder / "cluster.yaml"),
            "--policy", policies, "--seed", "0", "-o", "json", "--jobs-csv", str(table),
        )  # fmt: skip
        rows = list(csv.DictReader(io.StringIO(table.read_text()))) if table.exists() else []
        return answer, rows


def own(kind: str, identifier: str | None = None, **keys: Any) -> dict[str, Any]:
    """A device entry of a kind of one's own: speed 1 and plenty of memory unless said otherwise."""
    entry: dict[str, Any] = {"kind": kind, "speed": 1, "memory": PLENTY, "dtypes": ["fp32"]} | keys
    return entry | ({"id": identifier} if identifier else {})


def node(name: str, *devices: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "devices": list(devices)}
