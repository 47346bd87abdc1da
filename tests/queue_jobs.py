"""Small clusters and workloads for tests of the scheduler, shared by unit and property tests."""

from __future__ import annotations

from collections.abc import Iterable

from ignite_scheduler.control.events import JobSubmitted
from ignite_scheduler.formats.workload import TableJob, WorkloadJob
from ignite_scheduler.model import (
    Bottleneck,
    Bound,
    Cluster,
    Device,
    LinkRule,
    Node,
    Plan,
    Prediction,
    QueueTerms,
    Share,
    Stage,
)

MINUTE = 60.0


def cluster(nodes: dict[str, dict[str, int]], *, prices: dict[str, float] | None = None) -> Cluster:
    """Node → kind → number of devices; all links alike between nodes, faster within."""
    return Cluster(
        name="test",
        nodes=tuple(
            Node(
                name=name,
                devices=tuple(
                    Device(
                        id=f"{name}/{kind}-{index}",
                        node=name,
                        kind=kind,
                        memory=16e9,
                        price=None if prices is None else prices.get(kind),
                    )
                    for kind, count in kinds.items()
                    for index in range(count)
                ),
            )
            for name, kinds in nodes.items()
        ),
        links=(
            LinkRule(bandwidth=1.25e9, latency=1e-4),
            LinkRule(bandwidth=25e9, latency=0.0, within=True),
        ),
    )


def table_job(
    name: str,
    submit: float,
    seconds: dict[str, float],
    *,
    deadline: float | None = None,
    priority: int = 0,
    weight: float = 1.0,
    budget: float | None = None,
    max_time: float | None = None,
) -> WorkloadJob:
    """A job that takes ``seconds[mix]`` on each mix such as ``"F:1+S:2"``; its work is one unit."""
    rates = {
        tuple(sorted((part.split(":")[0], int(part.split(":")[1])) for part in mix.split("+"))): 1.0 / each
        for mix, each in seconds.items()
    }
    terms = QueueTerms(deadline=deadline, priority=priority, weight=weight, budget=budget, max_time=max_time)
    return WorkloadJob(submit=submit, job=TableJob(name=name, rates=rates, total=1.0, queue=terms))


def plan_on(*device_ids: str) -> Plan:
    """A plan with a stage on each of the devices: 0.5 s a step (1 s at worst), 500 J in 10 s."""
    stages = tuple(
        Stage(
            index=index,
            layers=(f"l{index}",),
            devices=(Share(device=device_id, samples=1, memory=1.0, memory_limit=2.0),),
            forward=1.0,
            backward=2.0,
            in_flight=1,
        )
        for index, device_id in enumerate(device_ids)
    )
    predicted = Prediction(
        step=0.5,
        step_low=0.5,
        step_high=1.0,
        samples_per_second=1.0,
        bubble_fraction=0.0,
        bottleneck=Bottleneck(kind="stage", index=0, busy=3.0),
        transfer_bytes=0.0,
        duration=10.0,
        energy=500.0,
    )
    bound = Bound(step=0.5, gap=0.0, method="test", optimal=True)
    return Plan(
        job="j", schedule="1f1b", precision="fp32", microbatches=(1,), stages=stages, predicted=predicted, bound=bound
    )


def submitted(job_id: str, at: float = 0.0, *, work: float = 100.0, **terms: object) -> JobSubmitted:
    """A submission of ``work`` units."""
    return JobSubmitted(at=at, job_id=job_id, work=work, terms=QueueTerms(**terms))  # type: ignore[arg-type]


def starts(rows: Iterable[object]) -> dict[str, float]:
    """Job → first start, in minutes."""
    return {row.job: row.start / MINUTE for row in rows}  # type: ignore[attr-defined]


def ends(rows: Iterable[object]) -> dict[str, float]:
    """Job → finish, in minutes."""
    return {row.job: row.finish / MINUTE for row in rows}  # type: ignore[attr-defined]
