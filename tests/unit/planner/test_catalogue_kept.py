"""A catalogue that is handed back in spares work and changes nothing, whatever comes or goes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import Cluster, Device, Infeasible, LinkRule, Node
from ignite_scheduler.planner import Problem, catalogue
from ignite_scheduler.planner.catalogue import Catalogue, catalogued
from planner_cases import chain, devices_in_one_node, job, problems


def lab(nodes: int, speeds: tuple[float, ...], each: int = 2) -> Cluster:
    """Equal nodes, each with ``each`` devices of every speed, of kinds k0, k1, …"""
    made = []
    for n in range(nodes):
        devices = tuple(
            Device(id=f"n{n:02}/{k}-{m}", node=f"n{n:02}", kind=f"k{k}", speed=speed, memory=1e12, price=speed)
            for k, speed in enumerate(speeds)
            for m in range(each)
        )
        made.append(Node(name=f"n{n:02}", devices=devices))
    links = (LinkRule(bandwidth=50.0, latency=0.0), LinkRule(bandwidth=1000.0, latency=0.0, within=True))
    return Cluster(name="lab", nodes=tuple(made), links=links)


def wide(nodes: int = 8) -> Problem:
    return Problem(
        job=job(total=8), profile=chain([3.0, 1.0, 2.0, 4.0, 1.0, 2.0, 3.0, 2.0]), cluster=lab(nodes, (1.0, 0.5, 0.25))
    )


def made(problem: Problem, known: Catalogue | None = None) -> Catalogue:
    found = catalogued(problem, known)
    assert not isinstance(found, Infeasible)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_layers=4, most_devices=4), data=st.data())
def test_with_devices_gone_it_is_what_it_would_be_from_nothing(problem: Problem, data: st.DataObject) -> None:
    ids = sorted(device.id for device in problem.cluster.devices)
    whole = catalogued(problem)
    left = replace(problem, devices=tuple(data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))))
    fresh = catalogued(left)

    if isinstance(whole, Infeasible) or isinstance(fresh, Infeasible):
        return
    again = made(left, whole)
    assert again.plans == fresh.plans
    back = made(problem, again)
    assert back.plans == whole.plans
    assert back.work == 0


def test_nothing_is_solved_twice_and_a_new_device_asks_only_for_what_holds_it() -> None:
    small = Problem(job=job(total=4), profile=chain([1.0] * 6), cluster=devices_in_one_node([1.0, 0.5, 0.25]))
    large = replace(small, cluster=devices_in_one_node([1.0, 0.5, 0.25, 0.7]))
    before = made(small)

    assert made(small, before).work == 0
    grown = made(large, before)
    assert grown.plans == made(large).plans
    assert grown.work < made(large).work
    fresh = set(grown.solved) - set(before.solved)
    assert fresh
    assert all(any(look[2] == 0.7 for look in key.looks) for key in fresh)


def test_names_of_devices_do_not_matter() -> None:
    problem = Problem(job=job(total=4), profile=chain([1.0, 2.0, 3.0]), cluster=devices_in_one_node([1.0, 0.5]))
    node = problem.cluster.nodes[0]
    renamed = tuple(replace(device, id=f"n/z{9 - k}") for k, device in enumerate(node.devices))
    other = replace(problem, cluster=replace(problem.cluster, nodes=(replace(node, devices=renamed),)))

    again = made(other, made(problem))

    assert again.work == 0
    assert again.plans == made(other).plans


def test_another_job_finds_nothing_of_use() -> None:
    problem = Problem(job=job(total=4), profile=chain([1.0, 2.0]), cluster=devices_in_one_node([1.0, 0.5]))
    other = replace(problem, profile=chain([2.0, 2.0]))
    assert made(other, made(problem)).plans == made(other).plans


def test_a_wide_cluster_is_offered_mixed_kinds_and_many_sizes() -> None:
    found = catalogue(wide())
    assert not isinstance(found, Infeasible)
    kinds = [frozenset(device.split("/")[1][0] for device in plan.device_ids) for plan in found]
    assert any(len(mixed) > 1 for mixed in kinds)
    assert {len(plan.device_ids) for plan in found} >= {1, 2, 4}
    best = min(plan.predicted.step for plan in found)
    assert found[0].predicted.step == best


def test_a_node_more_in_a_wide_cluster_is_mostly_known() -> None:
    before = made(wide(8))
    after = made(wide(9), before)
    fresh = made(wide(9))
    assert after.plans == fresh.plans
    assert after.work < fresh.work / 2


def test_stages_of_several_devices_are_offered_where_whoever_runs_the_plan_is_able_to() -> None:
    problem = Problem(
        job=job(total=12, micro=4), profile=chain([1.0, 5.0], parameters=[1.0, 1.0]), cluster=lab(1, (1.0,), each=4)
    )
    straight = made(problem)
    found = made(replace(problem, abilities=frozenset({"replicas"})))

    assert max(len(stage.devices) for plan in straight.plans for stage in plan.stages) == 1
    assert {len(plan.device_ids) for plan in found.plans} == {1, 2, 3, 4}
    assert found.plans[0].predicted.step < straight.plans[0].predicted.step
    again = made(replace(problem, abilities=frozenset({"replicas"}), devices=problem_ids(problem)[:3]), found)
    assert again.work == 0
    assert {len(plan.device_ids) for plan in again.plans} == {1, 2, 3}


def problem_ids(problem: Problem) -> tuple[str, ...]:
    return tuple(sorted(device.id for device in problem.cluster.devices))
