"""Shapes of ``ignite/calibration/v1`` and ``ignite/observation/v1``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.fields import (
    Checked,
    Count,
    CountFromOne,
    KindName,
    NotNegative,
    Number,
    Positive,
    Shape,
    Share,
    Text,
    number,
    word,
)
from ignite_scheduler.pipeline import SCHEDULES

ShareFromZero = Annotated[
    float, Checked(partial(number, least=0, most=1), {"type": "number", "minimum": 0, "maximum": 1})
]
Seconds = Annotated[float, Checked(partial(number, least=0, divides=True), {"type": "number", "minimum": 0})]
"""Seconds that others are divided by: 0, or not as good as 0."""


class QuantilesShape(Shape):
    """Ratios below which 10 %, 50 % and 90 % of the cases lie."""

    low: Positive
    middle: Positive
    high: Positive


class SecondsQuantilesShape(Shape):
    """Seconds below which 10 %, 50 % and 90 % of the cases lie."""

    low_s: NotNegative
    middle_s: NotNegative
    high_s: NotNegative


class KindCalibrationShape(Shape):
    """Constants of one kind of device; what is left out is that of an uncalibrated one."""

    rate: Positive = 1.0
    launch_s: Number = 0.0
    contention: NotNegative = 0.0
    achievable_flops: Share | None = None
    achievable_bandwidth: Share | None = None
    num_stages: Count = 0
    spread: NotNegative = 0.0


class CheckpointTimeShape(Shape):
    """Seconds of a checkpoint: ``base_s`` and its bytes over ``bytes_per_s`` (null = at once)."""

    base_s: NotNegative
    bytes_per_s: Positive | None


class CalibrationShape(Shape):
    """What finished runs teach about predictions. The kind ``*`` stands for all that are not named."""

    schema_: Literal["ignite/calibration/v1"] = Field(alias="schema")
    kinds: dict[KindName, KindCalibrationShape] = Field(default_factory=dict)
    message_s: NotNegative = 0.0
    overlap: ShareFromZero | None = None
    update: NotNegative = 1.0
    step_s: NotNegative = 0.0
    startup: SecondsQuantilesShape | None = None
    checkpoint: CheckpointTimeShape | None = None
    residual: QuantilesShape = QuantilesShape(low=1.0, middle=1.0, high=1.0)
    num_runs: Count = 0
    provenance: dict[str, Any] = Field(default_factory=dict)


class SampleShape(Shape):
    """Repeated measurements: median in seconds, interquartile range ÷ median, number."""

    median_s: Seconds
    spread: NotNegative = 0.0
    count: CountFromOne = 1


class StepSampleShape(SampleShape):
    """Whole steps: each took some time."""

    median_s: Positive


class StageObservationShape(Shape):
    """One stage: planned seconds of each microbatch before calibration, and what was measured."""

    device: Text
    kind: KindName
    speed: Positive | None = None
    num_sharing: CountFromOne
    forward_s: list[Seconds]
    backward_s: list[Seconds]
    update_s: Seconds
    measured_forward: SampleShape | None = None
    measured_backward: SampleShape | None = None
    measured_update: SampleShape | None = None
    planned_memory_bytes: NotNegative | None = None
    peak_memory_bytes: NotNegative | None = None


class EdgeObservationShape(Shape):
    """Messages of one kind between two stages: planned seconds of each microbatch, and what was measured."""

    source: Count
    target: Count
    kind: Literal["F", "B"]
    wire: Text
    bytes: NotNegative
    planned_s: list[NotNegative]
    measured: SampleShape | None = None


class ReductionObservationShape(Shape):
    """An all-reduce of the gradients of replicas, of one stage, or of tied weights, of several."""

    stages: Annotated[list[Count], Field(min_length=1)]
    planned_s: NotNegative


class CheckpointObservationShape(Shape):
    """One save."""

    bytes: NotNegative
    save_s: NotNegative


class PromisedShape(Shape):
    """What was foretold, and what came of it, in seconds after the submission."""

    calibration: Text | None = None
    step: SecondsQuantilesShape
    finish_low_s: NotNegative | None = None
    finish_high_s: NotNegative | None = None
    finished_s: NotNegative
    kept: bool | None = None


class ObservationShape(Shape):
    """What one finished run of one job shows."""

    schema_: Literal["ignite/observation/v1"] = Field(alias="schema")
    job: Text
    model: Text
    schedule: Annotated[str, word(*SCHEDULES, noun="schedule")]
    microbatches: Annotated[list[CountFromOne], Field(min_length=1)]
    stages: Annotated[list[StageObservationShape], Field(min_length=1)]
    edges: list[EdgeObservationShape] = Field(default_factory=list)
    reductions: list[ReductionObservationShape] = Field(default_factory=list)
    others: list[StageObservationShape] = Field(default_factory=list)
    planned_step_s: Positive
    step: StepSampleShape
    startup_s: NotNegative | None = None
    checkpoints: list[CheckpointObservationShape] = Field(default_factory=list)
    beside_others: bool = False
    promised: PromisedShape | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)
