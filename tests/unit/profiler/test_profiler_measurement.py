"""The whole way: a job or a model is measured in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from ignite_scheduler.errors import ExternalError, InputError  # after the skip
from ignite_scheduler.formats.profile import parse_profile, profile_document
from ignite_scheduler.model import Batch, Job, Reference
from ignite_scheduler.profiler import Progress, measure
from ignite_scheduler.profiler.measurement import _sizes_of

pytestmark = pytest.mark.torch

MLP = Reference(zoo="mlp", args={"features": 13, "hidden": [8], "outputs": 3})


def job(**changes: object) -> Job:
    arguments = {"name": "wines", "model": MLP, "data": Reference(zoo="wine"), "batch": Batch(total=8, micro=3)}
    return Job(**(arguments | changes))  # type: ignore[arg-type]


def test_a_job_is_measured_at_the_sizes_that_it_will_run() -> None:
    told: list[Progress] = []
    profile = measure(job(), repeats=3, progress=told.append)
    assert profile.name == "wines"
    assert profile.reference == "cpu"
    assert [layer.name for layer in profile.layers] == ["linear0", "head"]
    for layer in profile.layers:
        assert sorted(layer.times["cpu"]) == [1, 2, 3]
        assert all(times.forward >= 0 and times.backward >= 0 for times in layer.times["cpu"].values())
        assert set(layer.update) == {"sgd", "momentum", "adam", "adamw"}
    assert profile.layers[0].parameter_bytes == (13 * 8 + 8) * 4
    assert profile.layers[1].forward_flops == 2 * 8 * 3
    assert profile.provenance["machine"]["threads"] == 1
    assert parse_profile(profile_document(profile)) == profile
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert all(p.done < p.total for p in told)


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [
        (Batch(total=64), {1, 2, 4, 8, 16, 32}),
        (Batch(total=12), {1, 2, 4, 8}),
        (Batch(total=64, micro=6), {1, 2, 4, 6}),
        (Batch(total=11, micro=8), {1, 2, 3, 4, 8}),
        (Batch(total=4, micro=9), {1, 2, 4}),
    ],
)
def test_sizes_cover_the_microbatches_and_the_last_smaller_one(batch: Batch, sizes: set[int]) -> None:
    assert set(_sizes_of(job(batch=batch))) == sizes


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (Reference(zoo="alexnett"), {}, "did you mean alexnet"),
        (Reference(profile="a.json"), {}, "without code cannot be measured"),
        (Reference(module="zoo_samples:chain"), {}, "name a data set"),
        (MLP, {"samples": (0,)}, "at least 1"),
        (MLP, {"samples": ()}, "at least 1"),
        (MLP, {"repeats": 0}, "repeats must be at least 1"),
    ],
)
def test_what_is_wrong_is_told_before_a_process_starts(
    source: Reference, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        measure(source, **arguments)  # type: ignore[arg-type]


def test_a_precision_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="fp8"):
        measure(job(precision="fp8"))


def test_what_the_process_finds_wrong_is_the_same_error_here() -> None:
    with pytest.raises(InputError, match=r"layer 'linear0' with an input of \(2, 30\)"):
        measure(job(data=Reference(zoo="breast_cancer")))


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_here_is_refused(device: str) -> None:
    with pytest.raises(InputError, match=device):
        measure(MLP, device=device)


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(ExternalError, match="the measuring process died"):
        measure(job(model=Reference(module="os:abort")))


def test_importing_the_profiler_needs_no_torch() -> None:
    code = "import sys, ignite_scheduler.profiler; print('torch' in sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    assert printed.strip() == "False"
