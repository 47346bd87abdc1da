"""Clusters with devices more or less."""

from __future__ import annotations

import pytest

from ignite_scheduler.api.what_if import changed
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Cluster, Device, LinkRule, Node


def device(node: str, kind: str, index: int, speed: float = 1.0) -> Device:
    return Device(id=f"{node}/{kind}-{index}", node=node, kind=kind, memory=1e9, speed=speed)


CLUSTER = Cluster(
    name="c",
    nodes=(
        Node(name="a", devices=(device("a", "fast", 0), device("a", "fast", 1))),
        Node(name="b", devices=(device("b", "slow", 0, 0.25),)),
    ),
    links=(LinkRule(bandwidth=1e9, latency=0.0), LinkRule(bandwidth=1e10, latency=0.0, within=True)),
)


def ids(cluster: Cluster) -> list[str]:
    return [found.id for found in cluster.devices]


def test_more_of_a_kind_stand_beside_the_others_and_are_like_them() -> None:
    grown = changed(CLUSTER, "+2xslow")

    assert ids(grown) == ["a/fast-0", "a/fast-1", "b/slow-0", "b/slow-1", "b/slow-2"]
    assert grown.device("b/slow-2").speed == 0.25
    link = grown.link(grown.device("b/slow-1"), grown.device("b/slow-2"))
    assert link is not None
    assert link.bandwidth == 1e10


def test_a_kind_can_be_put_into_another_node() -> None:
    grown = changed(CLUSTER, "+1xslow@a")

    assert ids(grown) == ["a/fast-0", "a/fast-1", "a/slow-0", "b/slow-0"]
    assert grown.device("a/slow-0").node == "a"


def test_a_new_kind_comes_from_the_catalogue_in_a_node_of_its_own() -> None:
    grown = changed(CLUSTER, "+1xA100-40GB")

    assert ids(grown)[-1] == "what-if/A100-40GB-0"
    assert grown.device("what-if/A100-40GB-0").memory > 30e9
    assert grown.device("what-if/A100-40GB-0").price is None


def test_a_node_less() -> None:
    assert ids(changed(CLUSTER, "-node:a")) == ["b/slow-0"]


def test_a_device_less_and_its_empty_node_with_it() -> None:
    shrunk = changed(CLUSTER, "-device:b/slow-0")

    assert [node.name for node in shrunk.nodes] == ["a"]


def test_the_cluster_itself_stays() -> None:
    before = ids(CLUSTER)
    changed(CLUSTER, "+1xfast")

    assert ids(CLUSTER) == before


@pytest.mark.parametrize("change", ["", "A100", "+A100", "+0xfast", "+99999xfast", "-lab2", "+1xA101-40GB", "1xfast"])
def test_what_is_no_change_is_refused(change: str) -> None:
    with pytest.raises(InputError):
        changed(CLUSTER, change)


@pytest.mark.parametrize("change", ["-node:z", "-device:a/fast-7", "+1xfast@z"])
def test_what_is_not_there_is_named_with_what_is(change: str) -> None:
    with pytest.raises(NotFoundError, match="there are: a"):
        changed(CLUSTER, change)


def test_a_misspelt_kind_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match="A100-40GB"):
        changed(CLUSTER, "+1xA100-41GB")
