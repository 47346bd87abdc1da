"""Devices that compute slower than predicted, told from computing time alone: waiting for others never counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.observation import Observation, StageObservation

LEAST_ACTIONS: Final = 20
"""Measured actions below which nothing is said of a device."""

LEAST_RANGE: Final = 0.1
"""A device is not called slow for less than this share, however little calibrated runs were scattered: the same plan
measured twice on a busy machine differs by some percent, and measuring again costs more than so little loses."""

UNCALIBRATED_RANGE: Final = 0.25
"""That share where no run of the kind was seen: layers that were measured alone take up to a fifth longer within a
pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How long a device computes against what was predicted.

    ``ratio``: measured ÷ predicted seconds of computing. ``limit``: the end of the range; above it the device has
    drifted. ``num_actions``: actions that this rests on.
    """

    device: str
    kind: str
    ratio: float
    limit: float
    num_actions: int

    @property
    def is_slow(self) -> bool:
        """Whether the device is slower than its range allows."""
        return self.num_actions >= LEAST_ACTIONS and self.ratio > self.limit

    def __str__(self) -> str:
        return (
            f"{self.device} computes {100 * (self.ratio - 1):.0f} % longer than profiled (range: up to "
            f"{100 * (self.limit - 1):.0f} %, {self.num_actions} actions): unless other work slows its machine, "
            "measure it again (ignite profile, ignite calibrate), or leave it out (resources.exclude)"
        )


def limit(kind: str, calibration: Calibration | None) -> float:
    """Measured ÷ predicted seconds up to which a device of that kind is within the range.

    1 + twice the interquartile range of calibrated runs: with quartiles half of it away from 1 that is Tukey's upper
    fence. At least :data:`LEAST_RANGE`; without calibration of the kind :data:`UNCALIBRATED_RANGE`.

    References
    ----------
    J. W. Tukey, "Exploratory Data Analysis", 1977, section 2D: fences at 1.5 interquartile ranges beyond the quartiles.
    """
    if calibration is None or not calibration.of(kind).num_stages:
        return 1.0 + UNCALIBRATED_RANGE
    return 1.0 + max(LEAST_RANGE, 2.0 * calibration.of(kind).spread)


def drifts(observations: Iterable[Observation], calibration: Calibration | None) -> tuple[Drift, ...]:
    """How each device did in the runs, by device; those of which nothing was measured are left out.

    The ratio is the median over its stages, each as the sum of a forward and a backward. Predicted is what the
    calibration makes of the profile; without one, the profile alone.
    """
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for observation in observations:
        for stage in (*observation.stages, *observation.others):
            forward, backward = stage.measured_forward, stage.measured_backward
            predicted = predicted_seconds(stage, calibration)
            if forward is None or backward is None or predicted <= 0:
                continue
            key = stage.device, stage.kind
            ratios[key].append((forward.median + backward.median) / predicted)
            counts[key] += forward.count + backward.count
    return tuple(
        Drift(
            device=device,
            kind=kind,
            ratio=median(found),
            limit=limit(kind, calibration),
            num_actions=counts[device, kind],
        )
        for (device, kind), found in sorted(ratios.items())
    )


def predicted_seconds(stage: StageObservation, calibration: Calibration | None) -> float:
    """Predicted seconds of a forward and a backward of one full microbatch of the stage."""
    planned = stage.forward[0] + stage.backward[0]
    if calibration is None:
        return planned
    kind = calibration.of(stage.kind)
    return planned * kind.rate + 2.0 * kind.launch / (stage.speed or 1.0)


def live_drifts(
    devices: Sequence[tuple[str, str]],
    predicted: Sequence[float],
    measured: Sequence[float],
    *,
    num_actions: Sequence[int],
    calibration: Calibration | None,
) -> tuple[Drift, ...]:
    """How each device of a running gang does, from its seconds of computing in a step.

    Parameters
    ----------
    devices
        (id, kind) of each.
    predicted, measured
        Seconds of computing in a step of each, with the calibration charged and as it was.
    num_actions
        Actions of each that were measured.
    """
    return tuple(
        Drift(device=device, kind=kind, ratio=real / wanted, limit=limit(kind, calibration), num_actions=count)
        for (device, kind), wanted, real, count in zip(devices, predicted, measured, num_actions, strict=True)
        if wanted > 0
    )
