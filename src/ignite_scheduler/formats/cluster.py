"""``cluster.yaml`` ↔ :class:`~ignite_scheduler.model.Cluster`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ignite_scheduler.formats.catalogue import Kind, catalogue, default_reserve, nearest_kinds
from ignite_scheduler.formats.quantities import (
    bandwidth_text,
    duration_text,
    flops_text,
    memory_text,
    power_text,
    price_text,
)
from ignite_scheduler.formats.source import Place, Source, read_source
from ignite_scheduler.model import Cluster, Device, LinkRule, Node
from ignite_scheduler.model.cluster import FREE_BANDWIDTH
from ignite_scheduler.units import format_memory

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.cluster import ClusterShape, DeviceShape, LinkShape, NodeShape

OtherT = TypeVar("OtherT", bound=float | None)

FREE_LINKS: Final = (LinkRule(bandwidth=FREE_BANDWIDTH, latency=0.0),)
"""What a cluster file without ``links`` means: transfers take no time."""

MAX_COUNT: Final = 10_000
"""Equal devices in one entry; a larger number is a slip, and would fill the memory before anything could say so."""


def load_cluster(path: str | Path) -> Cluster:
    """The cluster that the file at ``path`` describes.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong; the message has the line, the field and what to do.
    """
    return _cluster(read_source(path))


def parse_cluster(data: Mapping[str, Any]) -> Cluster:
    """The cluster of a document that is plain data already, such as :func:`cluster_document` gives."""
    return _cluster(Source(data=data))


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The document that reads back as ``cluster``; memory is written net of what others use and of the reserve."""
    document: dict[str, Any] = {"version": 1, "name": cluster.name}
    if cluster.currency is not None:
        document["currency"] = cluster.currency
    document["nodes"] = [
        {"name": node.name, "devices": [_device_entry(device) for device in node.devices]} for node in cluster.nodes
    ]
    if cluster.links != FREE_LINKS:
        default, pairs = _split_default(cluster.links)
        document["links"] = ({"default": default} if default else {}) | {
            "pairs": [_rule_entry(rule, cluster) for rule in pairs]
        }
    return document


# --- reading --------------------------------------------------------------------------------------------------------


def _cluster(source: Source) -> Cluster:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.cluster import ClusterShape

    shape = check(ClusterShape, source)
    nodes: list[Node] = []
    for index, node in enumerate(shape.nodes):
        if any(node.name == earlier.name for earlier in nodes):
            raise source.error(("nodes", index, "name"), f"two nodes are called {node.name!r}; give each its own name")
        nodes.append(Node(name=node.name, devices=_devices(source, ("nodes", index, "devices"), node)))
    links = _links(source, shape, nodes)
    return Cluster(name=shape.name, nodes=tuple(nodes), links=links, currency=shape.currency)


def _devices(source: Source, place: Place, node: NodeShape) -> tuple[Device, ...]:
    devices: dict[str, Device] = {}
    num_of_kind: Counter[str] = Counter()
    for index, entry in enumerate(node.devices):
        here = (*place, index)
        if entry.id is not None and (entry.count or 1) > 1:
            raise source.error(
                (*here, "count"), f"one id, {entry.id!r}, cannot name {entry.count} devices; list them one by one"
            )
        if (entry.count or 1) > MAX_COUNT:
            raise source.error(
                (*here, "count"), f"expected at most {MAX_COUNT} devices in one entry, found {entry.count}"
            )
        for _ in range(entry.count or 1):
            own = entry.id
            if own is None:
                own = f"{entry.kind}-{num_of_kind[entry.kind]}"
                num_of_kind[entry.kind] += 1
            device = _device(source, here, entry, node.name, f"{node.name}/{own}")
            if device.id in devices:
                raise source.error((*here, "id"), f"two devices are called {device.id!r}; give each its own id")
            devices[device.id] = device
    return tuple(devices.values())


