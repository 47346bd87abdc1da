"""Groups, virtual workers, graphs of stages and memory actions, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from choice_cases import FACTORS, job, toy_cluster, toy_layer, toy_profile
from ignite_scheduler.cost import Assignment, StageChoice, evaluate, held_activations, last_shares, slowest_link
from ignite_scheduler.cost.memory import Activations
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster, Device, LinkRule, Node, Optimizer, Profile
from ignite_scheduler.pipeline import format_schedule, graph_depths, make_schedule

ONE = toy_profile(toy_layer("a", [], parameter_bytes=6.0, output_bytes=2.0, activation_bytes=5.0))
TWO = toy_profile(
    toy_layer("a", [], parameter_bytes=6.0, output_bytes=2.0, activation_bytes=5.0),
    toy_layer("b", ["a"], parameter_bytes=12.0, activation_bytes=3.0),
)
SGD = Optimizer(name="sgd")


def on(*devices: int) -> tuple[str, ...]:
    return tuple(f"n{i}/d{i}" for i in devices)


def stage(layers: tuple[int, ...], devices: tuple[str, ...], samples: tuple[int, ...], **more: object) -> StageChoice:
    return StageChoice(layers=layers, devices=devices, samples=samples, **more)


def choice(*stages: StageChoice, sizes: tuple[int, ...], schedule: str = "1f1b") -> Assignment:
    return Assignment(stages=stages, microbatches=sizes, schedule=schedule)


def test_a_group_waits_for_its_slowest_share_and_reduces_its_gradients() -> None:
    data_parallel = choice(stage((0,), on(0, 1), (3, 1)), sizes=(4, 4))
    plan = evaluate(job(8, optimizer=SGD), ONE, toy_cluster([1.0, 0.5], bandwidth=2.0, latency=0.25), data_parallel)
    # shares of 3 and 1 samples take 3 and 2 s forward, 6 and 4 s backward
    assert (plan.stages[0].forward, plan.stages[0].backward) == (3, 6)
    assert plan.stages[0].allreduce == 2 * (1 / 2) * 6 / 2 + 2 * 0.25
    assert plan.predicted.step == 2 * 9 + 3.5
    assert [share.samples for share in plan.stages[0].devices] == [3, 1]
    assert [share.memory for share in plan.stages[0].devices] == [6 * 2 + 3 * 5, 6 * 2 + 5]
    busy = 2 * 9 + 3.5 + 2 * 6 + 3.5
    assert plan.predicted.bubble_fraction == pytest.approx(1 - busy / (2 * 21.5))
    assert plan.predicted.transfer_bytes == 0


def test_between_groups_the_busiest_link_sets_the_time() -> None:
    cluster = toy_cluster([1.0] * 4, bandwidth=1.0, latency=0.5)
    both = choice(stage((0,), on(0, 1), (4, 4)), stage((1,), on(2, 3), (2, 6)), sizes=(8,), schedule="gpipe")
    plan = evaluate(job(8, optimizer=SGD), TWO, cluster, both)
    # 2 samples from the first to each, 4 from the second to the second: 4 · 2 bytes and the latency
    assert plan.predicted.bottleneck.kind == "stage"
    assert plan.predicted.step == 4 + (0.5 + 8) + 6 + 12 + (0.5 + 8) + 8 + (6 + 2 * 0.5)
    assert plan.predicted.transfer_bytes == 2 * 8 * 2


def test_pairs_on_one_wire_talk_one_after_the_other() -> None:
    cluster = replace(toy_cluster([1.0] * 4), links=(LinkRule(bandwidth=1.0, latency=0.5, shared=True),))
    both = choice(stage((0,), on(0, 1), (4, 4)), stage((1,), on(2, 3), (2, 6)), sizes=(8,), schedule="gpipe")
    plan = evaluate(job(8, optimizer=SGD), TWO, cluster, both)
    message = 3 * 0.5 + 8 * 2
    assert plan.predicted.step == 4 + message + 6 + 12 + message + 8 + 7


def test_a_smaller_last_microbatch_is_dealt_out_anew_and_may_leave_a_replica_idle() -> None:
    assert last_shares((4, 2, 1), 7) == (4, 2, 1)
    assert last_shares((1, 1), 1) == (1, 0)
    plan = evaluate(
        job(3, optimizer=SGD), ONE, toy_cluster([1.0, 1.0]), choice(stage((0,), on(0, 1), (1, 1)), sizes=(2, 1))
    )
    assert plan.predicted.step == 3 + 3 + 6  # the second microbatch on the first device alone; 6 bytes are reduced
    assert plan.predicted.bubble_fraction == pytest.approx(1 - (12 + 9) / 24)


def test_virtual_workers_share_each_microbatch_and_reduce_what_both_hold() -> None:
    cluster = toy_cluster([1.0, 1.0, 0.5], bandwidth=2.0)
    two_and_one = choice(
        stage((0,), on(0), (2,)), stage((1,), on(1), (2,)), stage((0, 1), on(2), (1,), inputs=()), sizes=(3, 3)
    )
    plan = evaluate(job(6, optimizer=SGD), TWO, cluster, two_and_one)
    assert [s.in_flight for s in plan.stages] == [2, 1, 1]
    assert [s.inputs for s in plan.stages] == [(), (0,), ()]
    first = 2 + 2 + 2 * 6 + 2 + 4  # F0, message of 2·2 bytes, b twice, message, B1
    second = 2 * 2 * (2 + 4)  # two microbatches of one sample through both layers at half speed
    # a is reduced between stages 0 and 2 (6 bytes, 3 s), then b between 1 and 2 (12 bytes, 6 s)
    assert [s.allreduce for s in plan.stages] == [3, 6, 9]
    assert plan.predicted.step == max(first, second) + 3 + 6
    assert plan.predicted.transfer_bytes == 2 * (2 * 2) * 2


def test_a_smaller_last_microbatch_is_dealt_to_workers_and_then_to_replicas() -> None:
    cluster = toy_cluster([1.0] * 3)
    workers = choice(stage((0,), on(0, 1), (2, 2)), stage((0,), on(2), (2,), inputs=()), sizes=(6, 2))
    plan = evaluate(job(8, optimizer=SGD), ONE, cluster, workers)
    # of 2 samples the first worker has floor(4·2/6) = 1 and the second 0; the larger remainder is the second's
    assert plan.predicted.step == (2 + 4) + (1 + 2) + 2 * 2 / 3 * 6


def test_a_tensor_goes_straight_from_its_stage_to_each_that_reads_it() -> None:
    branching = toy_profile(
        toy_layer("a", [], output_bytes=4.0),
        toy_layer("b", ["a"], output_bytes=2.0),
        toy_layer("c", ["a"], output_bytes=2.0),
        toy_layer("d", ["b", "c"]),
    )
    side_by_side = choice(
        stage((0,), on(0), (1,), inputs=()),
        stage((1,), on(1), (1,), inputs=(0,)),
        stage((2,), on(2), (1,), inputs=(0,)),
        stage((3,), on(3), (1,), inputs=(1, 2)),
        sizes=(1,),
    )
    plan = evaluate(job(1, optimizer=SGD), branching, toy_cluster([1.0] * 4), side_by_side)
    assert plan.predicted.step == 1 + 4 + 1 + 2 + 3 + 2 + 2 + 4 + 2
    assert plan.predicted.transfer_bytes == 2 * (4 + 4 + 2 + 2)
    assert [s.in_flight for s in plan.stages] == [1, 1, 1, 1]
    assert [s.inputs for s in plan.stages] == [(), (0,), (0,), (1, 2)]
    chain = choice(*(stage((i,), on(i), (1,)) for i in range(4)), sizes=(1,))
    hops = (4 + 4) + (4 + 2) + (2 + 2)  # a for b and for c, then a for c and b for d, then b and c for d
    assert evaluate(job(1, optimizer=SGD), branching, toy_cluster([1.0] * 4), chain).predicted.step == 4 * 3 + 2 * hops


def test_warm_up_is_by_depth_to_the_end() -> None:
    depths = graph_depths([(), (0,), (1,), (), (2, 3)])
    assert depths == (4, 3, 2, 2, 1)
    rows = format_schedule(make_schedule("1f1b", 5, 4, depths=depths)).splitlines()
    assert rows[3] == "3F0,3F1,3B0,3F2,3B1,3F3,3B2,3B3"
    assert rows[0] == "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3"
    with pytest.raises(InputError, match="circle"):
        graph_depths([(), (2,), (1,)])
    with pytest.raises(InputError, match="numbered 0 to 1"):
        graph_depths([(), (2,)])
    with pytest.raises(InputError, match="depth of at least 1"):
        make_schedule("1f1b", 2, 4, depths=(2, 0))


CHAIN = toy_profile(
    toy_layer("a", [], output_bytes=1.0, activation_bytes=10.0),
    toy_layer("b", ["a"], output_bytes=2.0, activation_bytes=20.0),
    toy_layer("c", ["b", "a"], output_bytes=4.0, activation_bytes=40.0, workspace_bytes=7.0),
)


@pytest.mark.parametrize(
    ("segments", "kept", "peak", "again"),
    [
        ((), 70, 0, 0),
        (((0, 3),), 0, 70, 3),  # the model's own input is not kept by us
        (((1, 3),), 10 + 1, 60, 2),  # a's output is kept, once, though b and c read it
        (((1, 2), (2, 3)), 10 + 1 + (2 + 1), 40, 2),
        (((1, 2),), 50 + 1, 20, 1),
    ],
)
def test_of_a_recomputed_segment_only_the_input_is_kept(segments, kept, peak, again) -> None:
    assert held_activations(CHAIN, range(3), segments) == Activations(kept=kept, peak=peak)
    one = choice(stage((0, 1, 2), on(0), (2,), recompute=segments), sizes=(2, 2, 2), schedule="gpipe")
    plan = evaluate(job(6), CHAIN, toy_cluster([1.0]), one)
    assert plan.stages[0].devices[0].memory == 2 * (3 * kept + peak) + 7
    assert (plan.stages[0].forward, plan.stages[0].backward) == (2 * 3, 2 * (6 + again))
    assert plan.stages[0].recompute == bool(segments)
    names = {0: "a", 1: "b", 2: "c"}
    told = [] if segments == ((0, 3),) else [(names[first], names[end - 1]) for first, end in segments]
    assert plan.stages[0].recompute_segments == tuple(told)


def test_what_rises_above_a_recomputed_segment_counts_with_it() -> None:
    layers = (
        toy_layer("a", [], activation_bytes=2.0, transient_bytes=9.0, output_bytes=1.0),
        toy_layer("b", ["a"], activation_bytes=3.0, transient_bytes=4.0, carried_bytes=5.0),
    )
    profile = Profile(name="p", precision="fp32", reference="ref", layers=layers)
    assert held_activations(profile, (0, 1)) == Activations(kept=10, peak=1)  # 2 + 9 at once, 10 kept
    assert held_activations(profile, (0, 1), [(1, 2)]) == Activations(kept=2 + 1, peak=9)  # of a; b: 3 + 5 kept
    assert held_activations(profile, (0, 1), [(0, 2)]) == Activations(kept=0, peak=11)


def test_offload_hides_what_the_link_to_the_host_carries_in_time() -> None:
    def planned(host: float, count: int) -> tuple[float, float, float]:
        one = choice(stage((0,), on(0), (2,), offload=True), sizes=(2,) * count, schedule="gpipe")
        held = evaluate(job(2 * count), ONE, toy_cluster([1.0], hosts=[host]), one).stages[0]
        return held.forward, held.backward, held.devices[0].memory

    weights = 6 * (FACTORS.weights + FACTORS.gradients + FACTORS.optimizer)
    assert planned(5.0, 4) == (2, 4, weights + 2 * 2 * 5)  # 10 bytes in 2 s: hidden; two microbatches on the device
    assert planned(2.0, 4) == (5, 5, weights + 2 * 2 * 5)  # 10 bytes take 5 s, longer than either pass
    assert planned(2.0, 2) == (2, 4, weights + 2 * 2 * 5)  # nothing leaves where two at most are held
    one = choice(stage((0,), on(0), (2,), offload=True), sizes=(2, 2, 2), schedule="gpipe")
    with pytest.raises(InputError, match=r"host_bandwidth: 25GB/s"):
        evaluate(job(6), ONE, toy_cluster([1.0]), one)


def test_offload_after_recompute_moves_only_what_is_still_kept() -> None:
    both = choice(stage((0, 1, 2), on(0), (1,), recompute=((1, 3),), offload=True), sizes=(1,) * 4, schedule="gpipe")
    plan = evaluate(job(4), CHAIN, toy_cluster([1.0], hosts=[1.0]), both)
    assert (plan.stages[0].forward, plan.stages[0].backward) == (11, 11)  # 10 of a, 1 of the segment's input
    assert plan.stages[0].devices[0].memory == 2 * 11 + 60 + 7


def test_sharding_divides_the_optimizers_part_and_takes_no_time() -> None:
    def planned(shard: bool):
        group = choice(stage((0,), on(0, 1, 2), (1, 1, 1), shard=shard), sizes=(3,))
        return evaluate(job(3), ONE, toy_cluster([1.0] * 3), group)

    whole, sharded = planned(False), planned(True)
    assert whole.stages[0].devices[0].memory - sharded.stages[0].devices[0].memory == 6 * 12 * 2 / 3
    assert (whole.stages[0].optimizer_shards, sharded.stages[0].optimizer_shards) == (1, 3)
    assert whole.predicted == sharded.predicted


def test_a_ring_takes_the_slowest_link_and_the_largest_latency() -> None:
    devices = [Device(id=f"n{i // 2}/d{i}", node=f"n{i // 2}", kind="own", memory=1.0, speed=1.0) for i in range(6)]
    nodes = tuple(Node(name=f"n{i}", devices=tuple(devices[2 * i : 2 * i + 2])) for i in range(3))
    rules = (
        LinkRule(bandwidth=8.0, latency=0.5),
        LinkRule(bandwidth=4.0, latency=0.1, sources=frozenset({"n1"}), targets=frozenset({"n1"}), within=True),
        LinkRule(bandwidth=2.0, latency=0.0, sources=frozenset({"n0/d1"}), targets=frozenset({"n2"}), both_ways=False),
    )
    cluster = Cluster(name="c", nodes=nodes, links=rules)
    for members in (devices, devices[:2], devices[2:4], devices[1:5:3], devices[2:]):
        links = [cluster.link(a, b) for a in members for b in members if a is not b]
        expected = min(link.bandwidth for link in links), max(link.latency for link in links)
        assert slowest_link(cluster, members) == expected
    with pytest.raises(InputError, match="no link from"):
        slowest_link(replace(cluster, links=rules[1:]), devices)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([stage((0,), on(0), (2,))], "found none for 'b'"),
        ([stage((0,), on(0), (2,)), stage((1,), on(1), (1,))], r"equally many samples; found \[2, 1\]"),
        ([stage((0, 1), on(0), (1,))], "share a microbatch of 2 samples; found 1"),
        ([stage((0,), on(0), (2,)), stage((0, 1), on(1), (2,))], "found it on two of them"),
        ([stage((0, 1), on(0), (1,)), stage((0,), on(1), (1,), inputs=())], "hold the same layers each"),
        ([stage((0, 1), on(0, 0), (1, 1))], "every device on one stage once"),
        ([stage((0,), on(0), (2,)), stage((1,), on(0), (2,))], "every device on one stage once"),
        ([stage((0, 1), on(0, 1), (2,))], "at least one device"),
        ([stage((0, 1), on(0, 1), (2, 0))], "at least 1 sample for each"),
        ([stage((1, 0), on(0), (2,))], "to rise"),
        ([stage((0, 5), on(0), (2,))], "the profile's are 0 to 1"),
        ([stage((0,), on(0), (2,), inputs=(1,)), stage((1,), on(1), (2,))], "circle"),
        ([stage((0,), on(0), (2,), inputs=(7,)), stage((1,), on(1), (2,))], "numbered 0 to 1"),
        ([stage((0,), on(0), (2,)), stage((1,), on(1), (2,), inputs=(0, 0))], "one of its inputs twice"),
        ([stage((0,), on(0), (2,)), stage((1,), on(1), (2,), inputs=())], "layer 'b' reads 'a'"),
        ([stage((1,), on(0), (2,)), stage((0,), on(1), (2,))], "not among its inputs"),
        ([stage((0, 1), on(0), (2,), recompute=((0, 3),))], "segments to recompute on stage 0"),
        ([stage((0, 1), on(0), (2,), recompute=((1, 2), (0, 1)))], "segments to recompute on stage 0"),
        ([stage((0, 1), on(0), (2,), recompute=((1, 1),))], "segments to recompute on stage 0"),
    ],
)
def test_a_choice_that_is_none_is_refused(stages: list[StageChoice], said: str) -> None:
    with pytest.raises(InputError, match=said):
        evaluate(job(2), TWO, toy_cluster([1.0, 1.0]), choice(*stages, sizes=(2,)))


def test_a_reader_must_be_fed_by_the_stage_that_makes_what_it_reads() -> None:
    skip = toy_profile(
        toy_layer("a", []), toy_layer("b", ["a"]), toy_layer("c", ["a"]), toy_layer("d", ["b", "c", "a"])
    )
    graph = choice(
        stage((0,), on(0), (1,)),
        stage((1,), on(1), (1,), inputs=(0,)),
        stage((2,), on(2), (1,), inputs=(0,)),
        stage((3,), on(3), (1,), inputs=(1, 2)),
        sizes=(1,),
    )
    with pytest.raises(InputError, match="stage 3 reads 'a' of stage 0, which is not among its inputs"):
        evaluate(job(1), skip, toy_cluster([1.0] * 4), graph)
