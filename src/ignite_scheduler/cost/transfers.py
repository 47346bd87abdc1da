"""Messages between two stages: which replicas talk, over which links, and for how long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ignite_scheduler.cost.communication import required_link
from ignite_scheduler.cost.replicas import samples_between
from ignite_scheduler.cost.topology import Route
from ignite_scheduler.model import Cluster, Device
from ignite_scheduler.pipeline import Edge


def edge_between(
    cluster: Cluster,
    route: Route,
    ends: tuple[Sequence[Device], Sequence[Device]],
    shares: Sequence[tuple[Sequence[int], Sequence[int]]],
    scale: float,
) -> Edge:
    """The messages of a route, in seconds for each microbatch.

    Parameters
    ----------
    ends
        Devices of the stage that sends activations and of the one that gets them, in the order in which samples are
        dealt out.
    shares
        For each microbatch, the samples of each of these devices.
    scale
        Factor on the profile's bytes.

    Returns
    -------
    Edge
        Between two devices, that of their link. Between groups each direction takes the time of its busiest wire: one
        pair of devices has a wire of its own, pairs on a shared wire talk one after the other. The edge's wire is the
        busiest one for a full microbatch.

    Raises
    ------
    InputError
        Two devices that must talk have no link.
    """
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[Mapping[Hashable, float], Mapping[Hashable, float]]] = {}
    for sent, got in shares:
        key = tuple(sent), tuple(got)
        if key not in known:
            counts = {pair: count * (route.sample_bytes * scale) for pair, count in samples_between(*key).items()}
            known[key] = (
                _by_wire(cluster, [(ends[0][i], ends[1][j], n) for (i, j), n in counts.items()]),
                _by_wire(cluster, [(ends[1][j], ends[0][i], n) for (i, j), n in counts.items()]),
            )
    there, back = zip(*(known[tuple(sent), tuple(got)] for sent, got in shares), strict=True)
    return Edge(
        source=route.source,
        target=route.target,
        forward=tuple(_longest(wires) for wires in there),
        backward=tuple(_longest(wires) for wires in back),
        forward_wire=_busiest(there[0]),
        backward_wire=_busiest(back[0]),
    )


def _by_wire(cluster: Cluster, messages: Sequence[tuple[Device, Device, float]]) -> dict[Hashable, float]:
    found: dict[Hashable, float] = {}
    for source, target, num_bytes in messages:
        link = required_link(cluster, source, target)
        found[link.wire] = found.get(link.wire, 0.0) + link.seconds(num_bytes)
    return found


def _longest(wires: Mapping[Hashable, float]) -> float:
    return max(wires.values(), default=0.0)


def _busiest(wires: Mapping[Hashable, float]) -> Hashable:
    return max(wires, key=wires.__getitem__)
