"""Clusters that do not exist yet, and how a job would run there.

A scenario is one change or several, parted by commas and made in order:

==================================  ================================================================================
``+2xA100-40GB``                    so many devices more, beside those of the kind, else in a node of their own
``+1xT4@lab2``                      … in that node
``-node:lab2``                      a node less
``-device:lab2/box``                a device less
``links:lab1-lab2=40Gbit/s``        another link, both ways, between two nodes or devices
``links:within:lab1=25GB/s``        … between the devices of one node
``links:default=1Gbit/s,50us``      … for the pairs that no rule of the cluster names; a latency may follow
``memory:T4=24GB``                  other usable memory of every device of the kind, or of one device
``price:lab2/box=1.5/h``            another price, likewise
==================================  ================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Cluster, Device, Infeasible, Job, LinkRule, Node

if TYPE_CHECKING:
    from ignite_scheduler.api.planned import Planned

_NEXT: Final = re.compile(r",(?=[+-]|[a-z]+:)")
"""A comma that another change follows; that before a latency is none."""
_MORE: Final = re.compile(r"\+(\d+)x([^@]+)(?:@(.+))?")
_LESS: Final = re.compile(r"-(node|device):(.+)")
_LINKS: Final = re.compile(r"links:([^=]+)=([^,]+)(?:,([^,]+))?")
_FIGURE: Final = re.compile(r"(memory|price):([^=]+)=(.+)")
WAYS: Final = (
    "'+1xA100-40GB', '+1xA100-40GB@lab1', '-node:lab2', '-device:lab2/box', 'links:lab1-lab2=40Gbit/s', "
    "'links:within:lab1=25GB/s', 'links:default=1Gbit/s,50us', 'memory:T4=24GB' or 'price:T4=0.5/h'"
)
NEW_NODE: Final = "what-if"
"""Name of the node that holds added devices of a kind that no node has yet."""


def changed(cluster: Cluster, scenario: str) -> Cluster:
    """The cluster after the changes of a scenario, in order; see the head of this module.

    Raises
    ------
    InputError
        A change is not written in one of these ways, a kind or a figure is unknown, or two readings are possible.
    NotFoundError
        There is no such node or device.

    Notes
    -----
    A device of a kind that the cluster has is a copy of the first of that kind; one of a new kind is the catalogue's,
    without a price. Links follow from the cluster's rules: a rule that names single devices does not cover new ones.
    A changed link without a latency keeps the largest that the pairs have; wires that they share stay shared.
    """
    for change in _NEXT.split(scenario):
        cluster = _changed(cluster, change)
    return cluster


def answers(
    ask: Callable[[Job, Cluster], Planned], now: Planned, clusters: Mapping[str, Cluster]
) -> dict[str, Planned]:
    """What the planner says of each scenario; one in which the question makes no sense is a refusal, not an error.

    Parameters
    ----------
    ask
        Plans a job on a cluster.
    now
        The answer on the cluster as it is.
    clusters
        The changed cluster of each scenario.

    Notes
    -----
    ``resources.exclude`` may name what a scenario takes away: it is not there to be used.
    """
    found = {}
    for scenario, cluster in clusters.items():
        try:
            found[scenario] = ask(_without_missing(now.job, cluster), cluster)
        except (InputError, NotFoundError) as error:
            answer = Infeasible(code="input", text=str(error), cures=("another scenario",))
            found[scenario] = replace(now, answer=answer, cluster=cluster)
    return found


def _without_missing(job: Job, cluster: Cluster) -> Job:
    there = {node.name for node in cluster.nodes} | {device.id for device in cluster.devices}
    exclude = tuple(name for name in job.resources.exclude if name in there)
    return job if exclude == job.resources.exclude else replace(job, resources=replace(job.resources, exclude=exclude))


def _changed(cluster: Cluster, change: str) -> Cluster:
    if more := _MORE.fullmatch(change):
        count, kind, node = more.groups()
        return _with(cluster, int(count), kind, node)
    if less := _LESS.fullmatch(change):
        noun, name = less.groups()
        return _without_node(cluster, name) if noun == "node" else _without_device(cluster, name)
    if links := _LINKS.fullmatch(change):
        return _relinked(cluster, *links.groups())
    if figure := _FIGURE.fullmatch(change):
        return _refigured(cluster, *figure.groups())
    raise InputError(f"expected a change such as {WAYS}, found {change!r}")


def _relinked(cluster: Cluster, ends: str, bandwidth: str, latency: str | None) -> Cluster:
    """The cluster with one more rule, which wins over those before it; a default takes the place of the default."""
    from ignite_scheduler.formats.shapes.fields import Bandwidth, Duration

    speed = _quantity(Bandwidth, bandwidth)
    wait = None if latency is None else _quantity(Duration, latency)
    if ends == "default":
        old = cluster.links[0] if cluster.links and _is_default(cluster.links[0]) else None
        kept = old.latency if old else 0.0
        rule = LinkRule(bandwidth=speed, latency=kept if wait is None else wait, shared=old is not None and old.shared)
        return replace(cluster, links=(rule, *(cluster.links[1:] if old else cluster.links)))
    rule = _rule_between(cluster, ends, speed)
    named = (rule.sources or frozenset()) | (rule.targets or frozenset())
    there = [device for device in cluster.devices if not named.isdisjoint((device.id, device.node))]
    pairs = [(a, b) for a in there for b in there if a.id != b.id and rule.covers(a, b)]
    if not pairs:
        raise InputError(f"a link speaks of two devices; in cluster {cluster.name!r} {ends!r} names no pair of them")
    links = [link for link in (cluster.link(a, b) for a, b in pairs) if link is not None]
    if wait is None:
        wait = max((link.latency for link in links), default=0.0)
    shared = any(isinstance(link.wire, tuple) and link.wire[0] == "shared" for link in links)
    return replace(cluster, links=(*cluster.links, replace(rule, latency=wait, shared=shared)))


def _is_default(rule: LinkRule) -> bool:
    return rule.sources is None and rule.targets is None and not rule.within


def _rule_between(cluster: Cluster, ends: str, bandwidth: float) -> LinkRule:
    names = [name for node in cluster.nodes for name in (node.name, *(device.id for device in node.devices))]
    if ends.startswith("within:"):
        node = ends.removeprefix("within:")
        _known(node, [node.name for node in cluster.nodes], "node", cluster)
        both = frozenset({node})
        return LinkRule(bandwidth=bandwidth, latency=0.0, sources=both, targets=both, within=True)
    cuts = [index for index, letter in enumerate(ends) if letter == "-"]
    readings = [(ends[:cut], ends[cut + 1 :]) for cut in cuts]
    known = [(a, b) for a, b in readings if a in names and b in names]
    if len(known) > 1:
        texts = " or ".join(f"{a!r} and {b!r}" for a, b in known)
        raise InputError(f"'links:{ends}' may mean {texts}; name the devices instead")
    if not known:
        missing = next((b for a, b in readings if a in names), None) or ends
        raise NotFoundError(
            f"'links:{ends}' names two nodes or devices of cluster {cluster.name!r}, parted by '-'; {missing!r} is "
            f"none; there are: {', '.join(names)}"
        )
    sources, targets = (frozenset({name}) for name in known[0])
    return LinkRule(bandwidth=bandwidth, latency=0.0, sources=sources, targets=targets)


def _refigured(cluster: Cluster, noun: str, name: str, text: str) -> Cluster:
    """The cluster with another memory or price of one device or of all of a kind."""
    from ignite_scheduler.formats.shapes.fields import Memory, Price

    value = _quantity(Memory if noun == "memory" else Price, text)
    if noun == "memory" and value == 0:
        raise InputError(f"a device without memory holds nothing; leave it out: '-device:{name}', found {text!r}")
    names = {name for device in cluster.devices for name in (device.kind, device.id)}
    _known(name, sorted(names), "kind or device", cluster)

    def refigured(device: Device) -> Device:
        if name not in (device.kind, device.id):
            return device
        return replace(device, memory=value) if noun == "memory" else replace(device, price=value)

    nodes = (replace(node, devices=tuple(refigured(device) for device in node.devices)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


def _quantity(kind: Any, text: str) -> float:
    """A figure with its unit, held to the limits of our documents."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return float(TypeAdapter(kind).validate_python(text))
    except ValidationError as error:
        raise InputError(str(error.errors()[0]["ctx"]["error"])) from None


