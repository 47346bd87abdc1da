"""Clusters that do not exist yet: some devices more, a node or a device less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Cluster, Device, Node

_MORE: Final = re.compile(r"\+(\d+)x([^@]+)(?:@(.+))?")
_LESS: Final = re.compile(r"-(node|device):(.+)")
NEW_NODE: Final = "what-if"
"""Name of the node that holds added devices of a kind that no node has yet."""


def changed(cluster: Cluster, change: str) -> Cluster:
    """The cluster after one change.

    Parameters
    ----------
    change
        ``+2xA100-40GB`` (beside those there are of the kind, else in a node of their own), ``+1xT4@lab2`` (in that
        node), ``-node:lab2`` or ``-device:lab2/box``.

    Raises
    ------
    InputError
        The change is not written in one of these ways, or the kind is unknown.
    NotFoundError
        There is no such node or device.

    Notes
    -----
    A device of a kind that the cluster has is a copy of the first of that kind; one of a new kind is the catalogue's,
    without a price. Links follow from the cluster's rules: a rule that names single devices does not cover new ones.
    """
    if more := _MORE.fullmatch(change):
        count, kind, node = more.groups()
        return _with(cluster, int(count), kind, node)
    if less := _LESS.fullmatch(change):
        noun, name = less.groups()
        return _without_node(cluster, name) if noun == "node" else _without_device(cluster, name)
    ways = "'+1xA100-40GB', '+1xA100-40GB@lab1', '-node:lab2' or '-device:lab2/box'"
    raise InputError(f"expected a change such as {ways}, found {change!r}")


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
