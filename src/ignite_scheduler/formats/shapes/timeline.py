"""Shape of ``ignite/timeline/v1``, and of a line of ``metrics.jsonl``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.fields import Count, CountFromOne, NotNegative, Number, Shape, Text


class IntervalShape(Shape):
    """One action on one row. A start may lie below 0: the rows of a measured step start at different instants."""

    action: Text
    row: Count
    start_s: Number
    end_s: Number


class TransferShape(Shape):
    """One message from a stage to another: F carries activations, B gradients."""

    source: Count
    target: Count
    kind: Literal["F", "B"]
    microbatch: Count
    start_s: Number
    end_s: Number


class FinishShape(Shape):
    """All-reduce and optimizer update of a row."""

    row: Count
    start_s: Number
    end_s: Number


class StepShape(Shape):
    """One step."""

    step: Count
    step_s: NotNegative
    intervals: list[IntervalShape]
    transfers: list[TransferShape] = Field(default_factory=list)
    finishes: list[FinishShape] = Field(default_factory=list)


class RowDeviceShape(Shape):
    """The device of a row; ``description`` says what plays it, where that is not the device itself."""

    id: Text
    description: str | None = None


class TimelineShape(Shape):
    """Steps in time, planned or measured."""

    schema_: Literal["ignite/timeline/v1"] = Field(alias="schema")
    measured: bool
    job: Text | None = None
    schedule: list[Text] = Field(default_factory=list)
    devices: list[RowDeviceShape] = Field(default_factory=list)
    links_emulated: bool = False
    steps: list[StepShape]


class MetricsShape(Shape):
    """A line of ``metrics.jsonl``: one training step. A figure that is not finite is null."""

    step: CountFromOne
    loss: Number | None = None
    grad_norm: Number | None = None
    held_loss: Number | None = None
    step_s: NotNegative
    samples_per_s: NotNegative | None = None
