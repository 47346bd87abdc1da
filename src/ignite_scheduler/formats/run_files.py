"""What stands in a run's directory, and how its lines are read back.

``plan.json`` (the plan), ``metrics.jsonl`` (a line a step), ``timeline.json`` (measured steps), ``events.jsonl`` (what
the controller was told), ``checkpoints/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.control.events import Event
from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.journal import JOURNAL_CODEC
from ignite_scheduler.formats.source import Source, parse_json, read_text

PLAN_FILE: Final = "plan.json"
METRICS_FILE: Final = "metrics.jsonl"
TIMELINE_FILE: Final = "timeline.json"
EVENTS_FILE: Final = "events.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One line of ``metrics.jsonl``: seconds of the step, samples per second; None = not finite or not taken."""

    step_index: int
    step: float
    loss: float | None
    grad_norm: float | None
    samples_per_second: float | None


def load_metrics(path: str | Path) -> tuple[StepMetrics, ...]:
    """The lines of a ``metrics.jsonl``; a last line that a crash left unfinished is dropped.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        A line other than the last is wrong; the message has its number.
    """
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.timeline import MetricsShape

    found = []
    for source in _lines(Path(path)):
        line = check(MetricsShape, source)
        found.append(
            StepMetrics(
                step_index=line.step,
                step=line.step_s,
                loss=line.loss,
                grad_norm=line.grad_norm,
                samples_per_second=line.samples_per_s,
            )
        )
    return tuple(found)


def event_line(event: Event) -> str:
    """The line of ``events.jsonl`` for an event of the controller, its time as ``at_s``, with the newline."""
    value = JOURNAL_CODEC.encode_event(event)
    return json.dumps({"at_s": value.pop("at"), **value}, ensure_ascii=False, allow_nan=False) + "\n"


def load_events(path: str | Path) -> tuple[Event, ...]:
    """The events of an ``events.jsonl``; a last line that a crash left unfinished is dropped."""
    found = []
    for source in _lines(Path(path)):
        line = source.data if isinstance(source.data, dict) else {}
        value = {"at" if key == "at_s" else key: part for key, part in line.items()}
        try:
            found.append(JOURNAL_CODEC.decode_event(value))
        except DocumentError as error:
            raise source.error((), error.message) from None
    return tuple(found)


def _lines(path: Path) -> Iterator[Source]:
    text = read_text(path)
    lines = text.split("\n")  # not splitlines: a text in JSON may hold other line ends as they are
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            data: Any = parse_json(line, str(path), first_line=number)
        except DocumentError:
            if number == len(lines) and not text.endswith("\n"):
                return
            raise
        yield Source(data=data, file=str(path), json_text=line, first_line=number)
