"""The exceptions of the package, and who must act on each.

::

    IgniteError
    ├── InputError (ValueError)   the caller can mend it          exit 2    HTTP 422
    │   ├── DocumentError         …in a file: file, line, field
    │   └── ScheduleError         …in an order of actions
    ├── NotFoundError             no such job, plan, node         exit 2    HTTP 404
    ├── ConflictError             the state forbids it            exit 1    HTTP 409
    ├── ExternalError             the world failed (.retryable)   exit 1    HTTP 503
    └── InvariantError            our bug; carries the story      exit 70   HTTP 500

A message says what was expected, what was found, where, and what to do. A plan that cannot be made is not an
exception but an answer: see :class:`ignite_scheduler.model.Infeasible`.
"""

from __future__ import annotations

from typing import ClassVar


class IgniteError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class InputError(IgniteError, ValueError):
    """Something the caller gave is wrong; the message says what would be right."""

    exit_code = 2
    http_status = 422


class DocumentError(InputError):
    """A document is wrong.

    Parameters
    ----------
    message
        What was expected and what was found.
    file
        Path of the document as the user gave it.
    line
        Line number, from 1; None where the format keeps no lines.
    field
        Dotted path of the key, such as ``nodes[0].devices[1].memory``.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, field: str | None = None
    ) -> None:
        self.message, self.file, self.line, self.field = message, file, line, field
        where = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(": ".join(part for part in (where, field, message) if part))


class ScheduleError(InputError):
    """An order of actions is malformed or can never finish; the message names the blocked action."""


class NotFoundError(IgniteError):
    """There is no such job, plan, node, file or run."""

    exit_code = 2
    http_status = 404


class ConflictError(IgniteError):
    """The present state forbids the request."""

    http_status = 409


class ExternalError(IgniteError):
    """The world outside failed: a process died, a disk is full, a peer is silent."""

    http_status = 503

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class InvariantError(IgniteError):
    """A law of ours is broken: a bug in this package. The story holds what led to it."""

    exit_code = 70

    def __init__(self, message: str, *, story: tuple[str, ...] = ()) -> None:
        super().__init__(message if not story else message + "\n" + "\n".join(story))
        self.story = story
