"""The documents of ``ignite init`` are good ones: they load, plan and play."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from ignite_scheduler import api
from ignite_scheduler.formats import load_cluster, load_job, load_profile, load_workload
from ignite_scheduler.formats.source import parse_yaml

FOLDER = Path(str(resources.files("ignite_scheduler"))) / "cli" / "examples"


def test_every_example_loads() -> None:
    cluster = load_cluster(FOLDER / "cluster.yaml")
    job = load_job(FOLDER / "job.yaml")
    profile = load_profile(FOLDER / "profile.json")
    assert {device.id for device in cluster.devices} == {"desk/fast-0", "desk/slow-0", "closet/box"}
    assert job.model.profile == str((FOLDER / "profile.json").resolve())
    assert len(profile.layers) == 12
    assert [line.name for line in load_workload(FOLDER / "workload.jsonl")] == [
        "digits",
        "digits-wide",
        "table",
        "urgent",
    ]


def test_the_example_job_is_planned_over_unlike_devices() -> None:
    plan = api.plan(FOLDER / "job.yaml", FOLDER / "cluster.yaml").plan
    assert plan.num_stages > 1
    assert plan.bound.optimal


def test_the_example_workload_is_played() -> None:
    found = api.simulate(FOLDER / "workload.jsonl", FOLDER / "cluster.yaml", policies=("fifo", "ignite"))
    assert [result.finished for result in found.results] == [4, 4]


@pytest.mark.parametrize("name", ["cluster.yaml", "job.yaml"])
def test_the_lines_that_are_commented_out_are_good_yaml_too(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if line.strip().startswith(("# - {", "# any_of"))]
    assert shown
    for line in shown:
        parse_yaml(line.strip().removeprefix("# "))


def test_the_profile_is_of_the_example_model() -> None:
    pytest.importorskip("torch")
    from ignite_scheduler.zoo import build
    from ignite_scheduler.zoo.chain import fingerprint, layers

    chain = build(load_job(FOLDER / "job.yaml").model, seed=0)
    profile = load_profile(FOLDER / "profile.json")
    assert [name for name, _ in layers(chain)] == [layer.name for layer in profile.layers]
    assert profile.provenance["structure"] == fingerprint(chain)
