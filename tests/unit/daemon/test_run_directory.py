"""The directory of a run: names that become paths, documents that read back, one driver at a time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.daemon.directory import Asked, Request, RunDirectory, slug
from ignite_scheduler.errors import ConflictError, DocumentError, InputError, NotFoundError
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Profile,
    Reference,
)

CLUSTER = Cluster(
    name="lab",
    currency="EUR",
    nodes=(
        Node(name="n1", devices=(Device(id="n1/box-0", node="n1", kind="box", memory=3e9, speed=0.1 + 0.2),)),
        Node(name="n2", devices=(Device(id="n2/slow", node="n2", kind="box", memory=1e9, speed=0.25, price=1 / 3600),)),
    ),
    links=(LinkRule(bandwidth=1.25e8, latency=1 / 3000), LinkRule(bandwidth=1e10 / 3, latency=0.0, within=True)),
)
PROFILE = Profile(
    name="toy",
    precision="fp32",
    reference="box",
    layers=(
        Layer(
            name="l0",
            parameter_bytes=10.0,
            output_bytes=1.5,
            activation_bytes=3.0,
            times={"box": {4: LayerTimes(forward=1 / 3, backward=2 / 3)}},
            inputs=(LayerInput(source="input"),),
        ),
    ),
)


def asked(name: str = "a", **changes: object) -> Asked:
    job = Job(name=name, model=Reference(zoo="mlp"), data=Reference(zoo="wine"), batch=Batch(total=8), steps=5)
    return Asked(job=job, profile=PROFILE, work=5, **changes)


def request_of(*jobs: Asked) -> Request:
    return Request(
        jobs=jobs,
        cluster=CLUSTER,
        policy="fifo",
        objective="time",
        memory_margin=0.05,
        search_work=1000,
        origin=1234567.125,
    )


@given(st.text(min_size=1, max_size=200))
def test_a_slug_is_one_plain_part_of_a_path(name: str) -> None:
    if not name.strip():
        with pytest.raises(InputError, match="must not be empty"):
            slug(name)
        return
    found = slug(name)
    assert 1 <= len(found) <= 100
    assert not found.startswith(".")
    assert Path("jobs", found).name == found
    assert found.isascii()
    assert slug(name) == found


@pytest.mark.parametrize("name", ["a", "gpt-small_v2.1", "A" * 80])
def test_a_plain_name_stays_itself(name: str) -> None:
    assert slug(name) == name


def test_names_that_differ_in_replaced_letters_stay_apart() -> None:
    assert len({slug(name) for name in ("a b", "a/b", "a-b", "a:b", "../a-b", "a-b-")}) == 6


def test_what_was_asked_reads_back_exactly(tmp_path: Path) -> None:
    request = request_of(asked(), asked("b c/d", submitted=1 / 3, startup=0.1, checkpoint_cost=0.7))
    directory = RunDirectory(tmp_path / "run")
    directory.begin(request)
    assert directory.request() == request


def test_a_directory_that_holds_a_run_or_anything_else_is_refused(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.begin(request_of(asked()))
    with pytest.raises(ConflictError, match="--resume"):
        directory.begin(request_of(asked()))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match="not empty"):
        RunDirectory(tmp_path).begin(request_of(asked()))


def test_two_jobs_of_one_name_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    with pytest.raises(InputError, match="'a' twice"):
        directory.begin(request_of(asked(), replace(asked(), submitted=3.0)))
    assert not (tmp_path / "run").exists()


def test_no_run_and_a_broken_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run in"):
        RunDirectory(tmp_path).request()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DocumentError, match=r"run\.json"):
        RunDirectory(tmp_path).request()
    (tmp_path / "run.json").write_text('{"schema": "ignite/run/v9"}')
    with pytest.raises(DocumentError, match="ignite/run/v9"):
        RunDirectory(tmp_path).request()


def test_only_one_process_drives_a_run_and_the_lock_goes_with_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ignite_scheduler.daemon.directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).locked():\n    print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ConflictError, match=f"process {other.pid} is driving"), RunDirectory(tmp_path).locked():
            pass
        other.kill()
    with RunDirectory(tmp_path).locked():
        pass
