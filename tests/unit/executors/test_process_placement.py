"""A plan moves to the devices that a gang was given; emulation is said out loud."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.executors import notices, on_devices
from ignite_scheduler.model import Cluster, Device, Node
from live_jobs import small_cluster, small_job, small_plan

CLUSTER = small_cluster(0.25, 0.25, 0.25, 0.25)
PLAN = small_plan(small_job(), CLUSTER, (1, 1, 1))


@given(st.permutations([device.id for device in CLUSTER.devices]).map(lambda ids: tuple(ids[:3])))
def test_stages_move_in_order_and_nothing_else_changes(ids: tuple[str, ...]) -> None:
    moved = on_devices(PLAN, ids)
    assert moved.device_ids == ids
    assert on_devices(moved, PLAN.device_ids) == PLAN
    assert [stage.layers for stage in moved.stages] == [stage.layers for stage in PLAN.stages]
    assert moved.predicted == PLAN.predicted


@pytest.mark.parametrize("ids", [(), ("lab/core-0",), ("lab/core-0",) * 3, ("lab/core-0", "lab/core-1", "x", "y")])
def test_too_few_too_many_or_repeated_devices_are_refused(ids: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="3 different devices"):
        on_devices(PLAN, ids)


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
