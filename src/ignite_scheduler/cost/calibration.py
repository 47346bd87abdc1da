"""What finished runs teach about predictions: constants to charge, and how far predictions are off.

A :class:`Calibration` is data, read from a file that the caller names; nothing is learnt silently. :func:`calibrated`
charges it to the documents themselves, once, before planning: every charge is independent of the plan, so planner,
exhaustive search, cost model and simulator see the same numbers, and a plan still equals what the cost model says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ignite_scheduler.model import Cluster, Device, Profile

ANY_KIND: Final = "*"
"""Key of the constants for kinds of device that have none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Values below which 10 %, 50 % and 90 % of a quantity lie."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCalibration:
    """Constants of one kind of device.

    ``rate``: factor on what a profile says of actions: layers and overhead. ``launch``: further seconds of every
    action, on the reference kind (a device of speed v takes launch ÷ v); below 0 where profiles say too much, but
    it never takes more away than the profile's overhead. ``contention``: share by which actions grow with each
    further stage on the same host; told, not charged, since it depends on the plan: the rate is that of the number
    of stages that the observed runs had. ``achievable_flops`` and ``achievable_bandwidth``: fractions of the
    device's peak figures that layers reach, in (0, 1]; None = not known. ``num_stages``: how many observed stages
    the constants rest on; ``spread``: interquartile range of measured ÷ calibrated seconds of their actions.
    """

    rate: float = 1.0
    launch: float = 0.0
    contention: float = 0.0
    achievable_flops: float | None = None
    achievable_bandwidth: float | None = None
    num_stages: int = 0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTime:
    """Seconds of a checkpoint of n bytes: ``base + n / bandwidth``."""

    base: float
    bandwidth: float

    def seconds(self, num_bytes: float) -> float:
        """Seconds to save ``num_bytes``."""
        return self.base + num_bytes / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything that is charged on top of a profile and a cluster.

    Attributes
    ----------
    kinds
        Kind of device → its constants; :data:`ANY_KIND` stands for kinds that are not named.
    message
        Seconds added to every transfer between two devices.
    overlap
        Measured share of transfer time that is hidden behind compute, in [0, 1]; None = not measured. Told, not
        charged: the timeline says which transfers lie on the critical path.
    update
        Factor on the seconds of optimizer updates.
    step
        Seconds that every stage takes at the end of each step beside its update, on the reference kind.
    startup
        Seconds from the command to the first step; None = not measured.
    checkpoint
        None = not measured.
    residual
        Measured ÷ predicted step time, each run predicted without what was learnt from its own model.
    num_runs
        Runs that it was fitted on.
    provenance
        Where the figures come from.
    """

    kinds: Mapping[str, KindCalibration] = field(default_factory=dict)
    message: float = 0.0
    overlap: float | None = None
    update: float = 1.0
    step: float = 0.0
    startup: Quantiles | None = None
    checkpoint: CheckpointTime | None = None
    residual: Quantiles = Quantiles(low=1.0, middle=1.0, high=1.0)
    num_runs: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def of(self, kind: str) -> KindCalibration:
        """The constants of a kind of device."""
        return self.kinds.get(kind) or self.kinds.get(ANY_KIND) or KindCalibration()


def calibrated(profile: Profile, cluster: Cluster, calibration: Calibration) -> tuple[Profile, Cluster]:
    """Profile and cluster with everything charged that does not depend on the plan.

    The cluster is for planning and foretelling only: an engine that plays devices and links must be given the one that
    was written down.

    Notes
    -----
    Devices get rate and launches, devices timed by a roofline the achievable shares of their peaks, links the seconds
    of a message, layers the factor on updates.
    """
    layers = tuple(
        replace(layer, update={name: seconds * calibration.update for name, seconds in layer.update.items()})
        for layer in profile.layers
    )
    nodes = tuple(
        replace(node, devices=tuple(_charged(device, profile, calibration) for device in node.devices))
        for node in cluster.nodes
    )
    links = tuple(replace(rule, latency=rule.latency + calibration.message) for rule in cluster.links)
    return replace(profile, layers=layers), replace(cluster, nodes=nodes, links=links)


def _charged(device: Device, profile: Profile, calibration: Calibration) -> Device:
    kind = calibration.of(device.kind)
    return replace(
        device,
        rate=device.rate * kind.rate,
        action_launch=max(device.action_launch + kind.launch, -profile.action_overhead * device.rate * kind.rate),
        step_launch=device.step_launch + calibration.step,
        achievable_flops=kind.achievable_flops or device.achievable_flops,
        achievable_bandwidth=kind.achievable_bandwidth or device.achievable_bandwidth,
    )
