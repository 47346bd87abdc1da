"""Pools hold what may be swapped: changing places inside a pool leaves every link of the cluster as it was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import Cluster, Device, LinkRule, Node
from ignite_scheduler.policy import pools_of

NODES = ("a", "b", "c")


@st.composite
def clusters(draw):
    nodes = []
    for name in NODES:
        devices = []
        for index in range(draw(st.integers(0, 3))):
            kind, speed = draw(st.sampled_from([("V", 1.0), ("T", 1.0), ("V", 0.5)]))
            devices.append(Device(id=f"{name}/{index}", node=name, kind=kind, memory=1e9, speed=speed))
        nodes.append(Node(name=name, devices=tuple(devices)))
    ids = [device.id for node in nodes for device in node.devices]
    named = st.none() | st.frozensets(st.sampled_from([*NODES, *ids]), min_size=1, max_size=3)
    rule = st.builds(
        LinkRule,
        bandwidth=st.sampled_from([1.0, 2.0, 3.0]),
        latency=st.just(0.0),
        sources=named,
        targets=named,
        both_ways=st.booleans(),
        within=st.booleans(),
        shared=st.booleans(),
    )
    return Cluster(name="c", nodes=tuple(nodes), links=tuple(draw(st.lists(rule, max_size=4))))


def figures(cluster, source, target):
    """The link's speed, and its wire if others share it."""
    link = cluster.link(cluster.device(source), cluster.device(target))
    if link is None:
        return None
    is_private = link.wire == (source, target)
    return (link.bandwidth, link.latency, None if is_private else link.wire)


@settings(max_examples=80, deadline=None)
@given(clusters())
def test_two_devices_of_a_pool_may_change_places(cluster):
    pools = pools_of(cluster)
    ids = [device.id for device in cluster.devices]
    assert sorted(pools.pool_of) == sorted(ids)
    for pool, kind in pools.kind_of.items():
        members = pools.members[pool]
        assert pool == members[0]
        assert set(members) <= set(pools.members[kind])
        for other in members[1:]:
            swap = {each: each for each in ids} | {pool: other, other: pool}
            for source in ids:
                for target in ids:
                    if source != target:
                        before = figures(cluster, source, target)
                        assert before == figures(cluster, swap[source], swap[target])
