"""Output of the verbs: one option ``-o``, documents as JSON or YAML, tables for people; data on stdout only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

FORMATS: Final = ("table", "wide", "json", "yaml")
PLAIN_WIDTH: Final = 160
"""Columns of a table that no terminal bounds (a pipe, a file)."""
BAR_WIDTH: Final = 10
IN_MINUTES: Final = 600.0
"""From this many seconds on people read minutes more easily."""

LONG_SEARCH: Final = 3.0
"""Seconds after which a person wonders whether anything happens."""

F = TypeVar("F", bound=Callable[..., Any])


def output_option(function: F) -> F:
    """Add ``-o table|wide|json|yaml`` to a verb."""
    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How data is printed on stdout.",
    )(function)


@contextmanager
def searching() -> Iterator[None]:
    """Say on stderr, once the block takes long, that plans are being searched and why the first one takes longer."""
    text = "searching for plans (the first time on a machine the search is also compiled: about half a minute) …"
    notice = threading.Timer(LONG_SEARCH, lambda: click.echo(text, err=True))
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def is_document(output: str) -> bool:
    """Whether the format is for programs."""
    return output in {"json", "yaml"}


def emit(document: Mapping[str, Any], output: str) -> None:
    """Print a document on stdout as JSON, or as YAML."""
    if output == "yaml":
        from ignite_scheduler.formats.files import yaml_text

        click.echo(yaml_text(document), nl=False)
        return
    from ignite_scheduler.formats.files import json_text

    click.echo(json_text(document), nl=False)


def console(*, err: bool = False) -> Console:
    """A console on stdout (or stderr): coloured and as wide as the terminal, plain and wide elsewhere.

    ``NO_COLOR`` and ``COLUMNS`` are honoured.
    """
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    import os

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() and int(columns) >= 40 else PLAIN_WIDTH
    return Console(file=stream, highlight=False, width=width, force_terminal=False, color_system=None)


def show(*parts: RenderableType) -> None:
    """Print tables and text for people on stdout."""
    out = console()
    for part in parts:
        out.print(part)


def table(
    columns: Iterable[str], rows: Iterable[Sequence[RenderableType]], *, title: str | None = None, right: str = ""
) -> Table:
    """A table with a header; ``right`` holds the indices (as digits) of the columns that are set flush right."""
    from rich import box
    from rich.table import Table

    result = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        result.add_column(column, justify="right" if str(index) in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def bar(part: float, whole: float, width: int = BAR_WIDTH) -> str:
    """A bar that is filled in the proportion of ``part`` to ``whole``; a part above the whole ends in ``!``.

    >>> bar(5, 10, width=4)
    '▰▰▱▱'
    """
    share = part / whole if whole > 0 else float(part > 0)
    full = min(width, round(share * width))
    return "▰" * full + "▱" * (width - full) + ("!" if part > whole else "")


def seconds(value: float | None) -> str:
    """Seconds for people, a dash where unknown.

    >>> seconds(0.0123), seconds(None)
    ('12.3ms', '–')
    """
    from ignite_scheduler.units import format_duration

    if value is None:
        return "–"
    if value == 0 or 60 <= value < IN_MINUTES:
        return f"{value:.3g}s"
    return format_duration(value)


def span(low: float | None, high: float | None) -> str:
    """A range of seconds for people, one figure where both ends are the same, a dash where unknown.

    >>> span(1.5, 2.0), span(2.0, 2.0)
    ('1.5s to 2s', '2s')
    """
    ends = [seconds(low), seconds(high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percents, a dash where unknown.

    >>> percent(0.125)
    '12.5 %'
    """
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits, a dash where unknown.

    >>> number(12.3456)
    '12.35'
    """
    return "–" if value is None else f"{value:.{digits}g}"
