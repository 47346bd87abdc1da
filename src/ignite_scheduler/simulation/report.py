"""What a policy made of a workload, in the figures that users compare.

Meanings (times in seconds, on the workload's clock)
----------------------------------------------------
JCT
    Finish − submission, over finished jobs. Percentiles interpolate linearly.
makespan
    End of the last attempt − first submission.
queueing delay
    First start − submission, over started jobs.
utilisation
    Time for which devices are held ÷ (devices of the cluster × makespan).
cost, energy
    Σ price × time held, Σ power × time held over all attempts; None if a figure of any of them is unknown.
fairness (finish-time ρ)
    JCT ÷ the time that the job would have taken on its share of the cluster: its fastest run alone × max(1, its
    devices × mean number of jobs in the system during its life ÷ devices of the cluster). The worst over finished
    jobs.
promise error
    |JCT − promised JCT| ÷ promised JCT, the promised finish being the middle of its range.

References
----------
ρ: K. Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling", NSDI 2020, §4.
Deviation: the share is of devices of any kind, and the job's speed on it is taken as proportional to its number of
devices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Final

from ignite_scheduler.control import Controller, JobRecord, State
from ignite_scheduler.cost.money import known_product, known_sum
from ignite_scheduler.model import Cluster, Infeasible
from ignite_scheduler.simulation.world import Segment

SCHEMA: Final = "ignite/report/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job under one policy. Times are None where the thing did not happen or was not foretold.

    ``devices`` is the number of devices of the last attempt, ``rejection`` why the job was never admitted.
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
    rejection: Infeasible | None
    state: str
    rho: float | None

    @property
    def jct(self) -> float | None:
        """Finish − submission."""
        return None if self.finish is None else self.finish - self.submit

    @property
    def queueing(self) -> float | None:
        """First start − submission."""
        return None if self.start is None else self.start - self.submit

    @property
    def met(self) -> bool | None:
        """Whether it finished by its deadline (seconds from submission); None without one."""
        if self.deadline is None:
            return None
        return self.jct is not None and self.jct <= self.deadline * (1 + 1e-9)

    @property
    def promise_error(self) -> float | None:
        """Relative distance of the JCT from the promised one."""
        if self.jct is None or self.promised_finish_low is None or self.promised_finish_high is None:
            return None
        promised = (self.promised_finish_low + self.promised_finish_high) / 2 - self.submit
        return abs(self.jct - promised) / promised if promised > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """The figures of one policy (see the module's text), a row for each job, and what ran where.

    ``job_seconds`` is the integral over time of the number of jobs in the system, ``decision`` are CPU seconds.
    """

    policy: str
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
    job_seconds: float
    rows: tuple[JobRow, ...]
    segments: tuple[Segment, ...]


def summarise(
    *,
    policy: str,
    cluster: Cluster,
    controller: Controller,
    segments: Sequence[Segment],
    alone: Mapping[str, tuple[float, int]],
    job_seconds: float,
    decision_seconds: Sequence[float],
    cpu_seconds: float,
) -> PolicyResult:
    """The figures of a simulation that has ended. O(jobs log jobs + segments).

    ``alone``: job id → seconds of its fastest run on the idle cluster, and the devices that this takes.
    """
    rows = _rows(policy, controller, segments, alone, len(cluster.devices))
    jcts = sorted(row.jct for row in rows if row.jct is not None)
    delays = [row.queueing for row in rows if row.queueing is not None]
    errors = sorted(row.promise_error for row in rows if row.promise_error is not None)
    rhos = [row.rho for row in rows if row.rho is not None]
    ends = [segment.end for segment in segments]  # also of jobs that were stopped at their max_time
    makespan = max(ends) - min(row.submit for row in rows) if ends else None
    held = sum(segment.seconds * len(segment.device_ids) for segment in segments)
    prices = {device.id: device.price for device in cluster.devices}
    return PolicyResult(
        policy=policy,
        jobs=len(rows),
        finished=sum(row.finish is not None for row in rows),
        jct_mean=_mean(jcts),
        jct_p50=percentile(jcts, 50),
        jct_p95=percentile(jcts, 95),
        jct_p99=percentile(jcts, 99),
        makespan=makespan,
        queueing_delay_mean=_mean(delays),
        deadlines=sum(row.deadline is not None for row in rows),
        deadlines_met=sum(row.met is True for row in rows),
        utilisation=held / (len(cluster.devices) * makespan) if makespan and cluster.devices else None,
        device_hours=held / 3600.0,
        cost=known_sum(
            known_product(prices.get(each), segment.seconds) for segment in segments for each in segment.device_ids
        ),
        energy=known_sum(known_product(segment.power, segment.seconds) for segment in segments),
        fairness_worst_rho=max(rhos, default=None),
        preemptions=sum(row.preemptions for row in rows),
        promise_error_p50=percentile(errors, 50),
        promise_error_p90=percentile(errors, 90),
        promise_error_p99=percentile(errors, 99),
        decision_mean=_mean(decision_seconds),
        decision_max=max(decision_seconds, default=None),
        cpu=cpu_seconds,
        job_seconds=job_seconds,
        rows=rows,
        segments=tuple(segments),
    )


def _rows(
    policy: str,
    controller: Controller,
    segments: Sequence[Segment],
    alone: Mapping[str, tuple[float, int]],
    num_devices: int,
) -> tuple[JobRow, ...]:
    last = {segment.job: len(segment.device_ids) for segment in segments}
    records = list(controller.jobs.values())
    population = _Population(records)
    return tuple(
        JobRow(
            policy=policy,
            job=record.job_id,
            submit=record.spec.at,
            start=record.first_started,
            finish=record.ended_at if record.state is State.FINISHED else None,
            devices=last.get(record.job_id, 0),
            preemptions=record.preemptions,
            promised_start=promise.start if promise else None,
            promised_finish_low=promise.finish_low if promise else None,
            promised_finish_high=promise.finish_high if promise else None,
            deadline=record.spec.terms.deadline,
            rejection=record.rejection,
            state=record.state,
            rho=_rho(record, alone.get(record.job_id), population, num_devices),
        )
        for record in records
        for promise in (controller.promises.get(record.job_id),)
    )


class _Population:
    """Number of jobs in the system over time, as a running integral that can be asked for a mean over any span."""

    def __init__(self, records: Iterable[JobRecord]) -> None:
        changes = []
        for record in records:
            if record.rejection is None:
                changes.append((record.spec.at, 1))
                if record.ended_at is not None:
                    changes.append((record.ended_at, -1))
        changes.sort()
        self._times = [time for time, _ in changes]
        self._counts = list(accumulate(change for _, change in changes))
        spans = (
            count * (after - before)
            for count, before, after in zip(self._counts, self._times, self._times[1:], strict=False)
        )
        self._integral = list(accumulate(spans, initial=0.0))

    def _at(self, time: float) -> float:
        index = bisect_right(self._times, time) - 1
        if index < 0:
            return 0.0
        return self._integral[index] + self._counts[index] * (time - self._times[index])

    def mean(self, start: float, end: float) -> float:
        """Mean number of jobs in the system from ``start`` to ``end``."""
        return (self._at(end) - self._at(start)) / (end - start) if end > start else 1.0


def _rho(record: JobRecord, alone: tuple[float, int] | None, population: _Population, num_devices: int) -> float | None:
    if alone is None or record.state is not State.FINISHED or record.ended_at is None or alone[0] <= 0:
        return None
    seconds, devices = alone
    share = max(1.0, devices * population.mean(record.spec.at, record.ended_at) / num_devices)
    return (record.ended_at - record.spec.at) / (seconds * share)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Percentile of ascending values, linear between neighbours; None of nothing.

    >>> percentile([1.0, 2.0, 4.0], 75)
    3.0
    """
    if not ordered:
        return None
    place = (len(ordered) - 1) * percent / 100.0
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


_UNITS: Final = {
    **dict.fromkeys(("jct_mean", "jct_p50", "jct_p95", "jct_p99", "makespan", "queueing_delay_mean"), "_s"),
    **dict.fromkeys(("decision_mean", "decision_max", "cpu"), "_s"),
    "energy": "_j",
}
_NOT_SHOWN: Final = frozenset({"policy", "job_seconds", "rows", "segments"})


def report_document(results: Iterable[PolicyResult], *, cluster: str, workload: str) -> dict[str, Any]:
    """The document ``ignite/report/v1``: figures by policy, each unit in its key."""
    policies = {
        result.policy: {
            _key(field.name): getattr(result, field.name) for field in fields(result) if field.name not in _NOT_SHOWN
        }
        for result in results
    }
    return {"schema": SCHEMA, "cluster": cluster, "workload": workload, "policies": policies}


def _key(name: str) -> str:
    if name in ("decision_mean", "decision_max"):
        return name.replace("_", "_s_")
    return name + _UNITS.get(name, "")


CSV_COLUMNS: Final = (
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
"""Columns of ``--jobs-csv``, in order."""


def csv_rows(results: Iterable[PolicyResult]) -> Iterable[dict[str, Any]]:
    """Rows of ``--jobs-csv``: what did not happen is empty, ``met`` is true or false where there is a deadline.

    ``rejected`` is the machine word of the refusal, empty for an admitted job.
    """
    for result in results:
        for row in result.rows:
            values = (
                row.policy,
                row.job,
                row.submit,
                row.start,
                row.finish,
                row.jct,
                row.queueing,
                row.devices,
                row.preemptions,
                row.promised_start,
                row.promised_finish_low,
                row.promised_finish_high,
                row.deadline,
                None if row.met is None else str(row.met).lower(),
                row.rejection.code if row.rejection else None,
            )
            yield {column: "" if value is None else value for column, value in zip(CSV_COLUMNS, values, strict=True)}
