"""ignite/report/v1 and the jobs table: names of keys and columns, nulls and empty cells."""

from __future__ import annotations

import csv
import io
import math

from ignite_scheduler.formats import JobRow, PolicyFigures, jobs_csv, report_document
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.shapes.report import ReportShape
from ignite_scheduler.formats.source import Source

FIGURES = PolicyFigures(
    jobs=2,
    finished=1,
    jct_mean=10.0,
    jct_p50=10.0,
    jct_p95=10.0,
    jct_p99=10.0,
    makespan=12.0,
    queueing_delay_mean=1.0,
    deadlines=0,
    deadlines_met=0,
    utilisation=0.5,
    device_hours=0.01,
    cost=None,
    energy=math.nan,
    fairness_worst_rho=None,
    preemptions=0,
    promise_error_p50=0.0,
    promise_error_p90=0.1,
    promise_error_p99=0.2,
    decision_mean=1e-5,
    decision_max=1e-4,
    cpu=0.1,
)


def test_the_keys_are_those_of_the_format() -> None:
    document = report_document(cluster="lab", workload="w.jsonl", policies={"fifo": FIGURES})
    assert list(document["policies"]["fifo"]) == [
        "jobs", "finished", "jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "makespan_s", "queueing_delay_mean_s",
        "deadlines", "deadlines_met", "utilisation", "device_hours", "cost", "energy_j", "fairness_worst_rho",
        "preemptions", "promise_error_p50", "promise_error_p90", "promise_error_p99", "decision_s_mean",
        "decision_s_max", "cpu_s",
    ]  # fmt: skip
    assert document["policies"]["fifo"]["energy_j"] is None
    assert check(ReportShape, Source(data=document)).policies["fifo"].makespan_s == 12.0


def row(**changes: object) -> JobRow:
    values = {
        "policy": "fifo",
        "job": "a, b",
        "submit": 1.0,
        "start": 3.0,
        "finish": 10.0,
        "devices": 4,
        "preemptions": 0,
        "promised_start": 3.0,
        "promised_finish_low": 9.0,
        "promised_finish_high": 11.0,
        "deadline": None,
        "met": None,
        "rejected": False,
    }
    return JobRow(**values | changes)  # type: ignore[arg-type]


def test_the_jobs_table() -> None:
    text = jobs_csv([row(), row(job="c", start=None, finish=None, deadline=5.0, met=False, rejected=True)])
    assert text.splitlines()[0] == (
        "policy,job,submit_s,start_s,finish_s,jct_s,queueing_s,devices,preemptions,promised_start_s,"
        "promised_finish_low_s,promised_finish_high_s,deadline_s,met,rejected"
    )
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["job"], first["jct_s"], first["queueing_s"], first["devices"]) == ("a, b", "9.0", "2.0", "4")
    assert (first["deadline_s"], first["met"], first["rejected"]) == ("", "", "false")
    assert (second["start_s"], second["jct_s"], second["met"], second["rejected"]) == ("", "", "false", "true")
