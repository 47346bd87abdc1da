"""The bench of each acceptance test, in a folder of its own; the independent judge of plans, importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from field_bench import Bench

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
