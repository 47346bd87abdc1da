"""``ignite/timeline/v1``: when each action of one or more steps started and ended, planned or measured.

One format for both, so that they can be laid over each other. Times of a step count from its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.errors import InputError, ScheduleError
from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.pipeline import Action, Interval, Schedule, Timeline, Transfer, format_schedule
from ignite_scheduler.units import format_names

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.timeline import StepShape

TIMELINE_SCHEMA: Final = "ignite/timeline/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One step in time, in seconds from its start.

    ``finishes``: (row, start, end) of each row's all-reduce and optimizer update. ``step_index`` counts training steps
    from 1; 0 for a planned step.
    """

    step_index: int
    step: float
    intervals: tuple[Interval, ...]
    transfers: tuple[Transfer, ...]
    finishes: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRecord:
    """What a timeline document holds.

    ``devices``: the device of each row, the ids of a group joined by ``, ``; empty where the document names none.
    """

    measured: bool
    job: str | None
    devices: tuple[str, ...]
    steps: tuple[StepTimes, ...]

    @property
    def row_names(self) -> tuple[str, ...]:
        """What each row is called where there is room for one device."""
        return tuple(format_names(devices.split(", ")) for devices in self.devices)


def planned_document(timeline: Timeline, *, job: str, devices: Sequence[str]) -> dict[str, Any]:
    """The document of a planned step; ``devices`` holds the device of each row of the schedule."""
    row_of = {interval.action.stage_index: interval.row for interval in timeline.intervals}
    step = StepTimes(
        step_index=0,
        step=float(timeline.step),
        intervals=timeline.intervals,
        transfers=timeline.transfers,
        finishes=tuple((row_of[stage], float(a), float(b)) for stage, (a, b) in enumerate(timeline.finishes)),
    )
    description = {"job": job, "devices": [{"id": device} for device in devices]}
    return _document(timeline.schedule, [step], description, measured=False)


def measured_document(schedule: Schedule, steps: Sequence[StepTimes], description: Mapping[str, Any]) -> dict[str, Any]:
    """The document of measured steps; ``description`` holds its further keys: job, plan, devices, emulation."""
    return _document(schedule, steps, description, measured=True)


def load_timeline(path: str | Path) -> TimelineRecord:
    """The timeline in the file at ``path``.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file is wrong.
    """
    return _record(read_source(path))


def parse_timeline(data: Mapping[str, Any]) -> TimelineRecord:
    """The timeline of a document that is plain data already."""
    return _record(Source(data=data))


def _document(
    schedule: Schedule, steps: Sequence[StepTimes], description: Mapping[str, Any], *, measured: bool
) -> dict[str, Any]:
    return {
        "schema": TIMELINE_SCHEMA,
        "measured": measured,
        "schedule": format_schedule(schedule).splitlines(),
        **description,
        "steps": [_step_entry(step) for step in steps],
    }


def _step_entry(step: StepTimes) -> dict[str, Any]:
    return {
        "step": step.step_index,
        "step_s": step.step,
        "intervals": [
            {"action": str(i.action), "row": i.row, "start_s": float(i.start), "end_s": float(i.end)}
            for i in step.intervals
        ],
        "transfers": [
            {
                "source": t.source,
                "target": t.target,
                "kind": t.kind,
                "microbatch": t.microbatch_index,
                "start_s": float(t.start),
                "end_s": float(t.end),
            }
            for t in step.transfers
        ],
        "finishes": [{"row": row, "start_s": start, "end_s": end} for row, start, end in step.finishes],
    }


def _record(source: Source) -> TimelineRecord:
    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.timeline import TimelineShape

    shape = check(TimelineShape, source)
    return TimelineRecord(
        measured=shape.measured,
        job=shape.job,
        devices=tuple(device.id for device in shape.devices),
        steps=tuple(_step(source, index, step) for index, step in enumerate(shape.steps)),
    )


def _step(source: Source, index: int, step: StepShape) -> StepTimes:
    return StepTimes(
        step_index=step.step,
        step=step.step_s,
        intervals=tuple(
            Interval(_action(source, index, number, entry.action), entry.row, entry.start_s, entry.end_s)
            for number, entry in enumerate(step.intervals)
        ),
        transfers=tuple(
            Transfer(t.source, t.target, t.kind, t.microbatch, t.start_s, t.end_s, (t.source, t.target))
            for t in step.transfers
        ),
        finishes=tuple((finish.row, finish.start_s, finish.end_s) for finish in step.finishes),
    )


def _action(source: Source, index: int, number: int, text: str) -> Action:
    try:
        return Action.parse(text)
    except (ScheduleError, InputError) as error:
        raise source.error(("steps", index, "intervals", number, "action"), str(error)) from None
