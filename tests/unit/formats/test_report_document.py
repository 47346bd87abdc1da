"""ignite/report/v1: what the simulator writes is what the schema says."""

from __future__ import annotations

from ignite_scheduler.api import simulate
from ignite_scheduler.formats import TableJob, WorkloadJob, parse_cluster
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.shapes.report import ReportShape
from ignite_scheduler.formats.source import Source
from ignite_scheduler.model import QueueTerms


def test_a_report_fits_its_shape() -> None:
    devices = [{"kind": "gpu", "memory": "8GB", "count": 2}]
    cluster = parse_cluster({"version": 1, "name": "c", "nodes": [{"name": "n", "devices": devices}]})
    mix = (("gpu", 2),)
    jobs = [
        WorkloadJob(submit=0.0, job=TableJob(name="a", rates={mix: 2.0}, total=20.0)),
        WorkloadJob(submit=1.0, job=TableJob(name="b", rates={mix: 1.0}, total=5.0, queue=QueueTerms(deadline=60.0))),
    ]

    document = simulate(jobs, cluster, policies=("fifo",)).to_dict()

    figures = check(ReportShape, Source(data=document)).policies["fifo"]
    assert (figures.jobs, figures.finished, figures.makespan_s) == (2, 2, 15.0)
    assert figures.cost is None
