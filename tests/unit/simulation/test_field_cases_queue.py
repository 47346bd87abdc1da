"""Field cases D9 and D10 (b, c, d) on the simulator: gangs, starvation, backfill, honest times, deadlines."""

from __future__ import annotations

import pytest

from ignite_scheduler.policy import POLICIES, make_policy
from ignite_scheduler.simulation import simulate
from queue_jobs import MINUTE, cluster, ends, starts, table_job

FOUR = cluster({"n": {"V": 4}})
ALL_POLICIES = sorted(POLICIES)


def minutes(name, submit, devices, length, **terms):
    return table_job(name, submit * MINUTE, {f"V:{devices}": length * MINUTE}, **terms)


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_d9a_gangs_start_whole_or_not_at_all(policy):
    result = simulate([minutes("a", 0, 4, 10), minutes("b", 0, 4, 10)], FOUR, make_policy(policy))
    assert sorted(starts(result.rows).values()) == [0, 10]
    assert all(len(segment.device_ids) == 4 for segment in result.segments)


D9B = [minutes("S1", 0, 2, 10), minutes("L", 1, 4, 10), minutes("B1", 2, 2, 5), minutes("B2", 3, 2, 10)]


def test_d9b_backfill_never_delays_the_head():
    assert starts(simulate(D9B, FOUR, make_policy("backfill")).rows) == {"S1": 0, "B1": 2, "L": 10, "B2": 20}


def test_d9b_fifo_lets_nobody_pass():
    assert starts(simulate(D9B, FOUR, make_policy("fifo")).rows) == {"S1": 0, "L": 10, "B1": 20, "B2": 20}


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_d10b_three_jobs_on_one_device_are_promised_their_starts(policy):
    jobs = [minutes(name, 0, 1, 60) for name in ("a", "b", "c")]
    result = simulate(jobs, cluster({"n": {"V": 1}}), make_policy(policy))
    promised = {row.job: (row.promised_start / MINUTE, row.promised_finish_high / MINUTE) for row in result.rows}
    assert promised == {"a": (0, 60), "b": (60, 120), "c": (120, 180)}
    assert ends(result.rows) == {"a": 60, "b": 120, "c": 180}
    assert result.promise_error_p99 == 0


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_d10d_a_hopeless_deadline_is_refused_with_the_earliest_finish(policy):
    two = cluster({"n": {"F": 1, "S": 1}})
    jobs = [
        table_job("J1", 0, {"F:1": 30 * MINUTE, "S:1": 60 * MINUTE}),
        table_job("J2", 0, {"F:1": 40 * MINUTE, "S:1": 80 * MINUTE}, deadline=35 * MINUTE),
    ]
    result = simulate(jobs, two, make_policy(policy))
    rejection = result.rows[1].rejection
    assert rejection is not None
    assert rejection.code == "deadline"
    assert rejection.earliest_finish == pytest.approx(40 * MINUTE)
    assert result.rows[1].met is False
    assert ends(result.rows[:1]) == {"J1": pytest.approx(30)}


def test_d10c_the_deadline_gets_the_fast_device():
    two = cluster({"n": {"F": 1, "S": 1}})
    jobs = [
        table_job("J1", 0, {"F:1": 30 * MINUTE, "S:1": 60 * MINUTE}),
        table_job("J2", 0, {"F:1": 40 * MINUTE, "S:1": 80 * MINUTE}, deadline=60 * MINUTE),
    ]
    result = simulate(jobs, two, make_policy("ignite"))
    assert ends(result.rows) == {"J1": pytest.approx(60), "J2": pytest.approx(40)}
    assert result.deadlines_met == 1
    assert ends(simulate(jobs, two, make_policy("fifo")).rows)["J2"] == pytest.approx(80)


def test_a_deadline_is_kept_though_another_job_would_take_the_one_device_that_can_keep_it():
    jobs = [
        table_job("J0", 0, {"F:1": 46, "S:1": 138}, deadline=60),
        table_job("J1", 0, {"F:1": 13, "S:1": 13}),
        table_job("J2", 0, {"F:1": 43, "S:1": 129}),
    ]
    result = simulate(jobs, cluster({"n": {"F": 1, "S": 1}}), make_policy("ignite"))
    assert starts(result.rows) == {"J0": 0, "J1": 0, "J2": 46 / MINUTE}
    assert result.deadlines_met == 1
