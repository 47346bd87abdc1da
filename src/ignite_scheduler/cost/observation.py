"""What one finished run shows: planned and measured seconds, side by side, stage by stage and edge by edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ignite_scheduler.cost.calibration import Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Repeated measurements of one thing: the median, the interquartile range ÷ median, and how many there were."""

    median: float
    spread: float = 0.0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageObservation:
    """One stage on its device; where it has several, on that which takes longest, or on another one.

    ``forward`` and ``backward``: planned seconds of each microbatch, before calibration, launch overhead of the profile
    included; ``update``: planned seconds of the optimizer update. The measured ones are lengths of intervals as the
    device played them, of full microbatches. ``speed`` is that of the device in the cluster; None = a device at its own
    pace. ``num_sharing``: devices on the same host, this one included. Memory in bytes, None where unknown.
    """

    device: str
    kind: str
    speed: float | None
    num_sharing: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    update: float
    measured_forward: Sample | None
    measured_backward: Sample | None
    measured_update: Sample | None
    planned_memory: float | None = None
    peak_memory: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeObservation:
    """Messages from stage ``source`` to stage ``target``: activations (``F``) or gradients (``B``).

    ``planned``: seconds of each microbatch's message before calibration. ``wire`` names the serial resource: edges with
    the same text share one. ``bytes``: of a full microbatch's message. ``measured``: seconds from ready to arrived,
    less the wait for the wire.
    """

    source: int
    target: int
    kind: Literal["F", "B"]
    wire: str
    bytes: float
    planned: tuple[float, ...]
    measured: Sample | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionObservation:
    """An all-reduce between the replicas of one stage, or of tied weights between ``stages``; planned seconds."""

    stages: tuple[int, ...]
    planned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """What was foretold of the run with the calibration of its time, and what came of it.

    ``calibration`` names that calibration, None = there was none. ``step`` are seconds of a step. ``finish_low`` and
    ``finish_high`` are the earliest and latest finish promised when the job was admitted, ``finished`` the real one,
    all in seconds after its submission; None where nothing was promised.
    """

    calibration: str | None
    step: Quantiles
    finish_low: float | None
    finish_high: float | None
    finished: float

    @property
    def kept(self) -> bool | None:
        """Whether it finished within the promised range; None where no range was promised."""
        if self.finish_low is None or self.finish_high is None or self.finish_low == self.finish_high:
            return None
        return self.finish_low <= self.finished <= self.finish_high


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finished run of one job under one plan.

    Attributes
    ----------
    model
        Text that is the same for runs of one model: the profile's structure, or its name.
    schedule, microbatches
        Name of the schedule, samples of each microbatch.
    stages, edges, reductions
        Everything that a step consists of, enough to time it again with other constants.
    others
        Of stages with several devices, those that are not among ``stages``.
    planned_step
        Seconds of a step before calibration.
    step
        Measured seconds of a step after warm-up.
    startup
        Seconds from the command to the first step, and what the first steps took longer than later ones; None =
        unknown.
    checkpoints
        (bytes, seconds) of each save.
    beside_others
        Whether other gangs ran on the same host meanwhile.
    promised
        What was foretold of it; None = not known. Nothing is learnt from it.
    provenance
        Where and when.
    """

    job: str
    model: str
    schedule: str
    microbatches: tuple[int, ...]
    stages: tuple[StageObservation, ...]
    edges: tuple[EdgeObservation, ...]
    reductions: tuple[ReductionObservation, ...] = ()
    others: tuple[StageObservation, ...] = ()
    planned_step: float
    step: Sample
    startup: float | None = None
    checkpoints: tuple[tuple[float, float], ...] = ()
    beside_others: bool = False
    promised: Promised | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
