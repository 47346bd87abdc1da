"""The simulator against hand-worked tables and queueing theory."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ignite_scheduler.errors import InputError, InvariantError
from ignite_scheduler.formats.workload import WorkloadJob
from ignite_scheduler.model import Batch, Checkpointing, Infeasible, Job, Reference
from ignite_scheduler.policy import Decision, make_policy
from ignite_scheduler.policy.ignite import Ignite
from ignite_scheduler.simulation import (
    CSV_COLUMNS,
    Costs,
    NodeFault,
    csv_rows,
    report_document,
    simulate,
)
from queue_jobs import cluster, ends, plan_on, starts, table_job

ONE = cluster({"n": {"V": 1}}, prices={"V": 0.5})


def queue(num_jobs, load, seed):
    """Poisson arrivals, exponential service of mean 1, one device."""
    draw = random.Random(seed)
    time = 0.0
    jobs = []
    for index in range(num_jobs):
        time += draw.expovariate(load)
        jobs.append(table_job(f"j{index}", time, {"V:1": draw.expovariate(1.0)}))
    return jobs


def test_fifo_on_one_device_is_lindleys_recursion():
    jobs = queue(500, 0.8, seed=1)
    rows = simulate(jobs, ONE, make_policy("fifo"), promises=False).rows
    free = 0.0
    for job, row in zip(jobs, rows, strict=True):
        start = max(free, job.submit)
        ((_, rate),) = job.job.rates.items()
        free = start + 1.0 / rate
        assert (row.start, row.finish) == (pytest.approx(start), pytest.approx(free))


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_mean_time_in_system_of_m_m_1(load):
    """1 ÷ (μ − λ), within four standard errors by batches that are long against the correlation time."""
    jobs = queue(6000, load, seed=7)
    result = simulate(jobs, ONE, make_policy("fifo"), promises=False)
    jcts = [row.jct for row in result.rows]
    means = [sum(jcts[first : first + 200]) / 200 for first in range(0, 6000, 200)]
    mean = sum(means) / len(means)
    error = (sum((each - mean) ** 2 for each in means) / (len(means) - 1) / len(means)) ** 0.5
    assert mean == pytest.approx(1 / (1 - load), abs=4 * error)
    assert result.utilisation == pytest.approx(load, rel=0.1)


def test_mean_time_in_system_of_m_m_3():
    """Erlang's C formula: the wait is C ÷ (c·μ − λ), here with c = 3, μ = 1, λ = 2.1."""
    rate, servers = 2.1, 3
    full = rate**servers / math.factorial(servers) / (1 - rate / servers)
    waits = full / (sum(rate**k / math.factorial(k) for k in range(servers)) + full)
    three = cluster({"n": {"V": 3}})
    jcts = [row.jct for row in simulate(queue(6000, rate, seed=11), three, make_policy("fifo"), promises=False).rows]
    means = [sum(jcts[first : first + 200]) / 200 for first in range(0, 6000, 200)]
    mean = sum(means) / len(means)
    error = (sum((each - mean) ** 2 for each in means) / (len(means) - 1) / len(means)) ** 0.5
    assert mean == pytest.approx(1 + waits / (servers - rate), abs=4 * error)


def test_start_up_checkpoints_and_restarts_are_charged():
    """100 steps of 1 s, a checkpoint of 2 s each 30 steps, start-up 5 s, restart 3 s; node away from 50 to 60."""
    job = Job(
        name="j",
        model=Reference(profile="p"),
        batch=Batch(total=8),
        steps=100,
        checkpoint=Checkpointing(every=30),
    )
    costs = Costs(startup=5.0, restart=3.0, checkpoint=2.0)
    plain = simulate([WorkloadJob(submit=0.0, job=job)], ONE, make_policy("fifo"), planner=one_second_plan, costs=costs)
    assert plain.rows[0].finish == 5 + 100 + 3 * 2
    assert plain.promise_error_p99 == 0
    fault = NodeFault(node="n", at=50.0, back=60.0)
    result = simulate(
        [WorkloadJob(submit=0.0, job=job)],
        ONE,
        make_policy("fifo"),
        planner=one_second_plan,
        costs=costs,
        faults=[fault],
    )
    # whole at 50: the checkpoint after 30 steps (5 + 30 + 2 = 37); 70 steps are left, with two pauses
    assert [(s.start, s.end) for s in result.segments] == [(0, 50), (60, 60 + 5 + 3 + 70 + 2 * 2)]
    assert result.rows[0].preemptions == 0
    assert result.cost == pytest.approx(0.5 * (50 + 82))


def one_second_plan(job, the_cluster, device_ids):
    if not device_ids:
        return Infeasible(code="devices", text="no device is left")
    plan = plan_on(device_ids[0])
    return (replace(plan, predicted=replace(plan.predicted, step=1.0, step_low=1.0, step_high=1.0)),)


def test_a_job_that_reaches_its_max_time_is_stopped_and_does_not_finish():
    jobs = [table_job("long", 0, {"V:1": 100.0}, max_time=30.0), table_job("next", 0, {"V:1": 10.0})]
    result = simulate(jobs, ONE, make_policy("fifo"), costs=Costs(checkpoint=2.0))
    long, following = result.rows
    assert (long.state, long.finish, long.rejection) == ("failed", None, None)
    assert [(s.job, s.start, s.end) for s in result.segments] == [("long", 0, 32), ("next", 32, 42)]
    assert (following.promised_finish_low, following.finish) == (40, 42)  # promises do not foresee the checkpoint
    assert result.job_seconds == 32 + 42
    assert (result.makespan, result.utilisation) == (42, 1.0)
    assert simulate(jobs[:1], ONE, make_policy("fifo")).makespan == 30


