"""Journals and facts in databases, over SQLAlchemy Core: SQLite now, PostgreSQL by its URL later."""

from ignite_scheduler.store.journal import SqlJournal

__all__ = ["SqlJournal"]
