"""A plan moves to the devices that a gang was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.daemon.placement import on_devices
from ignite_scheduler.errors import InputError
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
