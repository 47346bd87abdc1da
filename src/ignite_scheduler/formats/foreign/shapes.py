"""Shapes of the foreign JSON formats: what we read is checked, keys that we do not need are left alone."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from ignite_scheduler.formats.shapes.fields import (
    Checked,
    CountFromOne,
    Integer,
    NotNegative,
    Positive,
    Shape,
    Text,
    number,
    whole,
)
from ignite_scheduler.formats.shapes.profile import Samples


class Loose(Shape):
    """A shape of somebody else's document: unknown keys are theirs."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return data


def _flag(value: object) -> bool:
    if not isinstance(value, bool | int) or value not in (0, 1):
        raise ValueError(f"expected true, false, 0 or 1, found {value!r}")
    return bool(value)


def _key(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return whole(int(value[:30]), 0)
    raise ValueError(f"expected a whole number as the key, found {value!r}")


def _three(value: object) -> list[float]:
    if not isinstance(value, list) or len(value) != 3:
        found = f"{len(value)} numbers" if isinstance(value, list) else repr(value)
        raise ValueError(f"expected [forward s, backward s, update s], found {found}")
    return [number(item, least=0) for item in value]


Flag = Annotated[bool, Checked(_flag, {})]
Key = Annotated[int, Checked(_key, {})]
Three = Annotated[list[float], Checked(_three, {})]


class GraphNode(Loose):
    """A node of a JSON graph."""

    id: Integer
    name: Text | None = None


class GraphEdge(Loose):
    """An edge of a JSON graph, by ids of nodes."""

    source: Integer = Field(alias="sourceId")
    target: Integer = Field(alias="destId")


# --- dnn-partitioning ---


class PartitionNode(GraphNode):
    """A layer or an operator, forward or backward."""

    supported: Flag = Field(alias="supportedOnFpga")
    cpu: NotNegative = Field(alias="cpuLatency")
    accelerator: NotNegative = Field(alias="fpgaLatency")
    backward: Flag = Field(alias="isBackwardNode")
    color: Integer | None = Field(default=None, alias="colorClass")
    size: NotNegative


class PartitionEdge(GraphEdge):
    """A tensor between two nodes."""

    cost: NotNegative
    size: NotNegative | None = None


class PartitionGraph(Loose):
    """The whole file."""

    max_cpus: Integer = Field(alias="maxCPUs")
    nodes: Annotated[list[PartitionNode], Field(min_length=1)]
    edges: list[PartitionEdge]


# --- Piper ---


class PiperMode(Loose):
    """One way to run a layer at one degree of tensor parallelism."""

    id: Text
    time: NotNegative = Field(alias="timePerSample")
    parameters: NotNegative = Field(alias="parameterSize")
    in_flight: NotNegative = Field(alias="memoryUsageA")
    fixed: NotNegative = Field(alias="memoryUsageB")
    sync_forward: dict[Key, NotNegative] = Field(default_factory=dict, alias="syncTimeFw")
    sync_backward: dict[Key, NotNegative] = Field(default_factory=dict, alias="syncTimeBw")


class PiperNode(GraphNode):
    """A layer."""

    modes: Annotated[dict[Samples, Annotated[list[PiperMode], Field(min_length=1)]], Field(min_length=1)] = Field(
        alias="TMPCs"
    )


class PiperEdge(GraphEdge):
    """A tensor between two layers."""

    bytes: NotNegative = Field(alias="communicationCost")


class PiperGraph(Loose):
    """The whole file."""

    nodes: Annotated[list[PiperNode], Field(min_length=1)]
    edges: list[PiperEdge]


# --- Sailor ---

Sailor = dict[Samples, dict[Samples, Annotated[dict[Key, Three], Field(min_length=1)]]]


class SailorSizes(Loose):
    """Bytes of one layer for one sample."""

    parameters: NotNegative = Field(alias="params_bytes")
    output: NotNegative = Field(alias="act_output_bytes")
    kept: NotNegative = Field(alias="act_mem_bytes")


SailorMemory = dict[Samples, Annotated[dict[Key, SailorSizes], Field(min_length=1)]]

# --- PipeEdge ---


class EdgeModel(Loose):
    """Sizes of a model's layers."""

    layers: CountFromOne
    megabytes: list[NotNegative] = Field(alias="mem_MB")
    elements_in: NotNegative = Field(alias="parameters_in")
    elements_out: list[NotNegative] = Field(alias="parameters_out")


class EdgeTimes(Loose):
    """Times of the layers for one size of batch."""

    batch_size: CountFromOne
    dtype: Text
    seconds: list[NotNegative] = Field(alias="time_s")


class EdgeDevice(Loose):
    """One device's times of one model."""

    device: Text
    model: Text
    profiles: Annotated[list[EdgeTimes], Field(min_length=1)]


# --- DT-FM ---


class Route(Loose):
    """A link between two regions."""

    a: Text
    b: Text
    delay: NotNegative = Field(alias="delay_ms")
    gigabits: Positive = Field(alias="gbit_per_s")
