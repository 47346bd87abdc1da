"""``events.jsonl`` of each job: what happened to it and what was decided about it, for people and scripts.

The journal is the truth; these files are told from it, anew at each start of a process, so that a crash costs no line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.control.commands import Command
from ignite_scheduler.control.events import Event
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.formats.run_files import EVENTS_FILE

_SHOWN: Final[Mapping[str, str]] = {
    # field of an event or command → key of the line, with the unit where there is one
    "epoch": "epoch",
    "done": "done_steps",
    "saved": "saved_steps",
    "work": "work_steps",
    "rate": "steps_per_s",
    "reason": "reason",
    "device": "device",
    "device_ids": "devices",
    "save": "save",
    "cause": "cause",
}


class EventLogs:
    """Writes a line for each event and command about a job into the job's directory (``directory_of`` its id).

    No file stays open between two records: a run may have more jobs than a process may have files.
    """

    def __init__(self, directory_of: Callable[[str], Path]) -> None:
        self._directory_of = directory_of
        self._files: dict[str, Path] = {}

    def note(self, record: Record) -> None:
        """Take note of one more record."""
        for entry in (record.event, *(record.commands or ())):
            job_id = getattr(entry, "job_id", None)
            if job_id is not None:
                line = {"at_s": record.event.at, **_line(entry)}
                with self._file(job_id).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _file(self, job_id: str) -> Path:
        """The job's file; at its first record of this process it is emptied."""
        if job_id not in self._files:
            directory = self._directory_of(job_id)
            directory.mkdir(parents=True, exist_ok=True)
            self._files[job_id] = directory / EVENTS_FILE
            self._files[job_id].write_text("")
        return self._files[job_id]


def _line(entry: Event | Command) -> dict[str, Any]:
    line: dict[str, Any] = {"command" if isinstance(entry, Command) else "event": type(entry).__name__}
    for field in fields(entry):
        key, value = _SHOWN.get(field.name), getattr(entry, field.name)
        if key is not None and value is not None:
            line[key] = value if isinstance(value, str | int | float) else _plain(value)
    return line


def _plain(value: Any) -> Any:
    """Device ids as a list; a reason by its sentence."""
    return list(value) if isinstance(value, tuple) else value.text
