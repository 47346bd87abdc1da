"""What the fields of our documents are made of: quantities with units, ``auto``, names, counts."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ignite_scheduler import units

AUTO: Final = "auto"
LONGEST_WORD: Final = 200
"""Characters of a word that may have been meant to be another; likeness takes the product of both lengths."""


def or_list(words: Iterable[object]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    texts = [str(word) for word in words]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be; None where none is near."""
    if len(str(word)) > LONGEST_WORD:
        return None
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else None


class Shape(BaseModel):
    """Base of all shapes: nothing is coerced, and an unknown key is an error that names the nearest one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    hints: ClassVar[dict[str, str]] = {}
    """What to say of a key that people write here by mistake; ``""`` is said of any other unknown key."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = [info.alias or name for name, info in cls.model_fields.items()]
        for key in data:
            if key in known:
                continue
            near = nearest(key, known)
            advice = cls.hints.get(key) or (f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}")
            if key not in cls.hints and "" in cls.hints:
                advice += f"; {cls.hints['']}"
            shown = {"key": key, "shown": repr(key)[:60], "advice": advice}
            raise PydanticCustomError("unknown_key", "unknown key {shown}; {advice}", shown)
        return data


@dataclass(frozen=True, eq=False)  # hashed by identity, as a part of a type must be
class Checked:
    """Mark of a field whose value is made by a function.

    ``check`` turns what stands in the document into the value (ValueError if it cannot), ``schema`` describes it.
    """

    check: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


MAX_BITS: Final = 63
"""What a whole number may have; no count of ours comes near it."""
MAX_NUMBER_BITS: Final = 1000
"""What a number written without a point may have, to fit a float."""


def _check_size(value: object, max_bits: int) -> None:
    if isinstance(value, int) and value.bit_length() > max_bits:
        raise ValueError(f"expected a number of at most {max_bits} bits, found one of {value.bit_length()} bits")


LARGEST: Final = 1e30
"""Above everything that can be measured, and so far below the largest float that no product of a few figures of a
document overflows."""
SMALLEST: Final = 1e-30
"""Least figure that others may be divided by."""


def _check_magnitude(value: float, shown: object, *, divides: bool) -> None:
    if abs(value) > LARGEST:
        raise ValueError(f"expected a figure of at most {LARGEST:g} in SI units, found {_found(shown)}")
    if divides and 0 < value < SMALLEST:
        raise ValueError(f"expected a figure of at least {SMALLEST:g} in SI units, found {_found(shown)}")


def _quantity(parse: Callable[[object], float], *examples: str) -> Checked:
    def check(value: object) -> float:
        _check_size(value, MAX_NUMBER_BITS)
        found = parse(value)
        _check_magnitude(found, value, divides=True)
        return found

    return Checked(check, {"type": "string", "examples": list(examples), "description": "a number and its unit"})


Memory = Annotated[float, _quantity(units.parse_memory, "40GiB", "64GB")]
Bandwidth = Annotated[float, _quantity(units.parse_bandwidth, "25GB/s", "10Gbit/s")]
Duration = Annotated[float, _quantity(units.parse_duration, "0.2ms", "90s", "2h")]
Price = Annotated[float, _quantity(units.parse_price, "2.5/h")]
Power = Annotated[float, _quantity(units.parse_power, "250W")]
_FLOPS: Final = _quantity(units.parse_flops, "19.5TFLOP/s")
Flops = Annotated[float, _FLOPS]


def number(
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    divides: bool = False,
) -> float:
    """A finite number within limits; ValueError otherwise. ``divides``: 0, or not as good as 0."""
    limit = f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
    limit += f" and at most {most:g}" if most is not None else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number{limit}, found {_found(value)}")
    _check_size(value, MAX_NUMBER_BITS)
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number{limit}, found {value}")
    too_small = (above is not None and value <= above) or (least is not None and value < least)
    if too_small or (most is not None and value > most):
        raise ValueError(f"expected a number{limit}, found {value!r}")
    _check_magnitude(value, value, divides=divides or above is not None)
    return float(value)


def whole(value: object, least: int | None = None) -> int:
    """A whole number within limits; ValueError otherwise."""
    limit = f" of at least {least}" if least is not None else ""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number{limit}, found {_found(value)}")
    _check_size(value, MAX_BITS)
    if least is not None and value < least:
        raise ValueError(f"expected a whole number{limit}, found {value}")
    return value


def _version(value: object) -> int:
    if type(value) is not int or value != 1:  # true and 1.0 equal 1 too
        raise ValueError(f"expected 1, found {_found(value)}")
    return value


