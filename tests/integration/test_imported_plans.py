"""What is imported can be planned: a profile of every format on a cluster of two unlike kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_scheduler import api
from ignite_scheduler.formats import parse_cluster, parse_job
from ignite_scheduler.formats.foreign import import_profile

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles"
if not SHARED.is_dir():
    pytest.skip(f"the public profiles are not at {SHARED}", allow_module_level=True)

MICROBATCHES = 8


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("dapple/bert-24-pbs-6.txt", ("fast", "slow")),
        ("piper/bert32a100.json", ("fast", "slow")),
        ("dnn-partitioning/OperatorGraphs/bert_l-3_training.json", ("reference", "cpu")),
        ("sailor/compute/OPT-350", ("A100-40", "V100-16")),
        ("pipeedge", ("RCC-VE-C2000", "Minnowboard-E3845")),
    ],
)
def test_an_imported_profile_is_planned_on_two_kinds(name: str, kinds: tuple[str, str]) -> None:
    profile = import_profile(SHARED / name).profile
    assert profile.reference is not None
    samples = min(profile.layers[0].times[profile.reference])
    batch = {"global": samples * MICROBATCHES, "micro": samples}
    job = parse_job({"version": 1, "name": "j", "model": {"profile": "p.json"}, "batch": batch, "steps": 1})
    speeds = ({"speed": 1}, {"speed": 0.5}) if kinds == ("fast", "slow") else ({}, {})
    nodes = [
        {"name": f"n{index}", "devices": [{"kind": kind, "memory": "1000TB"} | speed]}
        for index, (kind, speed) in enumerate(zip(kinds, speeds, strict=True))
    ]
    cluster = parse_cluster(
        {"version": 1, "name": "two", "nodes": nodes, "links": {"default": {"bandwidth": "10GB/s"}}}
    )

    planned = api.plan(job, cluster, profile=profile)

    assert planned.feasible
    plan = planned.plan
    assert {name for stage in plan.stages for name in stage.layers} == {layer.name for layer in profile.layers}
    assert sum(stage.forward + stage.backward for stage in plan.stages) > 0
    assert plan.bound.gap >= 0
