"""Shape of ``profile.json``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ignite_scheduler.formats.shapes.fields import (
    Checked,
    KindName,
    LayerName,
    NotNegative,
    Shape,
    Text,
    number,
    whole,
    word,
)

_COUNT = re.compile(r"[0-9]+")


def _samples(key: object) -> int:
    if isinstance(key, str) and _COUNT.fullmatch(key):  # a key of JSON is always text
        key = int(key)
    try:
        return whole(key, 1)
    except ValueError:
        raise ValueError(f"expected the samples of a microbatch, a whole number of at least 1, found {key!r}") from None


def _seconds(value: object) -> list[float]:
    if not isinstance(value, list) or len(value) not in (2, 3):
        found = f"{len(value)} numbers" if isinstance(value, list) else repr(value)
        raise ValueError(
            f"expected [forward_s, backward_s] or [forward_s, input_backward_s, weight_backward_s], found {found}"
        )
    return [number(item, least=0) for item in value]


Samples = Annotated[int, Checked(_samples, {"type": "string", "pattern": "^[0-9]+$"})]
Seconds = Annotated[
    list[float],
    Checked(_seconds, {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 3}),
]
TimesOfKind = Annotated[dict[Samples, Seconds], Field(min_length=1)]


class InputShape(Shape):
    """An edge of the layer graph that reads other than a whole output."""

    from_: LayerName = Field(alias="from")
    bytes: NotNegative | None = None


def _input(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


Input = Annotated[
    InputShape,
    BeforeValidator(_input, json_schema_input_type=str | InputShape),
]


class LayerShape(Shape):
    """One layer: sizes for one sample (parameters apart) and times; one that was only sized has FLOPs instead."""

    name: LayerName
    parameter_bytes: NotNegative
    output_bytes: NotNegative
    activation_bytes: NotNegative
    carried_bytes: NotNegative = 0.0
    transient_bytes: NotNegative = 0.0
    workspace_bytes: NotNegative = 0.0
    forward_flops: NotNegative | None = None
    backward_flops: NotNegative | None = None
    times: dict[KindName, TimesOfKind] = Field(default_factory=dict)
    inputs: Annotated[list[Input], Field(min_length=1)] | None = None
    update_s: dict[Text, NotNegative] = Field(default_factory=dict)


class ProfileShape(Shape):
    """A measured model."""

    schema_: Literal["ignite/profile/v1"] = Field(alias="schema")
    name: Text
    precision: Annotated[str, word("fp32", "fp16", "bf16", noun="precision")] = "fp32"
    reference: KindName | None = None
    layers: Annotated[list[LayerShape], Field(min_length=1)]
    tied: list[Annotated[list[LayerName], Field(min_length=2)]] = Field(default_factory=list)
    action_overhead_s: NotNegative = 0.0
    provenance: dict[str, Any] = Field(default_factory=dict)
