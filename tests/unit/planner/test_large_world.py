"""What devices of a wide cluster have in common, and how large groups with good links can be: solved by hand."""

from __future__ import annotations

from ignite_scheduler.model import Cluster, Device, LinkRule, Node
from ignite_scheduler.planner.large.world import reach, world_of


def nodes_of_two(listing: tuple[int, ...] = (0, 1, 2)) -> Cluster:
    """Three nodes with two equal devices each, of which the third node's are slower; links 10 inside, 1 between."""
    nodes = [
        Node(
            name=f"n{n}",
            devices=tuple(
                Device(id=f"n{n}/{d}", node=f"n{n}", kind="k", memory=1.0, speed=0.5 if n == 2 else 1.0)
                for d in range(2)
            ),
        )
        for n in listing
    ]
    rules = (LinkRule(bandwidth=1.0, latency=0.2), LinkRule(bandwidth=10.0, latency=0.1, within=True))
    return Cluster(name="twos", nodes=tuple(nodes), links=rules)


def test_kinds_and_blocks() -> None:
    """Two speeds make two kinds; each node is a block."""
    cluster = nodes_of_two()
    world = world_of(cluster, cluster.devices)
    assert world.kind_counts.tolist() == [4, 2]
    assert world.block_counts.tolist() == [2, 2, 2]
    assert world.block_kind.tolist() == [0, 0, 1]
    assert world.per_byte[0, 0] == 0.1
    assert world.per_byte[0, 1] == 1.0


def test_larger_groups_have_worse_links() -> None:
    """Two devices may have the link inside a node, more of them some pair with the link between nodes."""
    cluster = nodes_of_two()
    assert reach(world_of(cluster, cluster.devices)) == [(2, 0.1, 0.1), (6, 1.0, 0.1)]


def test_listing_does_not_matter() -> None:
    """The same world whatever the order of nodes."""
    one, other = nodes_of_two(), nodes_of_two((2, 0, 1))
    a, b = world_of(one, one.devices), world_of(other, other.devices)
    assert a.devices == b.devices
    assert a.kind.tolist() == b.kind.tolist()
    assert a.block.tolist() == b.block.tolist()
