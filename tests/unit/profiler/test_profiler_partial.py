"""What an interrupted measurement leaves, and what goes on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Reference
from ignite_scheduler.profiler import measurement
from ignite_scheduler.profiler.partial import PartialFile, partial_path
from ignite_scheduler.profiler.request import Measured, OtherMeasurementError, Partial, Request, Share

REQUEST = Request(
    model=Reference(zoo="mlp"),
    data=Reference(zoo="wine"),
    loss="cross_entropy",
    precision="fp32",
    samples=(1, 4),
    repeats=20,
    time_limit=40.0,
    device="cpu",
    seed=0,
)
PARTIAL = Partial(
    structure="0123",
    layers={1: (((0.5, 1.0), (0.25, 0.5)),), 4: (((1.5, 3.0), (0.5, 1.0)),)},
    begun={1: ((0.75, 1.5),), 4: ((2.0, 4.0),)},
    whole={1: ((0.7, 1.4),), 4: ((1.9, 3.9),)},
    own=14.0,
    wall=15.0,
)


def test_the_file_lies_hidden_beside_the_profile() -> None:
    assert partial_path(Path("runs/gpt.json"), "cuda:1") == Path("runs/.gpt.json.cuda-1.partial")


@given(seconds=st.floats(0, 1e6), passes=st.integers(0, 3))
def test_what_is_kept_is_found_again(tmp_path_factory: pytest.TempPathFactory, seconds: float, passes: int) -> None:
    path = tmp_path_factory.mktemp("kept") / "p"
    partial = replace(PARTIAL, begun={1: ((seconds, 1.0),) * passes, 4: ()}, own=seconds)
    file = PartialFile(path, REQUEST)
    assert file.found is None
    file.write(partial)
    assert PartialFile(path, replace(REQUEST, repeats=3, time_limit=1.0)).found == partial
    file.remove()
    assert not path.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"model": Reference(zoo="mlp", args={"hidden": (3,)})},
        {"samples": (1, 8)},
        {"precision": "bf16"},
        {"device": "cuda:0"},
        {"seed": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_passes_of_something_else_are_refused(tmp_path: Path, other: dict[str, object]) -> None:
    PartialFile(tmp_path / "p", REQUEST).write(PARTIAL)
    with pytest.raises(OtherMeasurementError, match="another model, version or machine: delete it"):
        PartialFile(tmp_path / "p", replace(REQUEST, **other))  # type: ignore[arg-type]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    PartialFile(tmp_path / "p", REQUEST).write(PARTIAL)
    whole = (tmp_path / "p").read_text()
    (tmp_path / "p").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is damaged: .*delete it"):
        PartialFile(tmp_path / "p", REQUEST)


def test_passes_are_shared_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, bool]] = []
    done = SimpleNamespace(num_passes=0)

    def run(request: Request, hear: object) -> object:
        before = 0 if request.partial is None else request.partial.num_passes
        asked.append((before, request.repeats, request.passes_only))
        after = SimpleNamespace(num_passes=min(request.repeats, before + 7))
        return Share(partial=after) if request.passes_only else Mock(spec=Measured)  # type: ignore[arg-type]

    monkeypatch.setattr(measurement, "_in_fresh_process", run)
    measurement._in_fresh_processes(replace(REQUEST, repeats=20), print)
    assert asked == [(0, 6, True), (6, 13, True), (13, 20, False)]
    asked.clear()
    measurement._in_fresh_processes(replace(REQUEST, repeats=4), print)
    assert asked == [(0, 4, False)]
    asked.clear()
    measurement._in_fresh_processes(replace(REQUEST, repeats=40), print)  # each has time for 7 passes of 13
    assert asked == [(0, 13, True), (7, 40, False)]
    asked.clear()
    done.num_passes = 12
    measurement._in_fresh_processes(replace(REQUEST, partial=done), print)  # type: ignore[arg-type]
    assert asked == [(12, 13, True), (13, 20, False)]


@pytest.mark.torch
def test_a_measurement_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from ignite_scheduler import profiler
    from ignite_scheduler.profiler.request import Progress

    class EnoughError(Exception):
        pass

    model, path, told = Reference(zoo="mlp", args={"hidden": [8]}), tmp_path / "p", []

    def stop(progress: Progress) -> None:
        if progress.doing.startswith("pass 3"):
            raise EnoughError

    options = {"samples": (1, 2), "repeats": 4, "partial": path}
    with pytest.raises(EnoughError):
        profiler.measure(model, progress=stop, **options)  # type: ignore[arg-type]
    profile = profiler.measure(model, progress=lambda p: told.append(p.doing), **options)  # type: ignore[arg-type]
    assert [doing for doing in told if doing.startswith("pass")] == [
        f"pass {number}, {samples} samples" for number in (3, 4) for samples in (1, 2)
    ]
    assert profile.provenance["passes"] == 4
    assert profile.layers[0].transient_bytes >= 0
    changed = path.read_text().replace(profile.provenance["structure"], "0123456789abcdef")
    path.write_text(changed)
    with pytest.raises(OtherMeasurementError, match="another model"):
        profiler.measure(model, **options)  # type: ignore[arg-type]
