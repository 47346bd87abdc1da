"""Shape of ``devices.json``, the catalogue of kinds of device that ships with the package."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ignite_scheduler.formats.shapes.fields import Dtype, KindName, NotNegative, Positive, Shape, Share, Text, word

ClassName = Annotated[
    str, word("matrix-gpu", "simd-gpu", "instinct", "jetson", "server-cpu", "single-board", noun="class of device")
]


class GroupShape(Shape):
    """Figures with one origin: either the keys of ``sources`` that they were compared with, or ``checked: false``."""

    source: Annotated[list[Text], Field(min_length=1)] | None = None
    checked: Literal[False] | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _sourced_or_unchecked(self) -> Self:
        if (self.source is None) == (self.checked is None):
            text = "expected either the sources that the figures were compared with, or 'checked: false'"
            raise PydanticCustomError("evidence", "{text}", {"text": text})
        return self


class MemoryShape(GroupShape):
    """Memory of one device (null where the machine decides) and its peak bandwidth."""

    memory_bytes: Positive | None
    bandwidth_bytes_per_s: Positive


class ComputeShape(GroupShape):
    """Peak rates without sparsity, for each dtype that it computes at a useful rate."""

    flops_per_s: Annotated[dict[Dtype, Positive], Field(min_length=1)]


class HostShape(GroupShape):
    """Rate of the link to the host's memory, each way, as its standard gives it."""

    bandwidth_bytes_per_s: Positive


class AchievableShape(GroupShape):
    """Share of the peak rate that was measured."""

    flops: Share


class PowerShape(GroupShape):
    """Board power under load (the sheet's limit) and at rest."""

    busy_w: Positive | None = None
    idle_w: Positive | None = None


class PriceShape(GroupShape):
    """What one device costs to hire for an hour, and in which year (or year and month)."""

    per_hour: NotNegative
    currency: Text
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d{2})?$")]


class KindShape(Shape):
    """One kind of device."""

    maker: Text
    group: ClassName = Field(alias="class")
    memory: MemoryShape
    compute: ComputeShape
    achievable: AchievableShape | None = None
    host: HostShape | None = None
    power: PowerShape | None = None
    price: PriceShape | None = None
    aliases: list[Text] = Field(default_factory=list)
    note: Text | None = None


class ClassShape(Shape):
    """What is assumed of kinds for which nothing of their own is known."""

    achievable_flops: Share
    achievable_bandwidth: Share
    launch_overhead_s: NotNegative
    note: Text


class SourceShape(Shape):
    """Something that figures were compared with."""

    title: Text
    url: Annotated[str, Field(pattern=r"^https?://")]


class DevicesShape(Shape):
    """The whole catalogue."""

    schema_: Literal["ignite/devices/v1"] = Field(alias="schema")
    sources: dict[Text, SourceShape]
    classes: dict[ClassName, ClassShape]
    kinds: dict[KindName, KindShape]

    @model_validator(mode="after")
    def _known_references(self) -> Self:
        for name, kind in self.kinds.items():
            groups = (kind.memory, kind.compute, kind.achievable, kind.host, kind.power, kind.price)
            named = [key for group in groups if group is not None for key in group.source or ()]
            missing = [key for key in named if key not in self.sources]
            if missing or kind.group not in self.classes:
                what = f"source {missing[0]!r}" if missing else f"class {kind.group!r}"
                raise PydanticCustomError("reference", "{text}", {"text": f"kind {name!r} names an unknown {what}"})
        return self
