"""Laws of the policies on random workloads: gangs whole, nobody delayed beyond what is promised, all work done."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.policy import POLICIES, Decision, View, make_policy
from ignite_scheduler.policy.ignite import Ignite
from ignite_scheduler.policy.reservations import releases_of, reserve
from ignite_scheduler.simulation import Costs, NodeFault, simulate
from queue_jobs import cluster, table_job

CLUSTER = cluster({"a": {"F": 2, "S": 1}, "b": {"F": 1, "S": 2}}, prices={"F": 2.0, "S": 1.0})
MIXES = ("F:1", "F:2", "F:3", "S:1", "S:2", "S:3", "F:1+S:1", "F:2+S:2")


@st.composite
def workloads(draw, max_options=3, **terms):
    jobs = []
    for index in range(draw(st.integers(1, 12))):
        mixes = draw(st.lists(st.sampled_from(MIXES), min_size=1, max_size=max_options, unique=True))
        seconds = {mix: float(draw(st.integers(1, 50))) for mix in mixes}
        drawn = {name: draw(strategy) for name, strategy in terms.items()}
        jobs.append(table_job(f"j{index}", float(draw(st.integers(0, 40))), seconds, **drawn))
    return jobs


TERMS = {
    "deadline": st.none() | st.integers(1, 200),
    "priority": st.integers(0, 2),
    "weight": st.sampled_from([0.5, 1.0, 4.0]),
}


def overlaps(segments):
    """Pairs of attempts that held one device at the same time."""
    by_device = {}
    for segment in segments:
        for device_id in segment.device_ids:
            by_device.setdefault(device_id, []).append((segment.start, segment.end))
    return [
        (device_id, before, after)
        for device_id, spans in by_device.items()
        for before, after in zip(sorted(spans), sorted(spans)[1:], strict=False)
        if after[0] < before[1]
    ]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=40, deadline=None)
@given(jobs=workloads(**TERMS))
def test_all_jobs_finish_on_devices_of_their_own(policy, jobs):
    result = simulate(jobs, CLUSTER, make_policy(policy), promises=False)
    assert all((row.finish is None) == (row.rejection is not None) for row in result.rows)
    assert overlaps(result.segments) == []
    # Little's law is an identity: the number of jobs in the system over time, and their times in it
    assert result.job_seconds == pytest.approx(sum(row.jct for row in result.rows if row.finish is not None))
    assert result.utilisation is None or 0 < result.utilisation <= 1 + 1e-9
    again = simulate(jobs, CLUSTER, make_policy(policy), promises=False)
    assert again.rows == result.rows
    assert again.segments == result.segments


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=25, deadline=None)
@given(
    jobs=workloads(),
    faults=st.lists(
        st.builds(
            lambda node, at, gone: NodeFault(node=node, at=float(at), back=float(at + gone)),
            st.sampled_from("ab"),
            st.integers(0, 60),
            st.integers(1, 30),
        ),
        max_size=3,
    ),
)
def test_lost_nodes_cost_time_but_no_job(policy, jobs, faults):
    result = simulate(jobs, CLUSTER, make_policy(policy), faults=faults, costs=Costs(startup=1.0, restart=2.0))
    assert result.finished == len(jobs)
    assert overlaps(result.segments) == []


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_fifo_starts_in_order_of_submission(jobs):
    rows = simulate(jobs, CLUSTER, make_policy("fifo"), promises=False).rows
    in_line = sorted(rows, key=lambda row: row.submit)
    assert [row.start for row in in_line] == sorted(row.start for row in rows)


@settings(max_examples=40, deadline=None)
@given(workloads(max_options=1))
def test_backfill_never_moves_the_heads_reservation_back(jobs):
    simulate(jobs, CLUSTER, Watched(make_policy("backfill"), lambda view: next(iter(view.queue))), promises=False)


@settings(max_examples=60, deadline=None)
@given(jobs=workloads(**TERMS), factor=st.sampled_from([0.0, 0.5, 2.0]))
def test_ignite_lets_no_job_starve(jobs, factor):
    """The bound that the policy states: the foremost overdue job starts no later than the present gangs end."""
    policy = Ignite(patience_factor=factor, patience_least=5.0)

    def foremost(view):
        due = [(job.queued_at + policy.patience(job), job.serial, job) for job in view.queue]
        at, _, job = min(due, key=lambda entry: entry[:2])
        return job if at <= view.now else None

    simulate(jobs, CLUSTER, Watched(policy, foremost, strict=True), promises=False)


@dataclass
class Watched:
    """A policy under watch: the job that ``whom`` names is never promised a later start than before."""

    policy: object
    whom: object
    strict: bool = False
    name: str = "watched"
    promised: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)

    def decide(self, view: View) -> Decision:
        decision = self.policy.decide(view)
        started = {start.job_id for start in decision.starts}
        for job_id in started & self.latest.keys():
            assert view.now <= self.latest[job_id] + 1e-6
        job = self.whom(view)
        if job is None:
            return decision
        self.latest.setdefault(job.job_id, max((end for end, _ in view.releases), default=view.now))
        if job.job_id in started:
            return decision
        free = dict(view.free)
        for start in decision.starts:
            for pool, count in start.option.needs:
                free[pool] -= count
        promise = reserve(job, view.now, free, releases_of(view, decision.starts))
        assert promise is not None
        finish = promise.start + promise.option.seconds
        assert finish <= self.promised.get(job.job_id, finish) + 1e-6, "the job that is next was delayed"
        self.promised[job.job_id] = finish
        if self.strict:
            assert promise.start <= self.latest[job.job_id] + 1e-6, "a job waits longer than the stated bound"
        return decision
