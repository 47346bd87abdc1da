"""Shape of ``ignite/comparison/v1``: answers side by side, and in what each differs from the first."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.fields import Count, NotNegative, Number, Shape, Text


class MovedShape(Shape):
    """Layers that other devices hold."""

    layers: Annotated[list[Text], Field(min_length=1)]
    from_: list[Text] = Field(alias="from")
    to: list[Text]


class FullestShape(Shape):
    """The device with the least room left, in proportion; null where no device has a limit."""

    device: Text
    memory_bytes: NotNegative
    memory_limit_bytes: NotNegative


class DifferenceShape(Shape):
    """In what an answer differs from the first: figures are this one's minus the first's, ratios this one ÷ the first.

    Pairs hold the first's value and this one's; null = the same, or one of them is unknown. Where one of the two has
    no plan only ``feasible`` is there.
    """

    feasible: bool
    step_ratio: NotNegative | None = None
    step_s: Number | None = None
    samples_per_s: Number | None = None
    cost: Number | None = None
    energy_j: Number | None = None
    devices_added: list[Text] = Field(default_factory=list)
    devices_removed: list[Text] = Field(default_factory=list)
    num_stages: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    schedule: Annotated[list[Text], Field(min_length=2, max_length=2)] | None = None
    num_microbatches: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    layers_moved: list[MovedShape] = Field(default_factory=list)
    actions: Annotated[list[list[Text]], Field(min_length=2, max_length=2)] | None = None
    fullest: Annotated[list[FullestShape | None], Field(min_length=2, max_length=2)] | None = None
    binds: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None


class ComparedShape(Shape):
    """One answer; ``plan`` is a document ``ignite/plan/v1``."""

    file: Text
    step_ratio: NotNegative | None
    difference: DifferenceShape | None = Field(default=None, description="null for the first")
    plan: dict[str, Any]


class ComparisonShape(Shape):
    """Answers in the order in which they were given."""

    schema_: Literal["ignite/comparison/v1"] = Field(alias="schema")
    plans: Annotated[list[ComparedShape], Field(min_length=2)]
