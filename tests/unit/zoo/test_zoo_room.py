"""A model that cannot be in memory is refused before it is built."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ignite_scheduler import zoo  # noqa: E402  # after the skip
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo import room  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def _a_gigabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable:     976562 kB\n")
    monkeypatch.setattr(room, "_MEMINFO", tmp_path / "meminfo")


@pytest.mark.usefixtures("_a_gigabyte")
def test_a_model_that_does_not_fit_is_refused_with_both_figures() -> None:
    with pytest.raises(InputError, match=r"llama-7b: its weights alone take 27GB, this machine has 1GB .*meta"):
        zoo.build(Reference(zoo="llama-7b"))


@pytest.mark.usefixtures("_a_gigabyte")
def test_its_arguments_and_its_outline_are_what_counts() -> None:
    narrow = {"dim": 64, "heads": 2, "hidden": 64, "depth": 1}
    zoo.build(Reference(zoo="llama-7b", args=narrow))
    zoo.outline(Reference(zoo="llama-7b"))


def test_a_system_that_does_not_tell_its_memory_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MEMINFO", Path("/nowhere/meminfo"))
    assert room.available_memory() is None
    monkeypatch.setattr(room, "_MEMINFO", Path(__file__))
    assert room.available_memory() is None
