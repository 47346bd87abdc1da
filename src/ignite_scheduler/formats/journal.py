"""Control events and commands ↔ what a journal holds: JSON-ready dicts with the class's name and a version."""

from __future__ import annotations

from typing import Any, Final, cast

from ignite_scheduler.control.commands import Command
from ignite_scheduler.control.events import Event
from ignite_scheduler.errors import ConflictError
from ignite_scheduler.formats.codec import Coding, coding

VERSION: Final = 1
"""Raised when a class loses or renames a field; a field added with a default needs no new version."""

_VERSION_KEY: Final = "v"


class JournalCodec:
    """Codec of control events and commands; ``decode`` undoes ``encode`` exactly, through JSON text too.

    Examples
    --------
    >>> from ignite_scheduler.control.events import TimerFired
    >>> JOURNAL_CODEC.encode_event(TimerFired(at=2.5, timer_id="round"))
    {'v': 1, 'type': 'TimerFired', 'at': 2.5, 'timer_id': 'round'}
    """

    def __init__(self) -> None:
        self._events: Coding | None = None  # compiled when first used: most commands of the program keep no journal
        self._commands: Coding | None = None

    def encode_event(self, event: Event) -> dict[str, Any]:
        """``event`` as a JSON-ready dict."""
        return {_VERSION_KEY: VERSION, **self._event_coding().encode(event)}

    def decode_event(self, value: dict[str, Any]) -> Event:
        """The event; ConflictError for another version, DocumentError for what :meth:`encode_event` never writes."""
        return cast(Event, self._event_coding().decode(_fields(value)))

    def encode_command(self, command: Command) -> dict[str, Any]:
        """``command`` as a JSON-ready dict."""
        return {_VERSION_KEY: VERSION, **self._command_coding().encode(command)}

    def decode_command(self, value: dict[str, Any]) -> Command:
        """The command; errors as those of :meth:`decode_event`."""
        return cast(Command, self._command_coding().decode(_fields(value)))

    def _event_coding(self) -> Coding:
        if self._events is None:
            self._events = coding(Event)
        return self._events

    def _command_coding(self) -> Coding:
        if self._commands is None:
            self._commands = coding(Command)
        return self._commands


def _fields(value: dict[str, Any]) -> dict[str, Any]:
    version = value.get(_VERSION_KEY)
    if version != VERSION:
        raise ConflictError(
            f"the journal is of version {version!r}, this program reads version {VERSION}; "
            "use the program that wrote it, or start a new journal"
        )
    return {key: part for key, part in value.items() if key != _VERSION_KEY}


JOURNAL_CODEC: Final = JournalCodec()
"""The codec of this version."""
