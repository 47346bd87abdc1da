"""Shape of ``ignite/links/v1``: measured links."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ignite_scheduler.formats.shapes.cluster import LinksShape
from ignite_scheduler.formats.shapes.fields import CountFromOne, NotNegative, Number, Positive, Shape, Text


class EndpointShape(Shape):
    """A device that took part, and where its messages really lay."""

    id: Text
    node: Text
    place: Text


class SizeShape(Shape):
    """Messages of one size, one way; ``residual`` is fitted ÷ typical − 1."""

    bytes: CountFromOne
    typical_s: Positive
    median_s: Positive
    low_s: Positive
    high_s: Positive
    count: CountFromOne
    residual: Number


class PlayedShape(Shape):
    """The link that was emulated."""

    latency_s: NotNegative
    bandwidth_bytes_per_s: Positive


class PairShape(Shape):
    """One direction between two devices; ``emulated`` is null where the link is real."""

    from_: Text = Field(alias="from")
    to: Text
    latency_s: NotNegative
    bandwidth_bytes_per_s: Positive
    r_squared: Number
    worst_residual: NotNegative
    by_size: list[SizeShape]
    stream_bytes_per_s: Positive
    congestion: Positive | None
    asymmetric: bool
    emulated: PlayedShape | None


class NodePairShape(Shape):
    """All pairs from one node to another at once: ``sharing`` is 0 for wires of their own, 1 for one wire."""

    from_: Text = Field(alias="from")
    to: Text
    sharing: NotNegative | None
    shared: bool


class OptionsShape(Shape):
    """How it was measured."""

    backend: Literal["gloo", "nccl"]
    sizes_bytes: list[CountFromOne]
    repeats: CountFromOne
    rounds: CountFromOne


class LinksMeasuredShape(Shape):
    """What ``ignite links measure`` found; ``links`` is a section for a cluster file."""

    schema_: Literal["ignite/links/v1"] = Field(alias="schema")
    devices: list[EndpointShape]
    pairs: list[PairShape]
    node_pairs: list[NodePairShape]
    links: LinksShape
    one_clock: bool
    emulated: bool
    options: OptionsShape
    provenance: dict[str, Any]
