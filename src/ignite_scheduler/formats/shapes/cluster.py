"""Shape of ``cluster.yaml``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ignite_scheduler.formats.shapes.fields import (
    Bandwidth,
    CountFromOne,
    DeviceName,
    Dtype,
    Duration,
    KindName,
    Memory,
    NodeName,
    Peaks,
    Positive,
    Power,
    Price,
    Shape,
    Share,
    Text,
    Version,
)


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Several = Annotated[list[Text], Field(min_length=1)]
Names = Annotated[_Several, BeforeValidator(_one_or_many, json_schema_input_type=Text | _Several)]
"""A node, a device, or a list of them."""


class PowerShape(Shape):
    """Power drawn under load and at rest."""

    busy: Power | None = None
    idle: Power | None = None


class DeviceShape(Shape):
    """One or several equal devices of a node."""

    kind: KindName
    count: CountFromOne | None = None
    id: DeviceName | None = None
    memory: Memory | None = None
    used_by_others: Memory | None = None
    reserve: Memory | None = None
    speed: Positive | None = None
    dtypes: Annotated[list[Dtype], Field(min_length=1)] | None = None
    price: Price | None = None
    power: PowerShape | None = None
    peak_flops: Peaks | None = None
    memory_bandwidth: Bandwidth | None = None
    achievable_flops: Share | None = None
    achievable_bandwidth: Share | None = None
    launch_overhead: Duration | None = None
    host_bandwidth: Bandwidth | None = Field(
        default=None, description="what the link to the host's memory carries each way; offload needs it"
    )


class NodeShape(Shape):
    """A machine."""

    name: NodeName
    devices: Annotated[list[DeviceShape], Field(min_length=1)]


class DefaultLinkShape(Shape):
    """The link of every pair that no other rule covers."""

    bandwidth: Bandwidth
    latency: Duration = 0.0
    shared: bool = False


class LinkShape(Shape):
    """A rule for some pairs: ``within`` a node, ``between`` two, or one way ``from`` … ``to``."""

    bandwidth: Bandwidth
    latency: Duration = 0.0
    shared: bool = False
    within: Names | None = None
    between: Annotated[list[Names], Field(min_length=2, max_length=2)] | None = None
    from_: Names | None = Field(default=None, alias="from")
    to: Names | None = None


class LinksShape(Shape):
    """Rules for links; a later rule wins over an earlier one."""

    default: DefaultLinkShape | None = None
    pairs: list[LinkShape] = Field(default_factory=list)


class ClusterShape(Shape):
    """Machines, their devices and the links between them."""

    version: Version
    name: Text
    currency: Text | None = None
    nodes: Annotated[list[NodeShape], Field(min_length=1)]
    links: LinksShape | None = None
