"""Frozen dataclasses ↔ JSON-ready values, losslessly, driven by the type hints of their fields.

A coding is compiled once for each hint. What JSON lacks is spelled out: tuples and sets come back as such because the
hint says so, a float that is not finite is written as text, and under ``Any`` (where no hint helps) containers other
than lists and plain dicts carry a tag ``{"$tuple": […]}``. A field that a value lacks takes its default, so a class may
grow fields with defaults.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Union

from ignite_scheduler.errors import DocumentError, InvariantError

TYPE: Final = "type"
"""Key under which the class is named where the hint leaves several open."""


class Coding(NamedTuple):
    """A pair of functions that undo each other."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def coding(hint: Any) -> Coding:
    """The coding for values of ``hint``: a dataclass, a union of dataclasses, or what their fields are made of.

    Raises
    ------
    InvariantError
        A hint or a value that this codec does not know: our own classes are at fault.
    DocumentError
        From ``decode``: the text is not what ``encode`` writes.
    """
    try:
        return _coding(hint)
    except TypeError:  # an unhashable hint
        raise InvariantError(f"no coding for the type {hint!r}") from None


@cache
def _coding(hint: Any) -> Coding:
    if hint is Any:
        return Coding(_encode_any, _decode_any)
    if hint is float:
        return Coding(_encode_float, _decode_float)
    if hint in (str, int, bool, type(None)):
        return _scalar(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    builder = _BUILDERS.get(typing.get_origin(hint))
    if builder is None:
        raise InvariantError(f"no coding for the type {hint!r}")
    return builder(typing.get_args(hint))


def _scalar(kind: type) -> Coding:
    def decode(value: Any) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise DocumentError(f"expected {kind.__name__}, found {value!r}")
        return value

    return Coding(lambda value: value, decode)


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))


def _decode_float(value: Any) -> Any:
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DocumentError(f"expected a number, found {value!r}")
    return value  # a whole number stays one: 3 == 3.0, and the text of the journal stays the same


def _literal(words: tuple[Any, ...]) -> Coding:
    def decode(value: Any) -> Any:
        if value not in words:
            raise DocumentError(f"expected one of {words}, found {value!r}")
        return value

    return Coding(lambda value: value, decode)


def _dataclass(kind: type) -> Coding:
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    codings = {name: _lazy(hints[name]) for name in fields}

    def encode(value: Any) -> dict[str, Any]:
        return {name: coding.encode(getattr(value, name)) for name, coding in codings.items()}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise DocumentError(f"expected the fields of a {kind.__name__}, found {value!r}")
        unknown = value.keys() - fields.keys()
        if unknown:
            raise DocumentError(f"{kind.__name__} has no field {min(unknown)!r}; a newer version may have written it")
        try:
            return kind(**{name: codings[name].decode(item) for name, item in value.items()})
        except TypeError as error:  # a field without default is missing
            raise DocumentError(f"{kind.__name__}: {error}") from None

    return Coding(encode, decode)


def _lazy(hint: Any) -> Coding:
    """A coding that is compiled when first used, so that a class may hold itself."""
    return Coding(lambda value: _coding(hint).encode(value), lambda value: _coding(hint).decode(value))


def _union(hints: tuple[Any, ...]) -> Coding:
    classes = [hint for hint in hints if isinstance(hint, type) and dataclasses.is_dataclass(hint)]
    others = [hint for hint in hints if hint not in classes]
    if len(classes) > 1:
        return _tagged({kind.__name__: kind for kind in classes}, others)
    inner = [_coding(hint) for hint in hints if hint is not type(None)]
    if len(inner) == 1 and len(hints) == 2:  # X | None
        only = inner[0]
        return Coding(
            lambda value: None if value is None else only.encode(value),
            lambda value: None if value is None else only.decode(value),
        )
    return _first_that_fits(hints)


