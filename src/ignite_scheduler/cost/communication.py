"""Bytes that cross a cut, and seconds that collectives take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MODEL_INPUT, Cluster, Device, Link, Profile


def tensors_read(profile: Profile, stage_of: Mapping[int, int]) -> dict[tuple[int, int], float]:
    """Bytes of one sample of each tensor that a stage reads from another, by (layer that makes it, reading stage).

    Where several layers of a stage read parts of one tensor, the largest part is what is sent.

    Parameters
    ----------
    stage_of
        The stage of each layer, by position in the profile.

    Raises
    ------
    InputError
        A layer with a stage reads one that has none.
    """
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    found: dict[tuple[int, int], float] = {}
    for index in sorted(stage_of):
        for edge in profile.layers[index].inputs:
            if edge.source == MODEL_INPUT:
                continue
            producer = position[edge.source]
            if producer not in stage_of:
                raise InputError(
                    f"layer {profile.layers[index].name!r} reads {edge.source!r}: expected that on a stage which feeds "
                    f"stage {stage_of[index]}, be it through others; found it on none of them"
                )
            num_bytes = profile.layers[producer].output_bytes if edge.bytes is None else edge.bytes
            if stage_of[producer] != stage_of[index]:
                key = producer, stage_of[index]
                found[key] = max(found.get(key, 0.0), num_bytes)
    return found


def hop_bytes(
    read: Mapping[tuple[int, int], float], stage_of: Mapping[int, int], position: Mapping[int, int]
) -> tuple[float, ...]:
    """Bytes per sample over each hop of a chain: a tensor passes every hop between its maker and its reader.

    Parameters
    ----------
    read
        What :func:`tensors_read` finds.
    stage_of
        The stage of each layer.
    position
        Each stage's place in the chain, from 0.
    """
    hops = [0.0] * (len(position) - 1)
    for (producer, stage), num_bytes in read.items():
        for hop in range(position[stage_of[producer]], position[stage]):
            hops[hop] += num_bytes
    return tuple(hops)


def cut_bytes(profile: Profile, split: tuple[int, ...]) -> tuple[float, ...]:
    """Bytes per sample over each of the S−1 cuts, one way; the gradient going back has the same.

    The sum over the tensors made before the cut and read after it. A skip connection counts at every cut that it
    spans; a tensor that several later stages read counts once for each of them.

    Parameters
    ----------
    split
        Numbers of layers per stage, in the profile's order, summing to the number of layers.
    """
    stages = [stage for stage, count in enumerate(split) for _ in range(count)]
    stage_of = dict(enumerate(stages))
    return hop_bytes(tensors_read(profile, stage_of), stage_of, {stage: stage for stage in range(len(split))})


def ring_seconds(num_bytes: float, bandwidth: float, latency: float, holders: int) -> float:
    """Seconds of a ring all-reduce between ``holders`` devices over their slowest link.

    2(r−1)/r · bytes ÷ bandwidth + 2(r−1) · latency.

    References: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
    """
    rounds = 2 * (holders - 1)
    return rounds / holders * num_bytes / bandwidth + rounds * latency


def slowest_link(cluster: Cluster, devices: Sequence[Device]) -> tuple[float, float]:
    """The least bandwidth and the largest latency over all ordered pairs of at least two devices.

    Raises
    ------
    InputError
        Two of them have no link.

    Notes
    -----
    Devices of one node that no rule names have the same links, so one pair of each two nodes is looked at:
    O(nodes² · rules), not O(devices²).
    """
    named = {name for rule in cluster.links for names in (rule.sources, rule.targets) if names for name in names}
    alike: dict[tuple[str, str | None], list[Device]] = {}
    for device in devices:
        alike.setdefault((device.node, device.id if device.id in named else None), []).append(device)
    groups = list(alike.values())
    links = [
        required_link(cluster, sources[0], targets[-1])
        for sources in groups
        for targets in groups
        if sources is not targets or len(sources) > 1
    ]
    return min(link.bandwidth for link in links), max(link.latency for link in links)


def required_link(cluster: Cluster, source: Device, target: Device) -> Link:
    """The link from ``source`` to ``target``; InputError where they cannot talk."""
    link = cluster.link(source, target)
    if link is None:
        raise InputError(f"no link from {source.id} to {target.id}: give the cluster's links a default or this pair")
    return link
