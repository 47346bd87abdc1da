"""The catalogue offers plans on every set of devices that beats its parts, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from ignite_scheduler.model import Infeasible, Resources
from ignite_scheduler.planner import Problem, catalogue, exhaustive, microbatch_choices, plan
from planner_cases import chain, devices_in_one_node, job, problems


def test_slow_devices_are_offered_too_for_jobs_that_come_second() -> None:
    found = catalogue(
        Problem(job=job(total=1), profile=chain([1.0]), cluster=devices_in_one_node([2.0, 1.0], prices=[2.0, 1.0]))
    )
    assert not isinstance(found, Infeasible)
    assert [offer.device_ids for offer in found] == [("n/d0",), ("n/d1",)]


def test_refusals_are_those_of_plan() -> None:
    problem = Problem(
        job=job(), profile=chain([1.0] * 3, parameters=[9.0] * 3), cluster=devices_in_one_node([1.0], memory=[5.0])
    )
    assert catalogue(problem) == plan(problem)


def test_fixed_requests_hold() -> None:
    problem = Problem(
        job=job(resources=Resources(any_of=({"own": 2},))),
        profile=chain([1.0] * 4),
        cluster=devices_in_one_node([2.0, 1.0, 1.0]),
    )
    found = catalogue(problem)
    assert not isinstance(found, Infeasible)
    assert all(len(offer.device_ids) == 2 for offer in found)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_layers=5, most_devices=3))
def test_offers_are_exact_and_none_is_dominated(problem: Problem) -> None:
    problem = replace(problem, job=replace(problem.job, batch=replace(problem.job.batch, micro=1)))
    found = catalogue(problem)
    if isinstance(found, Infeasible):
        assert isinstance(exhaustive(problem), Infeasible)
        return
    figures = {device.id: (device.speed, device.memory, device.price) for device in problem.cluster.devices}
    for offer in found:
        best = exhaustive(replace(problem, devices=offer.device_ids))
        assert not isinstance(best, Infeasible)
        assert abs(best.predicted.step - offer.predicted.step) <= 1e-9 * max(1.0, best.predicted.step)
        assert offer.bound.optimal
        for other in found:
            if other is not offer and not Counter(other.device_ids) - Counter(offer.device_ids):
                assert other.predicted.step > offer.predicted.step
        assert all(device in figures for device in offer.device_ids)
    best = exhaustive(problem)
    assert not isinstance(best, Infeasible)
    assert abs(found[0].predicted.step - best.predicted.step) <= 1e-9 * max(1.0, best.predicted.step)


def test_microbatch_choices_are_all_sizes_of_small_batches_and_the_most_even_ones_of_large_batches() -> None:
    assert microbatch_choices(4) == (4, 3, 2, 1)
    for total in range(65, 300):
        chosen = microbatch_choices(total)
        counts = [-(-total // u) for u in chosen]
        assert len(set(counts)) == len(counts)
        assert set(counts) == {-(-total // u) for u in range(1, total + 1)}
        for u, count in zip(chosen, counts, strict=True):
            assert u == min(v for v in range(1, total + 1) if -(-total // v) == count)
    assert max(-(-1_000_000 // u) for u in microbatch_choices(1_000_000)) <= 1024
