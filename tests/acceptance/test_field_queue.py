"""D9 and D10: gangs, reservations, honest starts, deadlines and time limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
from field_bench import Bench, node, own

from ignite_scheduler.daemon.estimate import StepClock

MINUTE = 60.0
FIVE_PERCENT = 0.05


def gang(name: str, at: float, devices: int, minutes: float, kind: str = "gpu", **keys: Any) -> dict[str, Any]:
    """A throughput-table job of one unit a second on exactly so many devices; ``at`` in minutes."""
    total = minutes * MINUTE
    return {"submit_s": at * MINUTE, "name": name, "rates": {f"{kind}:{devices}": 1.0}, "total": total, **keys}


def starts(rows: list[dict[str, str]], policy: str) -> dict[str, float]:
    """Start of each job in minutes."""
    return {row["job"]: float(row["start_s"]) / MINUTE for row in rows if row["policy"] == policy}


def finishes(rows: list[dict[str, str]], policy: str) -> dict[str, float]:
    """Finish of each job in minutes."""
    return {row["job"]: float(row["finish_s"]) / MINUTE for row in rows if row["policy"] == policy}


@pytest.mark.parametrize("policy", ["fifo", "backfill", "ignite"])
def test_a_gang_has_all_its_devices_or_none(bench: Bench, policy: str) -> None:
    bench.cluster(node("n", own("gpu", count=4)))

    answer, rows = bench.simulate([gang("A", 0, 4, 10), gang("B", 0, 4, 10)], policy)

    assert answer.code == 0, answer.stderr
    assert sorted(starts(rows, policy).values()) == pytest.approx([0, 10], abs=0.1)
    assert {row["devices"] for row in rows} == {"4"}


QUEUE = [gang("S1", 0, 2, 10), gang("L", 1, 4, 10), gang("B1", 2, 2, 5), gang("B2", 3, 2, 10)]


def test_fifo_is_strict_and_backfill_keeps_the_reservation_of_the_head(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=4)))

    answer, rows = bench.simulate(QUEUE, "fifo,backfill")

    assert answer.code == 0, answer.stderr
    assert starts(rows, "backfill") == pytest.approx({"S1": 0, "B1": 2, "L": 10, "B2": 20}, abs=0.1)
    assert starts(rows, "fifo") == pytest.approx({"S1": 0, "L": 10, "B1": 20, "B2": 20}, abs=0.1)
    assert set(answer.document["policies"]) == {"fifo", "backfill"}


def test_the_default_policy_keeps_its_bound_on_waiting(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", count=4)))
    # Small jobs alone would keep two of the four devices busy for two hours.
    stream = [gang(f"s{index}", index, 2, 2.5) for index in range(120)]

    answer, rows = bench.simulate([*stream, gang("L", 1, 4, 10)], "ignite")

    assert answer.code == 0, answer.stderr
    assert answer.document["policies"]["ignite"]["finished"] == 121
    # The bound: an hour of patience from its submission at 1, then the gangs that run end.
    assert starts(rows, "ignite")["L"] <= 1 + 60 + 2.5 + 0.1


@pytest.mark.parametrize("policy", ["fifo", "ignite"])
def test_queued_jobs_are_told_when_they_will_start(bench: Bench, policy: str) -> None:
    bench.cluster(node("n", own("gpu", count=1)))

    answer, rows = bench.simulate([gang(name, 0, 1, 60) for name in "ABC"], policy)

    assert answer.code == 0, answer.stderr
    promised = sorted(float(row["promised_start_s"]) / MINUTE for row in rows)
    assert promised == pytest.approx([0, 60, 120], abs=1)


def test_the_device_goes_to_the_job_whose_deadline_needs_it(bench: Bench) -> None:
    bench.cluster(node("n", own("F"), own("S")))
    first = {"submit_s": 0, "name": "J1", "rates": {"F:1": 1.0, "S:1": 0.5}, "total": 30 * MINUTE}
    second = {"submit_s": 0, "name": "J2", "rates": {"F:1": 1.0, "S:1": 0.5}, "total": 40 * MINUTE}

    answer, rows = bench.simulate([first, second | {"queue": {"deadline": "60min"}}], "ignite")

    assert answer.code == 0, answer.stderr
    assert finishes(rows, "ignite") == pytest.approx({"J2": 40, "J1": 60}, abs=0.5)
    assert answer.document["policies"]["ignite"]["deadlines_met"] == 1


def one_device_job(bench: Bench, **queue: str) -> None:
    """A job of 40 minutes on F, 80 on S."""
    bench.profile([1.0])
    bench.cluster(node("n", own("F"), own("S", speed=0.5)))
    bench.job(microbatches=1, steps=2400, resources={"max_devices": 1}, queue=queue)


def test_a_deadline_that_cannot_be_met_is_refused_with_the_earliest_finish(bench: Bench) -> None:
    one_device_job(bench, deadline="35min")

    answer = bench.plan()

    assert answer.code == 4
    assert answer.refusal["reason"]["code"] == "deadline"
    assert answer.refusal["earliest_finish_s"] == pytest.approx(40 * MINUTE, rel=0.01)
    assert "40min" in answer.stderr.replace(" ", "")


def test_a_deadline_that_can_be_met_is_no_matter(bench: Bench) -> None:
    one_device_job(bench, deadline="41min")

    assert bench.plan().plan["predicted"]["duration_s"] == pytest.approx(40 * MINUTE, rel=0.01)


def test_a_simulated_job_is_rejected_when_its_deadline_is_hopeless(bench: Bench) -> None:
    bench.cluster(node("n", own("F"), own("S")))
    job = {"submit_s": 0, "name": "J", "rates": {"F:1": 1.0, "S:1": 0.5}, "total": 40 * MINUTE}

    answer, [row] = bench.simulate([job | {"queue": {"deadline": "35min"}}], "ignite")

    assert answer.code == 0, answer.stderr
    assert answer.document["policies"]["ignite"]["deadlines_met"] == 0
    said = float(row["promised_finish_high_s"]) if row["promised_finish_high_s"] else math.nan
    assert row["rejected"] not in ("", "0", "false", "False") or said == pytest.approx(40 * MINUTE, rel=0.01)


def test_a_time_limit_that_cannot_hold_the_steps_is_a_warning(bench: Bench) -> None:
    bench.profile([2.0])
    bench.cluster(node("n", own("gpu")))
    bench.job(microbatches=1, steps=1000, queue={"max_time": "20min"})

    answer = bench.plan()

    assert answer.code == 0
    [warning] = [text for text in answer.plan["warnings"] if "max_time" in text or "20min" in text.replace(" ", "")]
    assert "600" in warning
    assert "600" in answer.stderr


def test_the_remaining_time_forgets_a_slow_start() -> None:
    clock = StepClock()
    early = []
    for index in range(10):
        clock.add(10.0 if index < 3 else 2.0)
        if index < 3:
            early.append(clock.remaining(999 - index))

    assert early == [None] * 3  # "estimating", not a number
    assert clock.remaining(990) == pytest.approx(1980, rel=FIVE_PERCENT)
