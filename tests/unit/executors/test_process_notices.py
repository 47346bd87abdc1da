"""Emulation is said out loud."""

from __future__ import annotations

import os

from ignite_scheduler.executors import notices
from ignite_scheduler.model import Cluster, Device, Node
from live_jobs import small_cluster


def test_emulated_devices_are_named() -> None:
    (said,) = notices(small_cluster(0.5, 0.25))
    assert "lab/core-0 as 0.5 of a core, lab/core-1 as 0.25 of a core" in said


def test_more_emulated_cores_than_there_are_is_a_warning() -> None:
    cores = os.cpu_count() or 1
    said = notices(small_cluster(*[1.0] * (cores + 1)))
    assert f"add up to {cores + 1} cores, this machine has {cores}" in said[1]


def test_real_devices_need_no_notice() -> None:
    device = Device(id="n/gpu", node="n", kind="A100-40GB", memory=4e10)
    assert notices(Cluster(name="real", nodes=(Node(name="n", devices=(device,)),), links=())) == ()
