"""What a run leaves behind: a line of metrics for each step and the measured timeline of the last ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.pipeline import Interval, Schedule, Transfer, format_schedule

TIMELINE_SCHEMA: Final = "ignite/timeline/v1"
METRICS: Final = "metrics.jsonl"
TIMELINE: Final = "timeline.json"


class Metrics:
    """Appends to ``metrics.jsonl``; lines of steps that a resumed run does again are dropped first."""

    def __init__(self, directory: Path, *, done: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / METRICS
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) is not None and (_step_of(line) or 0) <= done]
        if len(kept) < len(lines):
            writing = path.with_name(f".{METRICS}")
            writing.write_text("".join(line + "\n" for line in kept))
            writing.replace(path)
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
    steps = []
    by_rank = [{measured.step: measured for measured in rank} for rank in ranks]
    for step in sorted(set.intersection(*(set(rank) for rank in by_rank))):
        parts = [rank[step] for rank in by_rank]
        origin = parts[0].start
        steps.append(
            {
                "step": step,
                "step_s": max(part.end for part in parts) - origin,
                "intervals": [
                    {"action": str(i.action), "row": i.row, "start_s": i.start - origin, "end_s": i.end - origin}
                    for part in parts
                    for i in part.intervals
                ],
                "transfers": [
                    {
                        "source": t.source,
                        "target": t.target,
                        "kind": t.kind,
                        "microbatch": t.microbatch_index,
                        "start_s": t.start - origin,
                        "end_s": t.end - origin,
                    }
                    for part in parts
                    for t in part.transfers
                ],
                "finishes": [
                    {"row": row, "start_s": part.finish[0] - origin, "end_s": part.finish[1] - origin}
                    for row, part in enumerate(parts)
                ],
            }
        )
    document = {
        "schema": TIMELINE_SCHEMA,
        "measured": True,
        "schedule": format_schedule(schedule).splitlines(),
        **description,
        "steps": steps,
    }
    writing = directory / f".{TIMELINE}"
    writing.write_text(json.dumps(document) + "\n")
    writing.replace(directory / TIMELINE)
