"""Virtual workers: what is dealt to whom, and that every choice is worth what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import Assignment, StageChoice, evaluate
from ignite_scheduler.model import Device, LinkRule, PipelineChoice, Resources
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.dealing import divisions, neighbours, shares_by
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.weighed import value_of_choice
from ignite_scheduler.planner.workers import search
from planner_cases import chain, devices_in_one_node, job, problems

ABLE = frozenset({"workers"})


def searched(problem: Problem, incumbent: Assignment | None = None) -> Found:
    problem = replace(problem, abilities=ABLE)
    request = requested(problem)
    assert isinstance(request, Request)
    return search(problem, request, incumbent)


def device(name: str, node: str = "n", kind: str = "own") -> Device:
    return Device(id=name, node=node, kind=kind, memory=math.inf)


def test_shares_sum_and_none_is_empty() -> None:
    assert shares_by((1.0, 1.0, 1.0), 4) == (2, 1, 1)
    assert shares_by((100.0, 1.0), 5) == (4, 1)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.integers(0, 40))
def test_shares_are_whole(weights: list[float], more: int) -> None:
    shares = shares_by(weights, len(weights) + more)
    assert sum(shares) == len(weights) + more
    assert min(shares) >= 1


def test_divisions_deal_every_device_once() -> None:
    devices = [device(f"n{n}/d{i}", f"n{n}") for n in range(2) for i in range(3)]
    speeds = {each.id: 1.0 + place for place, each in enumerate(devices)}
    for count in (2, 3, 4):
        for workers in divisions(devices, speeds, count):
            assert len(workers) == count
            assert sorted(each.id for worker in workers for each in worker) == [each.id for each in devices]
    by_node, *_ = divisions(devices, speeds, 2)
    assert [{each.node for each in worker} for worker in by_node] == [{"n0"}, {"n1"}]


def test_neighbours_differ_by_one_move_or_exchange_of_unlike_devices() -> None:
    a, b, c = device("a"), device("b", kind="x"), device("c")
    found = {tuple("".join(each.id for each in worker) for worker in way) for way in neighbours(((a, c), (b,)))}
    assert found == {("ab", "c"), ("a", "bc")}  # c is like a


def test_two_equal_devices_take_half_each() -> None:
    """One layer of 3 s a sample, 4 microbatches of 2 samples: one device 24 s, two workers 12 s."""
    profile = chain([3.0])
    problem = Problem(job=job(total=8, micro=2), profile=profile, cluster=devices_in_one_node([1.0, 1.0]))
    found = searched(problem)
    assert found.value == pytest.approx(12.0)
    assert found.best is not None
    assert [stage.samples for stage in found.best.stages] == [(1,), (1,)]
    assert [stage.inputs for stage in found.best.stages] == [(), ()]
    assert (found.bound, found.complete) == (0.0, False)


def test_shares_follow_speed() -> None:
    """Speeds 3 and 1, 8 samples of one second: 6 ÷ 3 and 2 ÷ 1."""
    problem = Problem(job=job(total=8, micro=8), profile=chain([1.0]), cluster=devices_in_one_node([3.0, 1.0]))
    found = searched(problem)
    assert found.value == pytest.approx(2.0)
    assert found.best is not None
    assert {stage.devices[0]: stage.samples[0] for stage in found.best.stages} == {"n/d0": 6, "n/d1": 2}


def test_unlike_devices_pipeline_inside_each_worker() -> None:
    """No device holds both layers: two workers of two stages, and half of the time of one."""
    profile = chain([1.0, 1.0], parameters=[4.0, 4.0])
    cluster = devices_in_one_node([1.0] * 4, memory=[5.0] * 4)
    found = searched(Problem(job=job(total=16, micro=2), profile=profile, cluster=cluster))
    assert found.best is not None
    assert found.best.split == (1, 1, 1, 1)
    assert found.value == pytest.approx(8 * 1 + 1)  # 8 microbatches of 1 s on a stage of each worker, and the fill


def test_fast_and_slow_workers_hold_the_same_layers_in_a_stage() -> None:
    """The best of all divisions of four devices in two workers, all chains and all shares: looked at one by one."""
    profile = chain([2.0, 1.0, 3.0], parameters=[1.0, 2.0, 1.0], outputs=[0.25] * 3)
    layers = tuple(replace(layer, times={"ref": {4: layer.times["ref"][1]}}) for layer in profile.layers)
    cluster = devices_in_one_node([1.0, 0.5, 0.8, 0.4], memory=[3.5, 3.0, 3.0, 3.5], bandwidth=2.0)
    problem = Problem(
        job=job(total=16, micro=4, pipeline=PipelineChoice(schedule="1f1b")),
        profile=replace(profile, layers=layers),
        cluster=cluster,
    )
    ids = [each.id for each in cluster.devices]
    best = math.inf
    for dealt in product((0, 1), repeat=3):
        sides = [[name for name, side in zip(ids, (0, *dealt), strict=True) if side == way] for way in (0, 1)]
        if not sides[1]:
            continue
        for share in range(1, 4):
            for one, other in product(chains(sides[0], 3, share), chains(sides[1], 3, 4 - share)):
                assignment = Assignment(stages=(*one, *other), microbatches=(4,) * 4, schedule="1f1b")
                best = min(best, value_of_choice(problem, assignment))
    assert searched(problem).value == pytest.approx(best)


def chains(ids: list[str], num_layers: int, share: int) -> Iterator[tuple[StageChoice, ...]]:
    """Yield all chains of one device a stage over some of the devices."""
    for count in range(1, min(len(ids), num_layers) + 1):
        for devices in permutations(ids, count):
            for cuts in combinations(range(1, num_layers), count - 1):
                bounds = (0, *cuts, num_layers)
                yield tuple(
                    StageChoice(
                        layers=tuple(range(bounds[s], bounds[s + 1])),
                        devices=(devices[s],),
                        samples=(share,),
                        inputs=None if s else (),
                    )
                    for s in range(count)
                )


def test_an_incumbent_that_is_better_leaves_nothing() -> None:
    problem = Problem(job=job(total=8, micro=2), profile=chain([3.0]), cluster=devices_in_one_node([1.0, 1.0]))
    best = searched(problem).best
    assert best is not None
    assert searched(problem, best).best is None


def test_requests_that_leave_no_workers() -> None:
    base = Problem(job=job(total=8, micro=2), profile=chain([3.0]), cluster=devices_in_one_node([1.0, 1.0]))
    alone = replace(base, job=job(total=8, micro=2, resources=Resources(max_devices=1)))
    assert searched(alone).best is None
    replicas = replace(base, job=job(total=8, micro=2, pipeline=PipelineChoice(replicas=1)))
    request = requested(replace(replicas, abilities=ABLE))
    assert isinstance(request, Request)
    assert search(replicas, request).best is None
    apart = replace(base, cluster=replace(base.cluster, links=()))
    assert searched(apart).best is None  # gradients cannot be added up
    one_sample = replace(base, job=job(total=8, micro=1))
    assert searched(one_sample).best is None


def test_shared_wires_are_waited_for() -> None:
    profile = chain([1.0], parameters=[4.0])
    slow = LinkRule(bandwidth=1.0, latency=0.0, shared=True)
    cluster = replace(devices_in_one_node([1.0, 1.0]), links=(slow,))
    found = searched(Problem(job=job(total=8, micro=2), profile=profile, cluster=cluster))
    assert found.value == pytest.approx(4.0 + 4.0)  # ring of two: 2 · ½ · 4 bytes


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(problems(most_layers=4, most_devices=4, skips=True))
def test_what_is_found_is_worth_what_it_says_and_fits(problem: Problem) -> None:
    found = searched(problem)
    if found.best is None:
        assert found.value == math.inf
        return
    made = evaluate(problem.job, problem.profile, problem.cluster, found.best)
    assert made.predicted.step == pytest.approx(found.value)
    assert all(share.memory <= share.memory_limit for stage in made.stages for share in stage.devices)
    held = [0] * len(problem.profile.layers)
    for stage in found.best.stages:
        for layer in stage.layers:
            held[layer] += sum(stage.samples)
    assert set(held) == {found.best.microbatches[0]}


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(problems(most_layers=3, most_devices=4))
def test_the_order_of_the_listing_changes_nothing(problem: Problem) -> None:
    nodes = tuple(replace(node, devices=node.devices[::-1]) for node in reversed(problem.cluster.nodes))
    assert searched(replace(problem, cluster=replace(problem.cluster, nodes=nodes))) == searched(problem)
