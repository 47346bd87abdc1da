"""Laws of any choice: groups, virtual workers, graphs of stages and memory actions are judged by one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_cases import Case, cases, job, profiles, toy_cluster, toy_layer, toy_profile
from choice_figures import Worked
from ignite_scheduler.cost import Assignment, StageChoice, balanced_shares, evaluate, stage_durations, straight
from ignite_scheduler.daemon.placement import choice_of, on_devices
from ignite_scheduler.formats import parse_answer, plan_document
from ignite_scheduler.model import LayerTimes, LinkRule
from ignite_scheduler.pipeline import timeline, validate


@given(cases())
def test_figures_are_those_of_plain_loops(case: Case) -> None:
    plan, worked = evaluate(*case.parts), Worked(case)
    for index, stage in enumerate(plan.stages):
        assert (stage.forward, stage.backward) == worked.stage_seconds(index, case.assignment.microbatches[0])
        assert stage.in_flight == worked.held[index]
        assert [share.memory for share in stage.devices] == pytest.approx(
            [worked.memory(index, share.samples) for share in stage.devices], rel=1e-12
        )
    assert plan.predicted.step == pytest.approx(worked.step(), rel=1e-12)


@given(cases())
def test_the_order_of_any_graph_finishes(case: Case) -> None:
    schedule, durations = stage_durations(*case.parts)
    validate(schedule, [(edge.source, edge.target) for edge in durations.edges])


@given(cases())
def test_a_plan_reads_back_as_its_choice(case: Case) -> None:
    plan = evaluate(*case.parts)
    read = parse_answer(plan_document(plan))
    assert read == plan
    again = choice_of(read, case.profile)
    assert evaluate(case.job, case.profile, case.cluster, again) == plan
    assert choice_of(evaluate(case.job, case.profile, case.cluster, again), case.profile) == again


@given(cases(), st.randoms(use_true_random=False))
def test_devices_are_replaced_in_their_order(case: Case, random) -> None:
    plan = evaluate(*case.parts)
    ids = list(plan.device_ids)
    random.shuffle(ids)
    moved = on_devices(plan, tuple(ids))
    assert moved.device_ids == tuple(ids)
    assert on_devices(moved, plan.device_ids) == plan


@given(cases(), st.sampled_from([0.5, 2.0, 8.0]))
def test_scaling_all_durations_scales_the_step(case: Case, factor: float) -> None:
    layers = tuple(
        replace(
            layer,
            times={"ref": {1: LayerTimes(forward=t.forward * factor, backward=t.backward * factor)}},
            update={"sgd": layer.update["sgd"] * factor},
        )
        for layer in case.profile.layers
        for t in [layer.times["ref"][1]]
    )
    profile = replace(case.profile, layers=layers, action_overhead=case.profile.action_overhead * factor)
    (rule,) = case.cluster.links
    slower = LinkRule(bandwidth=rule.bandwidth / factor, latency=rule.latency * factor)
    nodes = tuple(
        replace(
            node,
            devices=tuple(replace(d, host_bandwidth=(d.host_bandwidth or 1) / factor) for d in node.devices),
        )
        for node in case.cluster.nodes
    )
    scaled = evaluate(case.job, profile, replace(case.cluster, links=(slower,), nodes=nodes), case.assignment)
    assert scaled.predicted.step == pytest.approx(factor * evaluate(*case.parts).predicted.step, rel=1e-12)


@given(cases(kinds=["chain"]))
def test_a_chain_with_its_inputs_named_is_the_chain(case: Case) -> None:
    named = tuple(
        replace(stage, inputs=(index - 1,) if index else ()) for index, stage in enumerate(case.assignment.stages)
    )
    told = replace(case.assignment, stages=named)
    assert evaluate(case.job, case.profile, case.cluster, told) == evaluate(*case.parts)


@given(cases())
def test_idle_share_and_energy_count_every_device(case: Case) -> None:
    nodes = tuple(
        replace(node, devices=tuple(replace(d, busy_power=3.0, idle_power=1.0, price=1.0) for d in node.devices))
        for node in case.cluster.nodes
    )
    plan = evaluate(case.job, case.profile, replace(case.cluster, nodes=nodes), case.assignment)
    predicted, count = plan.predicted, len(plan.device_ids)
    assert predicted.step == 0 or -1e-12 <= predicted.bubble_fraction <= 1
    held = count * predicted.step
    busy = (1 - predicted.bubble_fraction) * held
    assert predicted.energy == pytest.approx(4 * (held + 2 * busy))  # 4 steps; 1 W always, 2 W more while busy
    assert predicted.cost == pytest.approx(4 * held)


@given(profiles(branching=False), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.data())
def test_equal_replicas_on_free_links_take_the_time_of_one(profile, count, replicas, each, data) -> None:
    num_layers = len(profile.layers)
    cut = data.draw(st.integers(1, num_layers))
    split = [n for n in (cut, num_layers - cut) if n]
    one = toy_cluster([1.0] * 2, bandwidth=float("inf"))
    many = toy_cluster([1.0] * 2 * replicas, bandwidth=float("inf"))
    ids = [device.id for device in many.devices]
    alone = straight(split, [device.id for device in one.devices][: len(split)], (each,) * count, "1f1b")
    groups = tuple(
        replace(stage, devices=tuple(ids[i * replicas : (i + 1) * replicas]), samples=(each,) * replicas)
        for i, stage in enumerate(alone.stages)
    )
    together = replace(alone, stages=groups, microbatches=(each * replicas,) * count)
    expected = evaluate(job(each * count), profile, one, alone).predicted
    found = evaluate(job(each * count * replicas), profile, many, together).predicted
    assert found.step == expected.step
    assert found.samples_per_second == pytest.approx(replicas * expected.samples_per_second)


@given(profiles(branching=False), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.data())
def test_two_equal_virtual_workers_take_the_time_of_one_and_the_all_reduce(profile, count, each, latency, data) -> None:
    profile = replace(profile, tied=())
    num_layers = len(profile.layers)
    cut = data.draw(st.integers(1, num_layers))
    split = [n for n in (cut, num_layers - cut) if n]
    cluster = toy_cluster([1.0] * 4, latency=latency)
    ids = [device.id for device in cluster.devices]
    alone = straight(split, ids[: len(split)], (each,) * count, "1f1b")
    second = tuple(
        replace(stage, devices=(ids[2 + index],), inputs=(len(split) + index - 1,) if index else ())
        for index, stage in enumerate(alone.stages)
    )
    both = replace(alone, stages=(*alone.stages, *second), microbatches=(2 * each,) * count)
    plan = evaluate(job(2 * each * count), profile, cluster, both)
    bare = replace(profile, layers=tuple(replace(layer, update={"sgd": 0.0}) for layer in profile.layers))
    lone = evaluate(job(each * count), bare, cluster, alone)
    rings = [sum(layer.parameter_bytes for layer in profile.layers[:cut]) + 2 * latency]
    rings += [sum(layer.parameter_bytes for layer in profile.layers[cut:]) + 2 * latency] if len(split) == 2 else []
    assert [stage.allreduce for stage in plan.stages] == rings * 2  # 2·(2−1)/2 · bytes + 2·(2−1) · latency
    schedule, durations = stage_durations(job(each * count), bare, cluster, alone)
    updates = [stage.update for stage in plan.stages[: len(split)]]
    ends = [start for start, _ in timeline(schedule, durations).finishes]
    expected = max(end + ring + update for end, ring, update in zip(ends, rings, updates, strict=True))
    assert plan.predicted.step == pytest.approx(expected)
    assert plan.predicted.transfer_bytes == 2 * lone.predicted.transfer_bytes


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=3), st.integers(3, 6))
def test_no_shares_beat_the_balanced_ones(speeds, samples) -> None:
    profile, cluster = toy_profile(toy_layer("l0", [])), toy_cluster(speeds, bandwidth=float("inf"))

    def step(shares) -> float:
        held = [(device.id, share) for device, share in zip(cluster.devices, shares, strict=True) if share]
        stage = StageChoice(layers=(0,), devices=tuple(d for d, _ in held), samples=tuple(n for _, n in held))
        choice = Assignment(stages=(stage,), microbatches=(samples,), schedule="gpipe")
        return evaluate(job(samples), profile, cluster, choice).predicted.step

    balanced = balanced_shares(samples, [lambda u, speed=speed: u / speed for speed in speeds])
    others = [s for s in product(range(samples + 1), repeat=len(speeds)) if sum(s) == samples]
    assert step(balanced) == min(map(step, others))