def _without_node(cluster: Cluster, name: str) -> Cluster:
    _known(name, [node.name for node in cluster.nodes], "node", cluster)
    return replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name != name))


def _without_device(cluster: Cluster, name: str) -> Cluster:
    _known(name, [device.id for device in cluster.devices], "device", cluster)
    nodes = (
        replace(node, devices=tuple(device for device in node.devices if device.id != name)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(node for node in nodes if node.devices))


def _with(cluster: Cluster, count: int, kind: str, node_name: str | None) -> Cluster:
    from ignite_scheduler.formats.cluster import MAX_COUNT

    if not 1 <= count <= MAX_COUNT:
        raise InputError(f"expected to add from 1 to {MAX_COUNT} devices, found +{count}x")
    if node_name is not None:
        _known(node_name, [node.name for node in cluster.nodes], "node", cluster)
    model = next((device for device in cluster.devices if device.kind == kind), None)
    home = node_name or (model.node if model else NEW_NODE)
    if model is None:
        model = _from_catalogue(kind, cluster)
    node = next((node for node in cluster.nodes if node.name == home), Node(name=home, devices=()))
    ids = _free_ids(node, kind, count)
    added = tuple(replace(model, id=device_id, node=home) for device_id in ids)
    grown = replace(node, devices=node.devices + added)
    if node in cluster.nodes:
        return replace(cluster, nodes=tuple(grown if other is node else other for other in cluster.nodes))
    return replace(cluster, nodes=(*cluster.nodes, grown))


def _free_ids(node: Node, kind: str, count: int) -> list[str]:
    taken = {device.id for device in node.devices}
    free: list[str] = []
    index = 0
    while len(free) < count:
        name = f"{node.name}/{kind}-{index}"
        if name not in taken:
            free.append(name)
        index += 1
    return free


def _from_catalogue(kind: str, cluster: Cluster) -> Device:
    from ignite_scheduler.formats.catalogue import catalogue, nearest_kinds
    from ignite_scheduler.formats.cluster import parse_cluster

    if kind not in catalogue():
        known = sorted({*catalogue(), *(device.kind for device in cluster.devices)})
        near = nearest_kinds(kind, known)
        advice = f"perhaps: {', '.join(near)}" if near else "'ignite devices kinds' lists the catalogue's"
        raise InputError(f"no kind {kind!r} in the catalogue or in cluster {cluster.name!r}; {advice}")
    document = {"version": 1, "name": NEW_NODE, "nodes": [{"name": NEW_NODE, "devices": [{"kind": kind}]}]}
    return parse_cluster(document).devices[0]


def _known(name: str, names: Iterable[str], noun: str, cluster: Cluster) -> None:
    found = list(names)
    if name not in found:
        raise NotFoundError(f"no {noun} {name!r} in cluster {cluster.name!r}; there are: {', '.join(found)}")
