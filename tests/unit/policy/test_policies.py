"""Policies on hand-made views: what starts, what waits, and why."""

from __future__ import annotations

import pytest

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import QueueTerms
from ignite_scheduler.policy import (
    POLICIES,
    Candidate,
    JobQueue,
    Option,
    QueuedJob,
    RunningJob,
    View,
    make_policy,
)
from ignite_scheduler.policy.ignite import Ignite
from ignite_scheduler.policy.reservations import releases_of, reserve
from ignite_scheduler.policy.view import remaining_seconds
from ignite_scheduler.simulation import simulate
from queue_jobs import MINUTE, cluster, ends, starts, table_job


def option(seconds, **demand):
    needs = tuple(sorted((f"*/{kind}", count) for kind, count in demand.items()))
    candidate = Candidate(demand=needs, rate=1 / seconds, rate_low=1 / seconds)
    return Option(candidate=candidate, needs=needs, seconds=float(seconds))


def queued(job_id, *options, at=0.0, **terms):
    serial = int("".join(filter(str.isdigit, job_id)) or 0)
    return QueuedJob(
        job_id=job_id,
        serial=serial,
        submitted=at,
        queued_at=at,
        terms=QueueTerms(**terms),
        options=tuple(sorted(options, key=lambda each: each.seconds)),
    )


def view(jobs, free, running=(), now=0.0):
    """``running``: (job id, end, what it holds)."""
    queue = JobQueue()
    for job in jobs:
        queue.add(job)
    holders = {
        job_id: RunningJob(
            job_id=job_id,
            started=0.0,
            end=end,
            finish=end,
            needs=held.needs,
            option=held,
            terms=QueueTerms(),
            stoppable=True,
        )
        for job_id, end, held in running
    }
    capacity = {f"*/{kind}": count for kind, count in free.items()}
    for job in holders.values():
        for pool, count in job.needs:
            capacity[pool] = capacity.get(pool, 0) + count
    return View(
        now=now,
        queue=queue,
        running=holders,
        releases=sorted((job.end, job.job_id) for job in holders.values()),
        free={f"*/{kind}": count for kind, count in free.items()},
        capacity=capacity,
        num_free=sum(free.values()),
        num_devices=sum(capacity.values()),
    )


def started(decision):
    return {start.job_id: start.option.seconds for start in decision.starts}


def test_the_queue_is_in_order_of_priority_then_submission():
    queue = JobQueue()
    jobs = [
        queued("j1", option(1, V=1), at=5.0),
        queued("j2", option(1, V=1), at=3.0),
        queued("j3", option(1, V=1), at=9.0, priority=1),
    ]
    for job in jobs:
        queue.add(job)
    assert [job.job_id for job in queue] == ["j3", "j2", "j1"]
    other = queue.copy()
    other.remove(jobs[1])
    assert ([job.job_id for job in other], len(queue)) == (["j3", "j1"], 3)


@pytest.mark.parametrize(
    ("work", "rate", "expected"), [(100, 1.0, 5 + 100 + 2 * 3), (90, 1.0, 5 + 90 + 2 * 2), (30, 2.0, 20), (0, 1.0, 5)]
)
def test_the_seconds_of_a_run_count_start_and_checkpoints(work, rate, expected):
    assert remaining_seconds(work, rate, startup=5, checkpoint_every=30, checkpoint_cost=2) == expected


def test_fifo_starts_in_order_and_says_what_is_lacking():
    jobs = [queued("j1", option(10, V=2), option(20, V=1)), queued("j2", option(10, V=3)), queued("j3", option(1, V=1))]
    decision = make_policy("fifo").decide(view(jobs, {"V": 4}))
    assert started(decision) == {"j1": 10}
    assert decision.reasons["j2"].text == "waits for devices: needs 3 of */V (2 free)"
    assert decision.rest.code == "order"


