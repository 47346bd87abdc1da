"""What may import what, and what an import must not pull in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "torch", "numpy", "scipy", "pydantic", "numba", "highspy", "sqlalchemy", "ruamel.yaml", "drawsvg", "rich",
    "asyncio",
)  # fmt: skip
TORCH = ("torch", "sklearn")


def loaded_by(code: str, *, without: tuple[str, ...] = ()) -> set[str]:
    """Modules that a fresh interpreter holds after ``code``; those of ``without`` cannot be imported."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    told = "import json\nprint('\\n' + json.dumps([name for name in sys.modules if sys.modules[name]]))"
    script = f"import sys\n{blocked}{code}\n{told}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def call(arguments: list[str]) -> str:
    """Code that runs the command line and fails unless it leaves with 0."""
    leaving = "except SystemExit as leaving:\n    assert not leaving.code, leaving.code"
    return f"from ignite_scheduler.cli import ignite\ntry:\n    ignite.main({arguments!r})\n{leaving}"


def test_layers_are_kept() -> None:
    linter = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run([linter, "--no-cache"], capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import ignite_scheduler").isdisjoint(HEAVY)


@pytest.mark.parametrize("arguments", [["plan", "--help"], ["--help"], ["simulate", "--help"], ["run", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_by(call(arguments)).isdisjoint(HEAVY)


ROOMS = [
    "api", "cli", "control", "cost", "daemon", "formats", "model", "pipeline", "planner", "policy", "simulation",
    "store", "wiring", "zoo",
]  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_can_be_imported_without_torch(room: str) -> None:
    assert f"ignite_scheduler.{room}" in loaded_by(f"import ignite_scheduler.{room}", without=TORCH)


SIZES = {"parameter_bytes": 1, "output_bytes": 1, "activation_bytes": 1}
LAYER = {"name": "l0", **SIZES, "times": {"cpu": {"1": [1, 2]}}}
BOX = {"kind": "box", "speed": 1, "memory": "1GB"}
DOCUMENTS = {
    "toy.json": {
        "schema": "ignite/profile/v1", "name": "toy", "precision": "fp32", "reference": "cpu", "layers": [LAYER],
    },
    "job.yaml": {"version": 1, "name": "toy", "model": {"profile": "toy.json"}, "steps": 2, "batch": {"global": 2}},
    "cluster.yaml": {"version": 1, "name": "c", "nodes": [{"name": "n", "devices": [BOX]}]},
    "workload.jsonl": {"submit_s": 0, "name": "a", "rates": {"box:1": 1.0}, "total": 10},
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "-o", "json"],
        ["simulate", "workload.jsonl", "--cluster", "cluster.yaml", "--policy", "fifo", "-o", "json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_planning_and_simulating_need_no_torch(tmp_path: Path, arguments: list[str]) -> None:
    for name, document in DOCUMENTS.items():
        (tmp_path / name).write_text(json.dumps(document))

    loaded = loaded_by(f"import os\nos.chdir({str(tmp_path)!r})\n{call(arguments)}", without=TORCH)

    assert "ignite_scheduler.api" in loaded


@pytest.mark.torch
def test_the_parent_of_a_measurement_does_not_load_torch() -> None:
    pytest.importorskip("torch")
    code = "from ignite_scheduler import profile\nprofile('mlp', samples=[1], repeats=1)"

    assert loaded_by(code).isdisjoint({"torch"})
