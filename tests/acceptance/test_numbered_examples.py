"""The numbered examples run as they stand, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if "PyTorch:" in (example.read_text().split('"""')[1]) and "without PyTorch" not in example.read_text():
        pytest.importorskip("torch")

    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