def test_backfill_uses_spare_devices_and_gaps():
    """The head needs 3 at 100. Two that end by then may pass; of longer ones only what is spare beside the head."""
    running = [("r", 100.0, option(100, V=2))]
    jobs = [
        queued("j1", option(50, V=3)),
        queued("j2", option(101, V=1)),
        queued("j3", option(200, V=1)),
        queued("j4", option(100, V=1)),
    ]
    decision = make_policy("backfill").decide(view(jobs, {"V": 2}, running))
    assert started(decision) == {"j2": 101, "j4": 100}
    assert decision.rest.text.startswith("waits for devices; job 'j1'")
    fewer = make_policy("backfill").decide(view(jobs[:1] + jobs[2:], {"V": 1}, [("r", 100.0, option(100, V=2))]))
    assert started(fewer) == {"j4": 100}
    assert fewer.reasons["j3"].code == "reservation"


def test_a_reservation_takes_the_option_that_finishes_first():
    job = queued("j1", option(10, F=1), option(60, S=2))
    now_view = view([job], {"S": 1}, [("a", 70.0, option(70, F=1)), ("b", 15.0, option(15, S=1))])
    promise = reserve(job, 0.0, now_view.free, releases_of(now_view))
    assert (promise.start, promise.option.seconds) == (15, 60)
    sooner = view([job], {"S": 1}, [("a", 60.0, option(60, F=1)), ("b", 15.0, option(15, S=1))])
    promise = reserve(job, 0.0, sooner.free, releases_of(sooner))
    assert (promise.start, promise.option.seconds, promise.spare) == (60, 10, {"*/F": 0, "*/S": 2})
    assert reserve(job, 0.0, {}, []) is None


def test_ends_that_are_overdue_are_expected_at_once_but_not_counted_as_free():
    job = queued("j1", option(10, V=2))
    late = view([job], {"V": 1}, [("a", 5.0, option(5, V=1))], now=9.0)
    promise = reserve(job, 9.0, late.free, releases_of(late))
    assert promise.start == 9
    assert make_policy("backfill").decide(late).starts == ()
    assert Ignite(patience_least=0.0, patience_factor=0.0).decide(late).starts == ()


def test_ignite_shares_scarce_devices_by_weighted_completions():
    jobs = [queued("j1", option(100, V=4)), queued("j2", option(30, V=2)), queued("j3", option(40, V=2))]
    decision = make_policy("ignite").decide(view(jobs, {"V": 4}))
    assert started(decision) == {"j2": 30, "j3": 40}
    assert decision.gap == 0
    heavy = [queued("j1", option(100, V=4), weight=10.0), *jobs[1:]]
    assert started(make_policy("ignite").decide(view(heavy, {"V": 4}))) == {"j1": 100}


def test_ignite_gives_the_fast_device_to_whom_it_saves_most_when_all_can_start():
    jobs = [queued("j1", option(30, F=1), option(60, S=1)), queued("j2", option(40, F=1), option(80, S=1))]
    assert started(make_policy("ignite").decide(view(jobs, {"F": 1, "S": 1}))) == {"j1": 60, "j2": 40}


def test_ignite_does_not_take_a_whole_cluster_for_a_hair():
    options = [option(100, V=1), option(60, V=2), option(59, V=4)]
    assert started(make_policy("ignite").decide(view([queued("j1", *options)], {"V": 4}))) == {"j1": 60}


def test_ignite_waits_for_a_fast_device_that_is_back_soon_and_says_so():
    job = queued("j1", option(10, F=1), option(100, S=1))
    soon = make_policy("ignite").decide(view([job], {"S": 1}, [("r", 20.0, option(20, F=1))]))
    assert started(soon) == {}
    assert soon.reasons["j1"].code == "deferred"
    assert "70" in soon.reasons["j1"].text or "1.1" in soon.reasons["j1"].text
    late = make_policy("ignite").decide(view([job], {"S": 1}, [("r", 95.0, option(95, F=1))]))
    assert started(late) == {"j1": 100}