def _found(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        noun = "mapping" if isinstance(value, dict) else "list"
        return f"a {noun}" if value else f"an empty {noun}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


Version = Annotated[int, Checked(_version, {"type": "integer", "const": 1})]
Number = Annotated[float, Checked(number, {"type": "number"})]
NotNegative = Annotated[float, Checked(partial(number, least=0), {"type": "number", "minimum": 0})]
Positive = Annotated[float, Checked(partial(number, above=0), {"type": "number", "exclusiveMinimum": 0})]
Share = Annotated[
    float, Checked(partial(number, above=0, most=1), {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]
Integer = Annotated[int, Checked(whole, {"type": "integer"})]
Count = Annotated[int, Checked(partial(whole, least=0), {"type": "integer", "minimum": 0})]
CountFromOne = Annotated[int, Checked(partial(whole, least=1), {"type": "integer", "minimum": 1})]


def _auto_or(check: Callable[[Any], Any], schema: Mapping[str, Any], expected: str) -> Checked:
    def validate(value: Any) -> Any:
        if value == AUTO:
            return AUTO
        try:
            return check(value)
        except ValueError as error:
            raise ValueError(f"{error} ({expected} or 'auto' will do)") from None

    return Checked(validate, {"anyOf": [{"const": AUTO}, dict(schema)]})


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {_found(value)}")
    return value


def _split(value: object) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of layer counts such as [15, 23], found {_found(value)}")
    return [whole(item, 1) for item in value]


_COUNT_SCHEMA: Final = {"type": "integer", "minimum": 1}

AutoCount = Annotated[Any, _auto_or(partial(whole, least=1), _COUNT_SCHEMA, "a whole number")]
AutoFlag = Annotated[Any, _auto_or(_flag, {"type": "boolean"}, "true, false")]
AutoSplit = Annotated[Any, _auto_or(_split, {"type": "array", "items": _COUNT_SCHEMA}, "layer counts")]

_STEPS: Final = re.compile(r"\s*(\d+)\s*steps?\s*")


def _steps(value: object) -> int:
    if isinstance(value, str):
        match = _STEPS.fullmatch(value)
        if match is None:
            raise ValueError(f"expected a number of steps such as '50 steps', found {value!r}")
        value = int(match.group(1))
    return whole(value, 1)


Steps = Annotated[int, Checked(_steps, {"anyOf": [_COUNT_SCHEMA, {"type": "string", "pattern": r"^\d+ steps?$"}]})]


def _name(noun: str, forbidden: str = "") -> Checked:
    def check(text: Any) -> str:
        if not isinstance(text, str):
            raise ValueError(f"expected a {noun}, found {_found(text)}")
        if not text.strip():
            raise ValueError(f"expected a {noun}, found an empty text")
        bad = [char for char in text if char in forbidden or not char.isprintable()]
        if bad:
            raise ValueError(f"a {noun} may not contain {bad[0]!r}, found {text!r}")
        return text

    return Checked(check, {"type": "string", "minLength": 1})


NodeName = Annotated[str, _name("node name", "/ ")]
KindName = Annotated[str, _name("kind of device", "/ :+,")]
DeviceName = Annotated[str, _name("device id", "/ ")]
JobName = Annotated[str, _name("job name", "/\\")]
LayerName = Annotated[str, _name("layer name")]
Text = Annotated[str, _name("text")]


def word(*known: str, noun: str) -> Checked:
    """Marks a field that holds one of the known words."""

    def check(text: Any) -> str:
        if text in known:
            return str(text)
        near = nearest(text, known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"unknown {noun} {text!r}: expected {or_list(known)}{hint}")

    return Checked(check, {"enum": list(known)})


_DTYPE: Final = word("fp32", "fp16", "bf16", "fp8", noun="dtype")
Dtype = Annotated[str, _DTYPE]


def _peaks(value: object) -> float | dict[str, float]:
    if not isinstance(value, dict):
        return float(_FLOPS.check(value))
    if not value:
        raise ValueError("expected a computing rate for each dtype, found none")
    return {str(_DTYPE.check(dtype)): float(_FLOPS.check(rate)) for dtype, rate in value.items()}


Peaks = Annotated[
    Any,
    Checked(
        _peaks,
        {"anyOf": [_FLOPS.schema, {"type": "object", "minProperties": 1, "additionalProperties": _FLOPS.schema}]},
    ),
]
"""FLOP/s for each dtype, or one figure for all that a device has."""