def _device(source: Source, place: Place, entry: DeviceShape, node: str, device_id: str) -> Device:
    from ignite_scheduler.formats.shapes.cluster import PowerShape

    known = catalogue().get(entry.kind)
    dtypes = frozenset(entry.dtypes or (known.dtypes if known else ("fp32",)))
    power = entry.power or PowerShape()
    return Device(
        id=device_id,
        node=node,
        kind=entry.kind,
        memory=_usable_memory(source, place, entry, known),
        speed=entry.speed,
        dtypes=dtypes,
        price=entry.price,
        busy_power=_or(power.busy, known.busy_power if known else None),
        idle_power=power.idle,
        peak_flops=_peaks(entry, dtypes, known),
        memory_bandwidth=_or(entry.memory_bandwidth, known.memory_bandwidth if known else None),
        achievable_flops=_or(entry.achievable_flops, known.achievable_flops if known else 1.0),
        achievable_bandwidth=_or(entry.achievable_bandwidth, known.achievable_bandwidth if known else 1.0),
        launch_overhead=_or(entry.launch_overhead, known.launch_overhead if known else 0.0),
        host_bandwidth=_or(entry.host_bandwidth, known.host_bandwidth if known else None),
    )


def _peaks(entry: DeviceShape, dtypes: frozenset[str], known: Kind | None) -> tuple[tuple[str, float], ...]:
    """The file's figures, in the order of their dtypes, or the catalogue's."""
    if entry.peak_flops is None:
        return known.peak_flops if known else ()
    if isinstance(entry.peak_flops, dict):
        return tuple(sorted(entry.peak_flops.items()))
    return tuple((dtype, entry.peak_flops) for dtype in sorted(dtypes))


def _or(value: float | None, otherwise: OtherT) -> float | OtherT:
    return otherwise if value is None else value


def _usable_memory(source: Source, place: Place, entry: DeviceShape, known: Kind | None) -> float:
    if entry.memory is not None:
        whole, reserve = entry.memory, entry.reserve or 0.0  # the file's figure is usable memory already
    elif known is not None and known.memory is not None:
        whole = known.memory
        reserve = default_reserve(known.memory) if entry.reserve is None else entry.reserve
    elif known is not None:
        raise source.error(
            (*place, "kind"), f"how much memory a {entry.kind!r} has depends on the machine: give it (memory: 64GB)"
        )
    else:
        raise source.error((*place, "kind"), _unknown_kind(entry.kind))
    usable: float = whole - (entry.used_by_others or 0.0) - reserve
    if usable <= 0:
        field = "memory" if entry.memory is not None and not entry.used_by_others else "used_by_others"
        raise source.error(
            (*place, field),
            f"no memory is left of {format_memory(whole)}: others use {format_memory(entry.used_by_others or 0.0)}, "
            f"the reserve is {format_memory(reserve)}; leave the device out or correct the figures",
        )
    return usable


def _unknown_kind(kind: str) -> str:
    near = nearest_kinds(kind)
    listed = "'ignite devices kinds' lists those that are"
    advice = f"did you mean {' or '.join(map(repr, near))}? " if near else f"{listed}. "
    return f"the kind {kind!r} is not in the catalogue; {advice}For a kind of your own give its memory (memory: 64GB)"


def _links(source: Source, shape: ClusterShape, nodes: Iterable[Node]) -> tuple[LinkRule, ...]:
    links = shape.links
    if links is None or (links.default is None and not links.pairs):
        return FREE_LINKS
    known = [name for node in nodes for name in (node.name, *(device.id for device in node.devices))]
    rules = []
    if links.default is not None:
        default = links.default
        rules.append(LinkRule(bandwidth=default.bandwidth, latency=default.latency, shared=default.shared))
    rules += [_rule(source, ("links", "pairs", index), pair, known) for index, pair in enumerate(links.pairs)]
    return tuple(rules)


