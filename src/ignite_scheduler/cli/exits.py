"""The one place where an outcome becomes an exit code and a line on stderr."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from typing import Final

import click

from ignite_scheduler.errors import IgniteError, InvariantError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CANNOT_BE_PLANNED: Final = 3
DEADLINE: Final = 4
INTERRUPTED: Final = 130
OUR_BUG: Final = 70

LONGEST: Final = 2000
"""Characters of an error: what is longer repeats a document."""
DEBUG_VARIABLE: Final = "IGNITE_DEBUG"
REPORT_HINT: Final = (
    "this is a bug in IgNITE. Please report it with the command, the documents and the output of the same command "
    f"under {DEBUG_VARIABLE}=1 (which shows the traceback)."
)


def say(message: str) -> None:
    """Print a message for people, on stderr."""
    click.echo(message, err=True)


def conclude(error: BaseException) -> int:
    """The exit code of an error, after saying on stderr what happened and what to do.

    Parameters
    ----------
    error
        Whatever a verb raised; ``SystemExit`` is not expected here.
    """
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    code, *lines = _outcome(error)
    for line in lines:
        say(line)
    return code


def _fitting(line: str) -> str:
    """The line without its middle where a document's own words make it too long for people."""
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"


def _outcome(error: BaseException) -> tuple[int, *tuple[str, ...]]:
    """Exit code and the lines to say."""
    outcome: tuple[int, *tuple[str, ...]]
    match error:
        case click.exceptions.Abort() | KeyboardInterrupt():
            outcome = INTERRUPTED, "interrupted"
        case InvariantError():
            outcome = OUR_BUG, f"error: {error}", REPORT_HINT
        case IgniteError():
            outcome = error.exit_code, _fitting(f"error: {error}")
        case ModuleNotFoundError(name=str(name)) if name in _EXTRAS:
            cure = f"pip install 'ignite-scheduler[{_EXTRAS[name]}]'"
            outcome = FAILED, f"error: this needs {name}, which is not installed; {cure}"
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError() | PermissionError():
            outcome = USAGE, f"error: {error.strerror}: {error.filename}"
        case OSError():
            outcome = FAILED, f"error: {error}"
        case _:
            where = f"Python {platform.python_version()}, {platform.system()}."
            outcome = OUR_BUG, f"error: {type(error).__name__}: {error}", f"{REPORT_HINT} {where}"
    return outcome


_EXTRAS: Final = {"torch": "torch", "sklearn": "torch"}
"""Modules of optional extras, and the extra that brings each."""
