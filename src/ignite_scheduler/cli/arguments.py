"""Options and parameter types that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
"""A file that may or may not exist: documents are reported missing by their readers, with the exit code of FORMATS."""
FOLDER = click.Path(path_type=Path, file_okay=False)


class Percent(click.ParamType[float]):
    """A share written in percent, ``5%``, as a number from 0 to 1."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share; a usage error if the text is no percentage from 0 % to 100 %."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not text.endswith("%") or not 0 <= share < 1:
            self.fail(f"expected a percentage such as 5%, found {value!r}", param, ctx)
        return share


class Spread(click.ParamType[float]):
    """A relative spread, ``10%`` or ``0.1``, as a number from 0 to 10."""

    name = "spread"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The spread; a usage error if the text is none: what is not a number would silently ruin every figure."""
        text = str(value).strip()
        try:
            spread = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            spread = -1.0
        if not 0 <= spread <= 10:
            self.fail(f"expected a spread from 0 to 10 such as 0.1 or 10%, found {value!r}", param, ctx)
        return spread


class Kind(click.ParamType[str]):
    """A kind of device, in the letters that cluster files and profiles allow."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The kind; a usage error for a name under which no document could be read back."""
        from pydantic import TypeAdapter, ValidationError

        from ignite_scheduler.formats.shapes.fields import KindName

        try:
            return str(TypeAdapter(KindName).validate_python(value))
        except ValidationError as error:
            self.fail(str(error.errors()[0]["ctx"]["error"]), param, ctx)


class Duration(click.ParamType[float]):
    """A time with its unit, ``30s`` or ``2h``, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a usage error if the text is no duration."""
        from ignite_scheduler.errors import InputError
        from ignite_scheduler.units import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def calibration_option(function: F) -> F:
    """Add ``--calibration FILE``."""
    return click.option(
        "--calibration",
        "calibration_file",
        type=FILE,
        metavar="FILE",
        help="What earlier runs taught (ignite calibrate): charged to every prediction, which then has a range.",
    )(function)


def cluster_option(function: F) -> F:
    """Add the required ``--cluster FILE``."""
    return click.option(
        "-c", "--cluster", "cluster_file", type=FILE, required=True, metavar="FILE", help="The cluster's document."
    )(function)
