"""Planned and measured steps as one Chrome trace, which Perfetto and ``chrome://tracing`` open.

One process for each of the two, in it one thread for each row (named by its device) and for each direction of a link.
Measured steps follow one another; the planned step is repeated beside each, so that the two can be compared by eye.

References
----------
"Trace Event Format", the Chromium project: complete events (``ph: X``) in microseconds, metadata events (``ph: M``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from ignite_scheduler.formats.timeline import StepTimes, TimelineRecord

_NOUNS: Final = {"F": "forward", "B": "backward", "I": "input backward", "W": "weight backward"}
_MICRO: Final = 1e6
_PLANNED, _MEASURED = 1, 2


def chrome_trace(planned: TimelineRecord | None, measured: TimelineRecord | None = None) -> dict[str, Any]:
    """The trace document of a planned and a measured timeline; either may be missing."""
    steps = measured.steps if measured else ()
    starts = [0.0, *accumulate(step.step for step in steps)]
    events: list[dict[str, Any]] = []
    if planned is not None and planned.steps:
        repeated = [planned.steps[0]] * max(1, len(steps))
        events += _process(_PLANNED, "planned", planned, zip(starts, repeated, strict=False))
    if measured is not None:
        events += _process(_MEASURED, "measured", measured, zip(starts, steps, strict=False))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _process(
    process: int, name: str, record: TimelineRecord, placed: Iterable[tuple[float, StepTimes]]
) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", process, 0, name=f"{name}: {record.job}" if record.job else name)
    yield _metadata("process_sort_index", process, 0, sort_index=process)
    threads: dict[tuple[Any, ...], int] = {}
    events: list[dict[str, Any]] = []
    for start, step in placed:
        events += _step_events(process, start, step, threads)
    for order, key in enumerate(sorted(threads, key=_order)):
        yield _metadata("thread_name", process, threads[key], name=_thread_name(key, record.row_names))
        yield _metadata("thread_sort_index", process, threads[key], sort_index=order)
    yield from events


def _step_events(
    process: int, start: float, step: StepTimes, threads: dict[tuple[Any, ...], int]
) -> Iterator[dict[str, Any]]:
    def event(key: tuple[Any, ...], name: str, category: str, begin: float, end: float, **args: Any) -> dict[str, Any]:
        thread = threads.setdefault(key, len(threads) + 1)
        place = {"pid": process, "tid": thread, "ts": (start + begin) * _MICRO, "dur": max(0.0, end - begin) * _MICRO}
        return {"ph": "X", "name": name, "cat": category, **place, "args": {"step": step.step_index, **args}}

    for action, row, begin, end in step.intervals:
        noun, k = _NOUNS[action.kind], action.microbatch_index
        yield event(
            ("row", row), str(action), noun, float(begin), float(end), stage=action.stage_index, microbatch=k, what=noun
        )
    for send in step.transfers:
        what = "activations" if send.kind == "F" else "gradients"
        name = f"{send.kind}{send.microbatch_index}"
        key = ("link", send.source, send.target)
        yield event(
            key, name, "transfer", float(send.start), float(send.end), what=what, microbatch=send.microbatch_index
        )
    for row, begin, end in step.finishes:
        if end > begin:
            yield event(("row", row), "update", "update", begin, end, what="all-reduce and optimizer update")


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rows first, then links by their upper stage."""
    return (0, key[1], 0, 0) if key[0] == "row" else (1, min(key[1:]), max(key[1:]), key[1])


def _thread_name(key: tuple[Any, ...], devices: tuple[str, ...]) -> str:
    if key[0] == "link":
        return f"link {key[1]} → {key[2]}"
    row = key[1]
    return f"{row}: {devices[row]}" if row < len(devices) else f"row {row}"


def _metadata(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}
