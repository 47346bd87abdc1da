"""Device bookkeeping: which devices a demand gets, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ignite_scheduler.control.inventory import Inventory
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.policy import Candidate, candidates_of_plans
from queue_jobs import cluster, plan_on

CLUSTER = cluster({"a": {"V": 2, "T": 1}, "b": {"V": 4}, "c": {"V": 3}})


def of_kind(kind, count):
    return Candidate(demand=((f"*/{kind}", count),), rate=1.0, rate_low=1.0)


def test_a_kind_is_served_from_the_tightest_node_or_from_as_few_as_possible():
    inventory = Inventory(CLUSTER)
    assert inventory.allocate("x", of_kind("V", 3)) == ("c/V-0", "c/V-1", "c/V-2")
    assert inventory.allocate("y", of_kind("V", 1)) == ("a/V-0",)
    assert inventory.allocate("z", of_kind("V", 5)) == ("b/V-0", "b/V-1", "b/V-2", "b/V-3", "a/V-1")
    assert (inventory.free["*/V"], inventory.free["*/T"], inventory.num_free) == (0, 1, 1)
    inventory.check()
    with pytest.raises(InvariantError, match="no free device"):
        inventory.allocate("w", of_kind("V", 1))


def test_a_plan_gets_free_devices_of_the_pools_of_its_own():
    inventory = Inventory(CLUSTER)
    (candidate,) = candidates_of_plans([plan_on("b/V-0", "a/T-0", "b/V-1")], CLUSTER, inventory.pools)
    assert candidate.demand == (("a/T-0", 1), ("b/V-0", 2))
    assert (candidate.rate, candidate.rate_low, candidate.power) == (2.0, 1.0, 50.0)
    assert candidate.price is None
    assert inventory.needs(candidate) == (("*/T", 1), ("*/V", 2), ("a/T-0", 1), ("b/V-0", 2))
    assert inventory.allocate("x", of_kind("V", 3))[0] == "c/V-0"
    first = inventory.allocate("y", candidate)
    inventory.release(first)
    (other,) = candidates_of_plans([plan_on("b/V-3")], CLUSTER, inventory.pools)
    assert inventory.allocate("z", other) == ("b/V-0",)
    assert inventory.allocate("y", candidate) == ("b/V-1", "a/T-0", "b/V-2")


def test_devices_that_go_out_while_held_stay_out_when_given_back():
    inventory = Inventory(CLUSTER)
    held = inventory.allocate("x", of_kind("V", 4))
    assert inventory.put_out(["b/V-0", "b/V-1"])
    assert not inventory.put_out(["b/V-0"])
    inventory.check()
    inventory.release(held)
    inventory.check()
    assert (inventory.capacity["*/V"], inventory.free["*/V"]) == (7, 7)
    assert "b/V-0" not in inventory.present()


def test_a_node_that_joins_with_altered_devices_changes_the_pools():
    inventory = Inventory(CLUSTER)
    devices = inventory.devices_of("b")
    faster = (devices[0], *(replace(device, speed=2.0) for device in devices[1:]))
    assert inventory.join("b", faster)
    assert inventory.pools.pool_of["b/V-3"] == "b/V-1"
    assert inventory.free["b/V-0"] == 1
    assert not inventory.join("b", faster)
    inventory.check()
    assert inventory.join("b", faster[:1])
    assert inventory.capacity["b/V-1"] == 0


def test_a_copy_is_independent():
    inventory = Inventory(CLUSTER)
    other = inventory.copy()
    other.allocate("x", of_kind("V", 4))
    other.put_out(["c/V-0"])
    inventory.check()
    other.check()
    assert (inventory.num_free, len(inventory.out), other.num_free) == (10, 0, 5)