def _rule(source: Source, place: Place, pair: LinkShape, known: list[str]) -> LinkRule:
    one_way = pair.from_ is not None or pair.to is not None
    if [pair.within is not None, pair.between is not None, one_way].count(True) != 1:
        raise source.error(
            place, "expected exactly one of 'within', 'between', or 'from' with 'to', to say for which pairs"
        )
    if one_way and (pair.from_ is None or pair.to is None):
        missing = "to" if pair.to is None else "from"
        raise source.error(place, f"a link one way has both ends: the key {missing!r} is missing")
    for field, names in _named_ends(pair):
        for name in names:
            if name not in known:
                raise source.error((*place, *field), _unknown_end(name, known))
    if pair.within is not None:
        ends = (frozenset(pair.within), frozenset(pair.within))
    elif pair.between is not None:
        ends = (frozenset(pair.between[0]), frozenset(pair.between[1]))
    else:
        ends = (frozenset(pair.from_ or ()), frozenset(pair.to or ()))
    return LinkRule(
        bandwidth=pair.bandwidth,
        latency=pair.latency,
        sources=ends[0],
        targets=ends[1],
        both_ways=not one_way,
        within=pair.within is not None,
        shared=pair.shared,
    )


def _named_ends(pair: LinkShape) -> list[tuple[Place, list[str]]]:
    ends: list[tuple[Place, list[str] | None]] = [
        (("within",), pair.within),
        (("from",), pair.from_),
        (("to",), pair.to),
    ]
    ends += [(("between", index), names) for index, names in enumerate(pair.between or ())]
    return [(field, names) for field, names in ends if names is not None]


def _unknown_end(name: str, known: list[str]) -> str:
    from ignite_scheduler.formats.shapes.fields import nearest

    near = nearest(name, known)
    advice = f"did you mean {near!r}?" if near else f"known names: {', '.join(known)}"
    return f"no node or device is called {name!r}; {advice}"


# --- writing --------------------------------------------------------------------------------------------------------


def _device_entry(device: Device) -> dict[str, Any]:
    power = {"busy": device.busy_power, "idle": device.idle_power}
    entry: dict[str, Any] = {
        "kind": device.kind,
        "id": device.id.removeprefix(f"{device.node}/"),
        "memory": memory_text(device.memory),
        "dtypes": sorted(device.dtypes),
        "speed": device.speed,
        "price": _maybe(price_text, device.price),
        "power": {key: power_text(value) for key, value in power.items() if value is not None} or None,
        "peak_flops": {dtype: flops_text(rate) for dtype, rate in device.peak_flops} or None,
        "memory_bandwidth": _maybe(bandwidth_text, device.memory_bandwidth),
        "host_bandwidth": _maybe(bandwidth_text, device.host_bandwidth),
        **_roofline_entry(device),
    }
    return {key: value for key, value in entry.items() if value is not None}


def _roofline_entry(device: Device) -> dict[str, Any]:
    """What the roofline takes beside peaks: said wherever there are peaks, since a catalogue kind has its own."""
    if not device.peak_flops and (device.achievable_flops, device.achievable_bandwidth) == (1.0, 1.0):
        return {"launch_overhead": duration_text(device.launch_overhead)} if device.launch_overhead else {}
    return {
        "achievable_flops": device.achievable_flops,
        "achievable_bandwidth": device.achievable_bandwidth,
        "launch_overhead": duration_text(device.launch_overhead),
    }


def _maybe(write: Any, value: float | None) -> str | None:
    return None if value is None else str(write(value))


def _split_default(links: tuple[LinkRule, ...]) -> tuple[dict[str, Any] | None, tuple[LinkRule, ...]]:
    if links and links[0].sources is None and links[0].targets is None and not links[0].within:
        return _speed_entry(links[0]), links[1:]
    return None, links


def _speed_entry(rule: LinkRule) -> dict[str, Any]:
    entry: dict[str, Any] = {"bandwidth": bandwidth_text(rule.bandwidth), "latency": duration_text(rule.latency)}
    return entry | ({"shared": True} if rule.shared else {})


def _rule_entry(rule: LinkRule, cluster: Cluster) -> dict[str, Any]:
    if rule.sources is None and rule.within:  # a document has to name the nodes
        return {"within": sorted(node.name for node in cluster.nodes)} | _speed_entry(rule)
    sources, targets = sorted(rule.sources or ()), sorted(rule.targets or ())
    if rule.within:
        ends: dict[str, Any] = {"within": sources}
    elif rule.both_ways:
        ends = {"between": [sources, targets]}
    else:
        ends = {"from": sources, "to": targets}
    return ends | _speed_entry(rule)
