"""All-reduces at the end of a step: weights that several devices hold are summed over all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ignite_scheduler.cost.communication import ring_seconds, slowest_link
from ignite_scheduler.cost.memory import held_parameters
from ignite_scheduler.model import Cluster, Device, Profile
from ignite_scheduler.pipeline import Reduction


def reductions(
    profile: Profile,
    cluster: Cluster,
    holders: Sequence[tuple[int, ...]],
    devices: Sequence[Sequence[Device]],
    scale: float,
) -> tuple[Reduction, ...]:
    """Ring all-reduces of a choice, in their order on each stage.

    First layers by the stages that hold them: those of one stage over its replicas, those that stages of several
    virtual workers hold over the devices of all of these, layers with the same holders in one ring. Then
    each tied weight whose layers have different holders, over the devices of all of them.

    Parameters
    ----------
    holders
        Of each layer, the stages that hold it.
    devices
        Of each stage.
    scale
        Gradient bytes for each of the profile's parameter bytes.

    Notes
    -----
    Over its slowest link and largest latency among all ordered pairs of its devices: the planner does not choose the
    order of a ring.
    """
    alike: dict[tuple[int, ...], list[int]] = {}
    for layer, stages in enumerate(holders):
        alike.setdefault(stages, []).append(layer)
    found = [
        Reduction(stages=stages, seconds=_ring(cluster, stages, devices, held_parameters(profile, layers) * scale))
        for stages, layers in alike.items()
        if sum(len(devices[stage]) for stage in stages) > 1
    ]
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    for group in profile.tied:
        indices = [position[name] for name in group]
        if len({holders[index] for index in indices}) > 1:
            stages = tuple(sorted({stage for index in indices for stage in holders[index]}))
            num_bytes = min(profile.layers[index].parameter_bytes for index in indices) * scale
            found.append(Reduction(stages=stages, seconds=_ring(cluster, stages, devices, num_bytes)))
    return tuple(found)


def _ring(cluster: Cluster, stages: Sequence[int], devices: Sequence[Sequence[Device]], num_bytes: float) -> float:
    members = [device for stage in stages for device in devices[stage]]
    return ring_seconds(num_bytes, *slowest_link(cluster, members), len(members))
