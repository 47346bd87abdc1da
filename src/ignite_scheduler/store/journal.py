"""The journal in a database: SQLite by a file, PostgreSQL later by its URL; SQLAlchemy Core over both.

Two tables that are only ever appended to: ``events`` (what happened, in the order in which it was handled) and
``decisions`` (what the core commanded on it, one row an event, a list of commands). An event without a decision is
where a crash came in between. ``facts`` holds a few values that are written once, such as the version of this layout.

Each append is one transaction. On SQLite the journal is in WAL mode with ``synchronous=FULL``: a commit is on the
disk when it returns, readers do not block the writer, and a process that dies in the middle of a write leaves the
last whole commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from ignite_scheduler.control.commands import Command
from ignite_scheduler.control.events import Event
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.errors import ConflictError, ExternalError, InvariantError
from ignite_scheduler.formats.journal import JOURNAL_CODEC

LAYOUT: Final = "1"
"""Version of the tables below; a journal of another one is refused."""

_PAGE: Final = 500  # rows fetched at once while reading; keeps the memory of a long replay flat

_metadata = sa.MetaData()
_events = sa.Table(
    "events",
    _metadata,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_s", sa.Float, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("job_id", sa.String, index=True),
    sa.Column("body", sa.Text, nullable=False),
)
_decisions = sa.Table(
    "decisions",
    _metadata,
    sa.Column("sequence", sa.Integer, sa.ForeignKey("events.sequence"), primary_key=True, autoincrement=False),
    sa.Column("commands", sa.Text, nullable=False),
)
_facts = sa.Table(
    "facts",
    _metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


class SqlJournal:
    """A :class:`~ignite_scheduler.daemon.ports.Journal` in a database.

    Parameters
    ----------
    url
        SQLAlchemy URL, such as ``sqlite:////abs/path/journal.sqlite``. :meth:`at` makes it from a path.

    Raises
    ------
    ConflictError
        The tables there have another layout.
    ExternalError
        The database cannot be opened, or is no database.
    """

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _make_durable)
        try:
            _metadata.create_all(self._engine)
        except sa.exc.DBAPIError as error:
            self._engine.dispose()
            raise ExternalError(f"expected a journal at {url}, found what no database reads: {error.orig}") from error
        layout = self.remember("layout", LAYOUT)
        if layout != LAYOUT:
            self._engine.dispose()
            raise ConflictError(f"expected a journal of layout {LAYOUT} at {url}, found layout {layout}")
        with self._engine.connect() as connection:
            self._last = connection.scalar(sa.select(sa.func.max(_events.c.sequence))) or 0

    @classmethod
    def at(cls, path: Path) -> SqlJournal:
        """The SQLite journal in the file ``path``, made if it is not there."""
        return cls(f"sqlite:///{path.resolve()}")

    def append_event(self, event: Event) -> int:
        """Write ``event`` durably; its sequence number, from 1."""
        row = {
            "sequence": self._last + 1,
            "at_s": event.at,
            "kind": type(event).__name__,
            "job_id": getattr(event, "job_id", None),
            "body": _dump(JOURNAL_CODEC.encode_event(event)),
        }
        with self._writing() as connection:
            connection.execute(_events.insert(), row)
        self._last += 1
        return self._last

    def append_commands(self, sequence: int, commands: Sequence[Command]) -> None:
        """Write what was decided on event ``sequence``; InvariantError if it is unknown or already decided."""
        if not 1 <= sequence <= self._last:
            raise InvariantError(f"expected an event of the journal (1 to {self._last}), found {sequence}")
        text = _dump([JOURNAL_CODEC.encode_command(command) for command in commands])
        try:
            with self._writing() as connection:
                connection.execute(_decisions.insert(), {"sequence": sequence, "commands": text})
        except sa.exc.IntegrityError as error:
            raise InvariantError(f"event {sequence} is already decided") from error

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction.

        Raises
        ------
        ExternalError
            The disk is full, or the database is gone.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.OperationalError as error:
            raise ExternalError(f"the journal at {self._engine.url} cannot be written: {error.orig}") from error

    def records(self) -> Iterator[Record]:
        """All records, oldest first, read a page at a time: the journal may be appended to meanwhile."""
        last = 0
        while rows := self._page(after=last):
            for sequence, body, commands in rows:
                yield Record(
                    sequence=sequence,
                    event=JOURNAL_CODEC.decode_event(json.loads(body)),
                    commands=None if commands is None else self._decode_commands(commands),
                )
                last = sequence

    def _page(self, *, after: int) -> list[tuple[int, str, str | None]]:
        query = (
            sa.select(_events.c.sequence, _events.c.body, _decisions.c.commands)
            .join_from(_events, _decisions, isouter=True)
            .where(_events.c.sequence > after)
            .order_by(_events.c.sequence)
            .limit(_PAGE)
        )
        with self._engine.connect() as connection:
            return [(row.sequence, row.body, row.commands) for row in connection.execute(query)]

    def _decode_commands(self, text: str) -> tuple[Command, ...]:
        return tuple(JOURNAL_CODEC.decode_command(value) for value in json.loads(text))

    def remember(self, name: str, value: str) -> str:
        """The fact called ``name``; ``value`` becomes it if there is none yet."""
        with self._engine.begin() as connection:
            known = connection.scalar(sa.select(_facts.c.value).where(_facts.c.name == name))
            if known is None:
                connection.execute(_facts.insert(), {"name": name, "value": value})
        return value if known is None else str(known)

    def close(self) -> None:
        """Give the database back."""
        self._engine.dispose()


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _make_durable(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
