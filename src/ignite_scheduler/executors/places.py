"""What of a cluster is really in this machine, what it plays, and what it cannot play."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster, Device


def check_playable(cluster: Cluster) -> None:
    """Refuse a cluster with a device that a core of this machine cannot play.

    Raises
    ------
    InputError
        A device has a speed above 1; the message says how to write the cluster instead.
    """
    fast = [f"{device.id} ({device.speed:g})" for device in cluster.devices if (device.speed or 0) > 1]
    if fast:
        raise InputError(
            f"expected speeds of at most 1, found {', '.join(fast)}: a device is played by one core of this machine, "
            "which can only be slowed down; divide all speeds by the largest, or run on the real devices"
        )


def cuda_places(cluster: Cluster) -> dict[str, str]:
    """Device id → ``cuda:N`` for the devices of the cluster that are CUDA devices of this machine.

    They are known by their UUID, which ``ignite devices discover`` writes as their id. PyTorch is loaded only if the
    cluster has a device without a speed.
    """
    wanted = {device.id.rpartition("/")[2]: device.id for device in cluster.devices if device.speed is None}
    if not wanted or find_spec("torch") is None:
        return {}
    import torch

    if not torch.cuda.is_available():
        return {}
    found = {}
    for index in range(torch.cuda.device_count()):
        uuid = f"GPU-{getattr(torch.cuda.get_device_properties(index), 'uuid', index)}"
        if uuid in wanted:
            found[wanted[uuid]] = f"cuda:{index}"
    return found


def on_real_devices(spec: GangSpec, places: Mapping[str, str]) -> GangSpec:
    """The specification with its real devices at their places; nothing is paced on them, nor on links between them."""
    if not any(device.id in places for device in spec.devices):
        return spec
    devices = tuple(
        RankDevice(id=device.id, place=places[device.id]) if device.id in places else device for device in spec.devices
    )
    real = [device.id in places for device in devices]
    links = {pair: link for pair, link in spec.links.items() if not (real[pair[0]] and real[pair[1]])}
    return replace(spec, devices=devices, links=links, backend="nccl" if all(real) else "gloo")


def notices(cluster: Cluster, places: Mapping[str, str]) -> tuple[str, ...]:
    """What a user should know of a run of this cluster on this machine: what is played, and where that is shaky."""
    played = [device for device in cluster.devices if device.speed is not None]
    absent = [device for device in cluster.devices if device.speed is None and device.id not in places]
    said = []
    if played:
        shown = ", ".join(f"{device.id} as {device.speed:g} of a core" for device in played)
        said.append(f"emulated on this machine: {shown}; links are paced by the cluster file")
    if absent:
        said.append(
            f"not in this machine: {', '.join(device.id for device in absent)}; one core each stands in for them at "
            "its own pace, so that measured times are not theirs"
        )
    cores = os.cpu_count() or 1
    wanted = sum(map(_cores, (*played, *absent)))
    if wanted > cores * (1 + 1e-9):
        said.append(
            f"the emulated devices add up to {wanted:g} cores, this machine has {cores}: "
            "when all of them work at once, steps take longer than planned"
        )
    return tuple(said)


def _cores(device: Device) -> float:
    return 1.0 if device.speed is None else device.speed
