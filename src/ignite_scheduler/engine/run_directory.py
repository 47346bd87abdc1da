"""What a run leaves behind: a line of metrics for each step and the measured timeline of the last ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.formats.run_files import MEMORY_FILE, METRICS_FILE, TIMELINE_FILE
from ignite_scheduler.formats.timeline import StepTimes, measured_document
from ignite_scheduler.model import Plan
from ignite_scheduler.pipeline import Interval, Schedule, Transfer

if TYPE_CHECKING:
    from ignite_scheduler.engine.memory import MemoryUse


class Metrics:
    """Appends to ``metrics.jsonl``; lines of steps that a resumed run does again are dropped first."""

    def __init__(self, directory: Path, *, done: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / METRICS_FILE
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) is not None and (_step_of(line) or 0) <= done]
        if len(kept) < len(lines):
            _put(path, "".join(line + "\n" for line in kept))
        self._file = path.open("a", buffering=1)

    def write(self, *, step: int, samples: int, seconds: float, **values: float | None) -> None:
        """Add the line of ``step`` (from 1)."""
        line: dict[str, Any] = {"step": step}
        line |= {key: value for key, value in values.items() if value is not None}
        line |= {"step_s": seconds, "samples_per_s": samples / seconds if seconds > 0 else None}
        self._file.write(json.dumps({k: _plain(v) for k, v in line.items()}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _step_of(line: str) -> int | None:
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """What one rank did in one step, on the machine's monotonic clock; ``finish`` is its optimizer update."""

    step: int
    start: float
    end: float
    intervals: tuple[Interval, ...]
    transfers: tuple[Transfer, ...]
    finish: tuple[float, float]


def write_timeline(
    directory: Path, schedule: Schedule, ranks: Sequence[Sequence[MeasuredStep]], description: Mapping[str, Any]
) -> None:
    """Write ``timeline.json`` from what every rank measured; times count from the start of each step on rank 0."""
    by_rank = [{measured.step: measured for measured in rank} for rank in ranks]
    common = sorted(set.intersection(*(set(rank) for rank in by_rank)))
    steps = [_step_times([rank[step] for rank in by_rank]) for step in common]
    _put(directory / TIMELINE_FILE, json.dumps(measured_document(schedule, steps, description)) + "\n")


def write_memory(directory: Path, plan: Plan, uses: Sequence[MemoryUse]) -> None:
    """Write ``memory.json``: for each device of each stage what its rank held at most, beside what was planned.

    ``idle_bytes`` are those of the rank before it made its layers, ``peak_bytes`` the most in use in the step that was
    measured, the idle ones included; ``planned_bytes`` are to be held against the difference. ``resident_bytes`` are
    the most that the process ever had, with what its allocator kept or wasted. Null where the platform does not tell.
    """
    rank_of = {device: rank for rank, device in enumerate(plan.device_ids)}
    entries = [
        {
            "stage": stage.index,
            "device": share.device,
            "rank": rank_of[share.device],
            "idle_bytes": uses[rank_of[share.device]].idle,
            "peak_bytes": uses[rank_of[share.device]].peak,
            "resident_bytes": uses[rank_of[share.device]].resident,
            "planned_bytes": share.memory,
        }
        for stage in plan.stages
        for share in stage.devices
    ]
    _put(directory / MEMORY_FILE, json.dumps(entries, indent=1) + "\n")


def _put(path: Path, text: str) -> None:
    """Write a file that others may be reading. It need not outlive a crash of the machine: no step waits for a disk."""
    writing = path.with_name(f".{path.name}")
    writing.write_text(text)
    writing.replace(path)


def _step_times(parts: Sequence[MeasuredStep]) -> StepTimes:
    """One step of all ranks, by rank, laid together."""
    origin = parts[0].start
    return StepTimes(
        step_index=parts[0].step,
        step=max(part.end for part in parts) - origin,
        intervals=tuple(
            i._replace(start=i.start - origin, end=i.end - origin) for part in parts for i in part.intervals
        ),
        transfers=tuple(
            t._replace(start=t.start - origin, end=t.end - origin) for part in parts for t in part.transfers
        ),
        finishes=tuple((row, part.finish[0] - origin, part.finish[1] - origin) for row, part in enumerate(parts)),
    )
