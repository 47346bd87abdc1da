"""A shape laid over a document: the validated shape, or one DocumentError about the first thing that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.shapes.fields import Shape
from ignite_scheduler.formats.source import Place, Source

ShapeT = TypeVar("ShapeT", bound=Shape)
T = TypeVar("T")

_EXPECTED: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
    "finite_number": "a finite number",
}


def check(shape: type[ShapeT], source: Source) -> ShapeT:
    """The document as ``shape``.

    Raises
    ------
    DocumentError
        About the first problem in the order of lines; it says how many more there are.
    """
    return checked(shape.model_validate, source)


def checked(validate: Callable[[Any], T], source: Source) -> T:
    """What ``validate`` (of a shape or of another type) makes of the document; errors as in :func:`check`."""
    try:
        return validate(source.data)
    except ValidationError as error:
        problems = [(_place(detail), _message(detail)) for detail in error.errors(include_url=False)]
    placed = [source.error(place, message) for place, message in problems]
    first = min(placed, key=lambda problem: problem.line or 0)  # min keeps the shape's order among equals
    if len(placed) == 1:
        raise first
    more = len(placed) - 1
    raise DocumentError(
        f"{first.message} (and {more} more problem{'s' if more > 1 else ''} in this document)",
        file=first.file,
        line=first.line,
        field=first.field,
    )


def _place(detail: Any) -> Place:
    place = tuple(part for part in detail["loc"] if part != "[key]")
    return (*place, detail["ctx"]["key"]) if detail["type"] == "unknown_key" else place


def _message(detail: Any) -> str:
    kind, found = detail["type"], detail["input"]
    if kind in ("value_error", "unknown_key"):
        return str(detail["ctx"]["error"] if kind == "value_error" else detail["msg"])
    if kind == "missing":
        return _missing(detail["loc"][-1])
    if kind == "literal_error":
        return f"expected {detail['ctx']['expected']}, found {_short(found)}"
    if kind in ("too_short", "too_long"):
        context = detail["ctx"]
        least, most = context.get("min_length"), context.get("max_length")
        limit = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"expected {limit} item{'' if (least or most) == 1 else 's'}, found {context['actual_length']}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {_short(found)}"
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, found {_short(found)}"


def _missing(key: str | int) -> str:
    example = {"version": "; write 'version: 1'"}.get(str(key), "")
    return f"the key {key!r} is missing{example}"


def _short(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "keys with values"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
