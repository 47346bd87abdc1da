"""Which link rule speaks for which pair."""

import pytest

from ignite_scheduler.errors import NotFoundError
from ignite_scheduler.model import Cluster, Device, LinkRule, Node


def cluster(*rules):
    nodes = tuple(
        Node(name=n, devices=tuple(Device(id=f"{n}/{i}", node=n, kind="x", memory=1.0) for i in range(2))) for n in "ab"
    )
    return Cluster(name="c", nodes=nodes, links=rules)


DEFAULT = LinkRule(bandwidth=1.0, latency=0.5)


def between(c, source, target):
    return c.link(c.device(source), c.device(target))


def test_later_rules_win():
    within = LinkRule(bandwidth=9.0, latency=0.0, sources=frozenset("a"), targets=frozenset("a"), within=True)
    one_way = LinkRule(bandwidth=3.0, latency=0.0, sources=frozenset({"a/0"}), targets=frozenset("b"), both_ways=False)
    c = cluster(DEFAULT, within, one_way)
    assert between(c, "a/0", "a/1").bandwidth == 9.0
    assert between(c, "b/0", "b/1").bandwidth == 1.0
    assert between(c, "a/0", "b/1").bandwidth == 3.0
    assert between(c, "b/1", "a/0").bandwidth == 1.0
    assert between(c, "a/1", "b/1").bandwidth == 1.0


def test_seconds_are_latency_plus_bytes_over_bandwidth():
    assert between(cluster(DEFAULT), "a/0", "b/0").seconds(4.0) == 4.5


def test_each_direction_is_a_wire_of_its_own_unless_shared():
    c = cluster(DEFAULT)
    assert between(c, "a/0", "b/0").wire != between(c, "b/0", "a/0").wire
    shared = LinkRule(bandwidth=1.0, latency=0.0, sources=frozenset("a"), targets=frozenset("b"), shared=True)
    c = cluster(DEFAULT, shared)
    assert between(c, "a/0", "b/0").wire == between(c, "a/1", "b/1").wire
    assert between(c, "a/0", "b/0").wire != between(c, "b/0", "a/0").wire  # full duplex


def test_no_rule_is_no_link_and_a_device_reaches_itself_free():
    c = cluster()
    assert between(c, "a/0", "b/0") is None
    assert between(c, "a/0", "a/0").seconds(1e9) == 0.0


def test_an_unknown_device_names_those_there_are():
    with pytest.raises(NotFoundError, match="a/0, a/1, b/0, b/1"):
        cluster().device("c/0")
