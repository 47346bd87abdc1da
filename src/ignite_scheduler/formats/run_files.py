"""Names of the files in a job's directory of a run.

``plan.json`` holds the plan, ``metrics.jsonl`` a line a step, ``timeline.json`` measured steps in the format of the
planned one, ``events.jsonl`` what happened to the job and what was decided about it, ``memory.json`` what
each rank held at most, ``observation.json`` planned against measured, as ``ignite calibrate`` reads it. Each attempt
has a directory of its own in ``attempts/``; ``saves.jsonl`` in there has bytes and seconds of each of its checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PLAN_FILE: Final = "plan.json"
METRICS_FILE: Final = "metrics.jsonl"
TIMELINE_FILE: Final = "timeline.json"
EVENTS_FILE: Final = "events.jsonl"
SAVES_FILE: Final = "saves.jsonl"
MEMORY_FILE: Final = "memory.json"
OBSERVATION_FILE: Final = "observation.json"


def attempt_directory(directory: Path, epoch: int) -> Path:
    """What belongs to one attempt alone, below the job's directory."""
    return directory / "attempts" / f"{epoch:04d}"
