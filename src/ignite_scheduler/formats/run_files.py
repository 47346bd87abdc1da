"""Names of the files in a job's directory of a run.

``plan.json`` holds the plan, ``metrics.jsonl`` a line a step, ``timeline.json`` measured steps in the format of the
planned one, ``events.jsonl`` what happened to the job and what was decided about it, ``checkpoints.jsonl`` bytes and
seconds of each save, ``memory.json`` what each rank held at most, ``observation.json`` planned against measured, as
``ignite calibrate`` reads it.
"""

from __future__ import annotations

from typing import Final

PLAN_FILE: Final = "plan.json"
METRICS_FILE: Final = "metrics.jsonl"
TIMELINE_FILE: Final = "timeline.json"
EVENTS_FILE: Final = "events.jsonl"
CHECKPOINTS_FILE: Final = "checkpoints.jsonl"
MEMORY_FILE: Final = "memory.json"
OBSERVATION_FILE: Final = "observation.json"
