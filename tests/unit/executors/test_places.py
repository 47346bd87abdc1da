"""What of a cluster this machine plays, what it has, and what it cannot play: all said out loud."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ignite_scheduler.engine.specification import emulated
from ignite_scheduler.errors import InputError
from ignite_scheduler.executors.places import check_playable, cuda_places, notices, on_real_devices
from ignite_scheduler.model import Cluster, Device, Node
from live_jobs import small_cluster, small_job, small_plan

GPU = Device(id="n/GPU-123", node="n", kind="A100-40GB", memory=4e10)
REAL = Cluster(name="real", nodes=(Node(name="n", devices=(GPU,)),), links=())


def test_emulated_devices_are_named() -> None:
    (said,) = notices(small_cluster(0.5, 0.25), {})
    assert "lab/core-0 as 0.5 of a core, lab/core-1 as 0.25 of a core" in said


def test_more_emulated_cores_than_there_are_is_a_warning() -> None:
    cores = os.cpu_count() or 1
    said = notices(small_cluster(*[1.0] * (cores + 1)), {})
    assert f"add up to {cores + 1} cores, this machine has {cores}" in said[1]


def test_a_device_that_is_not_here_is_stood_in_for_and_says_so() -> None:
    (said,) = notices(REAL, {})
    assert "not in this machine: n/GPU-123" in said
    assert notices(REAL, {GPU.id: "cuda:0"}) == ()


def test_a_device_faster_than_a_core_is_refused() -> None:
    check_playable(small_cluster(1.0, 0.1))
    check_playable(REAL)
    with pytest.raises(InputError, match=r"lab/core-1 \(2\)"):
        check_playable(small_cluster(1.0, 2.0))


def test_a_cluster_of_emulated_devices_asks_for_no_cards() -> None:
    assert cuda_places(small_cluster(0.5)) == {}


def test_real_devices_are_not_paced_and_talk_by_their_own_links(tmp_path: Path) -> None:
    cluster = small_cluster(0.5, 0.5, 0.5)
    job = small_job()
    spec = emulated(job, small_plan(job, cluster, (1, 1, 1)), cluster, directory=tmp_path)
    assert on_real_devices(spec, {}) is spec
    mixed = on_real_devices(spec, {"lab/core-0": "cuda:0", "lab/core-1": "cuda:1"})
    assert [device.place for device in mixed.devices] == ["cuda:0", "cuda:1", "cpu"]
    assert [device.speed for device in mixed.devices] == [None, None, 0.5]
    assert set(spec.links) - set(mixed.links) == {(0, 1), (1, 0)}
    assert mixed.backend == "gloo"
    everywhere = {device.id: f"cuda:{rank}" for rank, device in enumerate(cluster.devices)}
    real = on_real_devices(spec, everywhere)
    assert real == replace(real, links={}, backend="nccl")
