"""The examples in docstrings are executed, and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import ignite_scheduler

ROOT = Path(ignite_scheduler.__file__).parent
NAMES = sorted(
    ".".join(("ignite_scheduler", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
TORCH_ROOMS = ("ignite_scheduler.engine", "ignite_scheduler.profiler", "ignite_scheduler.zoo")


@pytest.mark.parametrize("name", NAMES)
def test_examples_print_what_they_say(name: str) -> None:
    if name.startswith(TORCH_ROOMS):
        pytest.importorskip("torch")
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted
    assert not failed