def _tagged(classes: dict[str, type], others: list[Any]) -> Coding:
    rest = _first_that_fits(tuple(others)) if others else None

    def encode(value: Any) -> Any:
        name = type(value).__name__
        if classes.get(name) is type(value):
            return {TYPE: name, **_coding(classes[name]).encode(value)}
        if rest is None:
            raise InvariantError(f"expected one of {', '.join(classes)}, found {value!r}")
        return rest.encode(value)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict) and rest is not None:
            return rest.decode(value)
        name = value.get(TYPE) if isinstance(value, dict) else None
        if name not in classes:
            raise DocumentError(f"expected a {TYPE!r} out of {', '.join(classes)}; found {name!r}")
        return _coding(classes[name]).decode({key: item for key, item in value.items() if key != TYPE})

    return Coding(encode, decode)


def _first_that_fits(hints: tuple[Any, ...]) -> Coding:
    """For scalars, literals and one tuple: their JSON forms differ, so the first that decodes is right."""

    def encode(value: Any) -> Any:
        if isinstance(value, tuple):
            return next(_coding(hint) for hint in hints if typing.get_origin(hint) is tuple).encode(value)
        return _encode_float(value) if isinstance(value, float) else value

    def decode(value: Any) -> Any:
        for hint in hints:
            try:
                return _coding(hint).decode(value)
            except DocumentError:
                continue
        raise DocumentError(f"expected one of {hints}, found {value!r}")

    return Coding(encode, decode)


def _tuple(hints: tuple[Any, ...]) -> Coding:
    if len(hints) == 2 and hints[1] is Ellipsis:
        item = _lazy(hints[0])
        return Coding(
            lambda value: [item.encode(part) for part in value],
            lambda value: tuple(item.decode(part) for part in _list(value)),
        )
    items = [_lazy(hint) for hint in hints]

    def decode(value: Any) -> Any:
        if len(_list(value)) != len(items):
            raise DocumentError(f"expected {len(items)} items, found {value!r}")
        return tuple(item.decode(part) for item, part in zip(items, value, strict=True))

    return Coding(lambda value: [item.encode(part) for item, part in zip(items, value, strict=True)], decode)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DocumentError(f"expected a list, found {value!r}")
    return value


def _frozenset(hints: tuple[Any, ...]) -> Coding:
    item = _lazy(hints[0])
    return Coding(
        lambda value: sorted(map(item.encode, value)), lambda value: frozenset(map(item.decode, _list(value)))
    )


def _mapping(hints: tuple[Any, ...]) -> Coding:
    key_hint, value_hint = hints
    if key_hint not in (str, int):
        raise InvariantError(f"no coding for the keys {key_hint!r}")
    item = _lazy(value_hint)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise DocumentError(f"expected keys with values, found {value!r}")
        return {key_hint(key): item.decode(part) for key, part in value.items()}

    return Coding(lambda value: {str(key): item.encode(part) for key, part in value.items()}, decode)


_BUILDERS: Final[dict[Any, Callable[[tuple[Any, ...]], Coding]]] = {
    Literal: _literal,
    Union: _union,
    types.UnionType: _union,
    tuple: _tuple,
    frozenset: _frozenset,
    Mapping: _mapping,
    dict: _mapping,
}


# --- values without a hint --------------------------------------------------------------------------------------------


def _encode_any(value: Any) -> Any:  # noqa: PLR0911 - one return a case
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case list():
            return [_encode_any(part) for part in value]
        case tuple():
            return {"$tuple": [_encode_any(part) for part in value]}
        case frozenset():
            return {"$set": sorted((_encode_any(part) for part in value), key=str)}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: _encode_any(part) for key, part in value.items()}
            return {"$pairs": [[_encode_any(key), _encode_any(part)] for key, part in value.items()]}
    raise InvariantError(f"no coding for {value!r} where any plain value may stand")


def _decode_any(value: Any) -> Any:  # noqa: PLR0911 - one return a case
    if isinstance(value, list):
        return [_decode_any(part) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$float": text}:
            return float(text)
        case {"$tuple": parts}:
            return tuple(_decode_any(part) for part in parts)
        case {"$set": parts}:
            return frozenset(_decode_any(part) for part in parts)
        case {"$pairs": pairs}:
            return {_decode_any(key): _decode_any(part) for key, part in pairs}
    return {key: _decode_any(part) for key, part in value.items()}