def test_waiting_for_the_fast_device_beats_starting_on_the_slow_one():
    two = cluster({"n": {"F": 1, "S": 1}})
    jobs = [table_job(name, 0, {"F:1": 1800.0, "S:1": 36000.0}) for name in ("x", "y")]
    result = simulate(jobs, two, make_policy("ignite"))
    assert sorted(ends(result.rows).values()) == [30, 60]
    assert ends(simulate(jobs, two, make_policy("fifo")).rows)["y"] == 600


def test_the_default_policy_takes_the_short_jobs_first_but_not_for_ever():
    short = [table_job(f"s{index}", 30.0 * index, {"V:1": 60.0}) for index in range(40)]
    long = table_job("long", 1.0, {"V:1": 120.0})
    policy = Ignite(patience_factor=3.0, patience_least=0.0)
    rows = {row.job: row for row in simulate([*short, long], ONE, policy).rows}
    assert rows["s1"].start < rows["long"].start
    assert rows["long"].queueing <= 3 * 120 + 60  # its patience, and the gang that ran when it ended


def test_a_mixed_gang_takes_its_kinds_from_two_pools():
    two = cluster({"a": {"F": 1}, "b": {"S": 2}})
    result = simulate([table_job("j", 0, {"F:1+S:2": 60.0})], two, make_policy("ignite"))
    assert sorted(result.segments[0].device_ids) == ["a/F-0", "b/S-0", "b/S-1"]
    assert result.utilisation == 1.0


def test_a_job_without_devices_is_refused_and_the_others_run():
    result = simulate([table_job("x", 0, {"Z:1": 1.0}), table_job("y", 0, {"V:1": 1.0})], ONE, make_policy("ignite"))
    assert [(row.job, row.state, row.rejection and row.rejection.code) for row in result.rows] == [
        ("x", "failed", "devices"),
        ("y", "finished", None),
    ]
    assert result.job_seconds == 1.0


def test_priority_comes_first():
    jobs = [
        table_job("x", 0, {"V:1": 60.0}),
        table_job("y", 1, {"V:1": 60.0}),
        table_job("z", 2, {"V:1": 60.0}, priority=1),
    ]
    for policy in ("fifo", "backfill", "ignite"):
        assert starts(simulate(jobs, ONE, make_policy(policy)).rows) == {"x": 0, "z": 1, "y": 2}


def test_noise_makes_promises_err_and_is_repeated_by_its_seed():
    jobs = queue(30, 0.7, seed=3)
    runs = [simulate(jobs, ONE, make_policy("ignite"), seed=seed, noise=0.3) for seed in (1, 1, 2)]
    assert runs[0].rows == runs[1].rows != runs[2].rows
    assert runs[0].promise_error_p50 > 0
    assert simulate(jobs, ONE, make_policy("fifo")).promise_error_p50 == 0


def test_the_report_has_the_agreed_keys_and_columns():
    jobs = [table_job("x", 0, {"V:1": 60.0}, deadline=90.0), table_job("y", 0, {"V:1": 60.0}, deadline=90.0)]
    result = simulate(jobs, ONE, make_policy("fifo"))
    document = report_document([result], cluster="one", workload="two jobs")
    figures = document["policies"]["fifo"]
    keys = """jobs finished jct_mean_s jct_p50_s jct_p95_s jct_p99_s makespan_s queueing_delay_mean_s deadlines
        deadlines_met utilisation device_hours cost energy_j fairness_worst_rho preemptions promise_error_p50
        promise_error_p90 promise_error_p99 decision_s_mean decision_s_max cpu_s"""
    assert set(figures) == set(keys.split())
    assert (figures["jct_mean_s"], figures["jct_p50_s"], figures["makespan_s"]) == (90, 90, 120)
    assert (figures["deadlines"], figures["deadlines_met"], figures["cost"]) == (2, 1, 60)
    assert figures["energy_j"] is None
    # y: 120 s; two jobs for 60 s and one for 60 s are 1.5 on average, so its share of one device would have taken 90 s
    assert figures["fairness_worst_rho"] == pytest.approx(120 / 90)
    rows = list(csv_rows([result]))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [(row["job"], row["jct_s"], row["met"], row["rejected"]) for row in rows] == [
        ("x", 60, "true", ""),
        ("y", 120, "false", ""),
    ]


def test_wrong_arguments_are_named():
    job = table_job("x", 0, {"V:1": 1.0})
    with pytest.raises(InputError, match="two jobs"):
        simulate([job, job], ONE, make_policy("fifo"))
    with pytest.raises(InputError, match="no node 'm'"):
        simulate([job], ONE, make_policy("fifo"), faults=[NodeFault(node="m", at=1.0)])
    pipeline = Job(name="p", model=Reference(profile="p"), batch=Batch(total=8), steps=10)
    with pytest.raises(InputError, match="needs a planner"):
        simulate([WorkloadJob(submit=0.0, job=pipeline)], ONE, make_policy("fifo"))
    with pytest.raises(InputError, match="epochs"):
        simulate([WorkloadJob(submit=0.0, job=replace(pipeline, steps=None, epochs=3))], ONE, make_policy("fifo"))


def test_a_policy_of_the_users_own_that_fails_is_named():
    class Mine:
        name = "mine"

        def decide(self, view):
            return Decision(starts=None)

    with pytest.raises(InvariantError, match="mine"):
        simulate([table_job("x", 0, {"V:1": 1.0})], ONE, Mine())
