"""Names of the files in a job's directory of a run.

``plan.json`` holds the plan, ``metrics.jsonl`` a line a step, ``timeline.json`` measured steps in the format of the
planned one, ``events.jsonl`` what happened to the job and what was decided about it.
"""

from __future__ import annotations

from typing import Final

PLAN_FILE: Final = "plan.json"
METRICS_FILE: Final = "metrics.jsonl"
TIMELINE_FILE: Final = "timeline.json"
EVENTS_FILE: Final = "events.jsonl"
