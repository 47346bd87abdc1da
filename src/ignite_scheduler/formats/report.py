"""``ignite/report/v1`` and the jobs table of ``ignite simulate``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

REPORT_SCHEMA: Final = "ignite/report/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """What a policy did to a workload. Seconds, joules, money; None = unknown, or nothing to take it of.

    ``jct_*``: finish − submission of the finished jobs. ``makespan``: end of the last − submission of the first.
    ``queueing_delay_mean``: mean time from submission to the first start. ``utilisation``: held device time ÷
    (devices × makespan). ``fairness_worst_rho``: the largest finish time relative to a fair share of the cluster.
    ``promise_error_*``: quantiles of |finish − promised finish| ÷ job's own JCT. ``decision_*``: time of the core for
    one event.
    """

    jobs: int
    finished: int
    jct_mean: float | None
    jct_p50: float | None
    jct_p95: float | None
    jct_p99: float | None
    makespan: float | None
    queueing_delay_mean: float | None
    deadlines: int
    deadlines_met: int
    utilisation: float | None
    device_hours: float
    cost: float | None
    energy: float | None
    fairness_worst_rho: float | None
    preemptions: int
    promise_error_p50: float | None
    promise_error_p90: float | None
    promise_error_p99: float | None
    decision_mean: float | None
    decision_max: float | None
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What became of one job under one policy. Seconds from the workload's start; None = it never came to that.

    ``devices``: the most that it held at once. ``deadline`` is an instant here, not a duration. ``met`` is None for a
    job without deadline. ``rejected``: it was told at submission that it cannot be run as asked.
    """

    policy: str
    job: str
    submit: float
    start: float | None
    finish: float | None
    devices: int
    preemptions: int
    promised_start: float | None
    promised_finish_low: float | None
    promised_finish_high: float | None
    deadline: float | None
    met: bool | None
    rejected: bool


_UNITS: Final = {
    **{name: f"{name}_s" for name in ("jct_mean", "jct_p50", "jct_p95", "jct_p99", "makespan", "queueing_delay_mean")},
    "energy": "energy_j",
    "decision_mean": "decision_s_mean",
    "decision_max": "decision_s_max",
    "cpu": "cpu_s",
}

COLUMNS: Final = (
    "policy",
    "job",
    "submit_s",
    "start_s",
    "finish_s",
    "jct_s",
    "queueing_s",
    "devices",
    "preemptions",
    "promised_start_s",
    "promised_finish_low_s",
    "promised_finish_high_s",
    "deadline_s",
    "met",
    "rejected",
)


def report_document(*, cluster: str, workload: str, policies: Mapping[str, PolicyFigures]) -> dict[str, Any]:
    """The report of a workload played under several policies; a figure that is not finite is null."""
    return {
        "schema": REPORT_SCHEMA,
        "cluster": cluster,
        "workload": workload,
        "policies": {name: _figures_entry(figures) for name, figures in policies.items()},
    }


def jobs_csv(rows: Iterable[JobRow]) -> str:
    """The jobs table as CSV with a header; an unknown value is an empty cell, a flag ``true`` or ``false``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(_cells(row))
    return out.getvalue()


def _figures_entry(figures: PolicyFigures) -> dict[str, Any]:
    found = {}
    for name in PolicyFigures.__dataclass_fields__:
        value = getattr(figures, name)
        found[_UNITS.get(name, name)] = None if isinstance(value, float) and not math.isfinite(value) else value
    return found


def _cells(row: JobRow) -> list[object]:
    def flag(value: bool | None) -> str:
        return "" if value is None else str(value).lower()

    return [
        row.policy,
        row.job,
        row.submit,
        row.start,
        row.finish,
        None if row.finish is None else row.finish - row.submit,
        None if row.start is None else row.start - row.submit,
        row.devices,
        row.preemptions,
        row.promised_start,
        row.promised_finish_low,
        row.promised_finish_high,
        row.deadline,
        flag(row.met),
        flag(row.rejected),
    ]
