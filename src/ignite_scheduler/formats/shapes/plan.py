"""Shapes of ``ignite/plan/v1``: a plan, or why there is none."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.fields import Count, CountFromOne, NotNegative, Number, Shape, Text


class ShareShape(Shape):
    """One device of a stage. ``memory_limit_bytes`` is null where nothing limits it."""

    id: Text
    samples: Count
    memory_bytes: NotNegative
    memory_limit_bytes: NotNegative | None


class StageShape(Shape):
    """Layers on one device or replica group."""

    index: Count
    layers: Annotated[list[Text], Field(min_length=1)]
    devices: Annotated[list[ShareShape], Field(min_length=1)]
    forward_s: NotNegative
    backward_s: NotNegative
    in_flight: Count
    memory_bytes: NotNegative | None = None
    memory_limit_bytes: NotNegative | None = None
    recompute: bool = False
    offload: bool = False
    optimizer_shards: CountFromOne = 1
    update_s: NotNegative = 0.0
    allreduce_s: NotNegative = 0.0
    inputs: list[Count] | None = None
    recompute_segments: list[Annotated[list[Text], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list,
        description="first and last layer of each segment; none: the whole stage where it recomputes",
    )


class BottleneckShape(Shape):
    """The resource with the largest busy time per microbatch."""

    kind: Literal["stage", "link"]
    index: Count
    busy_s: NotNegative


class PredictedShape(Shape):
    """What the plan is expected to do; null = unknown (``samples_per_s``: unlimited)."""

    step_s: NotNegative
    step_low_s: NotNegative
    step_high_s: NotNegative
    samples_per_s: NotNegative | None
    bubble_fraction: Number
    bottleneck: BottleneckShape
    duration_s: NotNegative | None = None
    duration_low_s: NotNegative | None = None
    duration_high_s: NotNegative | None = None
    cost: NotNegative | None = None
    energy_j: NotNegative | None = None
    transfer_bytes: NotNegative


class BoundShape(Shape):
    """A lower bound on the step time; ``gap`` is null where the bound is 0."""

    step_s: NotNegative
    gap: Number | None
    method: str
    optimal: bool


class UnusedShape(Shape):
    """A device that the plan leaves out."""

    device: Text
    reason: str


class AlternativeShape(Shape):
    """Another plan in short."""

    devices: list[Text]
    num_layers: list[CountFromOne]
    schedule: Text
    num_microbatches: CountFromOne
    step_s: NotNegative
    cost: NotNegative | None = None


class BindingShape(Shape):
    """One thing that keeps the step from being shorter, and for which part of the step it accounts."""

    kind: Literal["stage", "link", "allreduce", "memory", "batch"]
    index: Count | None = None
    device: Text | None = None
    share_of_step: Number | None = None
    text: str


class WhyShape(Shape):
    """Why the plan is not faster, the most binding first."""

    binds: list[BindingShape]


class PlanShape(Shape):
    """A plan."""

    schema_: Literal["ignite/plan/v1"] = Field(alias="schema")
    feasible: Literal[True]
    job: Text
    schedule: Text
    precision: Text
    microbatches: Annotated[list[CountFromOne], Field(min_length=1)]
    stages: Annotated[list[StageShape], Field(min_length=1)]
    predicted: PredictedShape
    bound: BoundShape
    unused: list[UnusedShape] = Field(default_factory=list)
    alternatives: list[AlternativeShape] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    resolved: dict[str, Any] = Field(default_factory=dict)
    why: WhyShape | None = None
    what_if: dict[str, Any] | None = Field(default=None, description="the same question on changed clusters")
    differences: dict[str, Any] | None = Field(default=None, description="of each what_if from this answer")


class ReasonShape(Shape):
    """Why there is no plan: a word for machines and a sentence."""

    code: Text
    text: str


class InfeasibleShape(Shape):
    """Why there is no plan, and what would cure it."""

    schema_: Literal["ignite/plan/v1"] = Field(alias="schema")
    feasible: Literal[False]
    job: Text | None = None
    reason: ReasonShape
    shortfall_bytes: NotNegative | None
    earliest_finish_s: NotNegative | None
    cures: list[str]
    what_if: dict[str, Any] | None = Field(default=None, description="the same question on changed clusters")
    differences: dict[str, Any] | None = Field(default=None, description="of each what_if from this answer")
