"""The command line: one file a verb, each imported only when it is called, so that ``--help`` answers at once."""

from ignite_scheduler.cli.root import ignite, main

__all__ = ["ignite", "main"]