def test_two_jobs_do_not_wait_for_the_same_device():
    jobs = [queued(name, option(50, F=1), option(110, S=1)) for name in ("j1", "j2")]
    decision = make_policy("ignite").decide(view(jobs, {"S": 2}, [("r", 5.0, option(5, F=1))]))
    assert started(decision) == {"j2": 110}  # after j1 it would be 105: not worth it


def test_ignite_prefers_the_cheaper_of_equal_options():
    cheap = Candidate(demand=(("*/A", 1),), rate=0.1, rate_low=0.1, price=1.0)
    dear = Candidate(demand=(("*/B", 1),), rate=0.1, rate_low=0.1, price=2.0)
    options = [Option(candidate=each, needs=each.demand, seconds=10.0) for each in (dear, cheap)]
    (start,) = make_policy("ignite").decide(view([queued("j1", *options)], {"A": 1, "B": 1})).starts
    assert start.option.candidate is cheap


def test_an_overdue_job_is_served_first_and_its_devices_are_kept_for_it():
    policy = Ignite(patience_factor=1.0, patience_least=0.0)
    jobs = [
        queued("j1", option(100, V=3)),
        queued("j2", option(10, V=1), at=99.0),
        queued("j3", option(60, V=1), at=99.0),
    ]
    waiting = view(jobs, {"V": 2}, [("r", 120.0, option(120, V=1))], now=101.0)
    decision = policy.decide(waiting)
    assert started(decision) == {"j2": 10}
    assert decision.reasons["j1"].code == "reserved"
    assert started(policy.decide(view(jobs, {"V": 3}, now=101.0))) == {"j1": 100}


def test_a_tight_deadline_goes_before_shorter_jobs():
    jobs = [queued("j1", option(10, V=1)), queued("j2", option(40, V=1), deadline=45.0)]
    assert started(make_policy("ignite").decide(view(jobs, {"V": 1}))) == {"j2": 40}


def test_a_job_that_keeps_its_deadline_anyway_lets_others_pass():
    jobs = [queued("j1", option(10, V=1)), queued("j2", option(40, V=1), deadline=60.0)]
    assert started(make_policy("ignite").decide(view(jobs, {"V": 1}))) == {"j1": 10}


def test_nothing_is_computed_for_a_full_cluster():
    decision = make_policy("ignite").decide(view([queued("j1", option(1, V=1))], {"V": 0}))
    assert (decision.starts, decision.rest.code) == ((), "busy")


def test_policies_are_found_by_name():
    assert {"fifo", "backfill", "ignite"} <= set(POLICIES)
    assert all(make_policy(name).name == name for name in POLICIES)
    with pytest.raises(
        InputError, match=r"no policy 'igntie'; did you mean 'ignite'\? there are: backfill, fifo, ignite"
    ):
        make_policy("igntie")


def test_a_mixed_workload_by_hand():
    """2 F (speed 2) and 2 S: a takes both F; b waits 5 min for an F rather than 40 on an S; c takes what is left."""
    the_cluster = cluster({"n": {"F": 2, "S": 2}})
    jobs = [
        table_job("a", 0, {"F:2": 5 * MINUTE}),
        table_job("b", 0, {"F:1": 20 * MINUTE, "S:1": 80 * MINUTE}),
        table_job("c", 0, {"S:2": 30 * MINUTE}),
    ]
    rows = simulate(jobs, the_cluster, make_policy("ignite")).rows
    assert starts(rows) == {"a": 0, "b": 5, "c": 0}
    assert ends(rows) == {"a": 5, "b": 25, "c": 30}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_with_nothing_left_to_do_starts_like_any_other(policy):
    """It was killed after its last save: all its work is in the checkpoint, and no time is left."""
    needs = (("*/V", 1),)
    done = Option(candidate=Candidate(demand=needs, rate=1.0, rate_low=1.0), needs=needs, seconds=0.0)
    for free, wanted in ((1, {"j1": 0.0}), (2, {"j1": 0.0, "j2": 10.0})):
        jobs = [queued("j1", done), queued("j2", option(10, V=1))]
        assert started(make_policy(policy).decide(view(jobs, {"V": free}))) == wanted
