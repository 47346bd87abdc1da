"""What each number means, by small tables."""

import pytest

from ignite_scheduler.cost import (
    cut_bytes,
    evaluate,
    layer_seconds,
    memory_factors,
    microbatch_sizes,
    ring_seconds,
    stage_activations,
    stage_memory,
    stage_parameters,
    straight,
)
from ignite_scheduler.cost.memory import Activations
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    MemoryFactors,
    Node,
    Optimizer,
    Profile,
    Reference,
)


def layer(name, *inputs, times=None, parameters=0.0, output=1.0, activation=1.0, **more):
    edges = tuple(LayerInput(source=i) if isinstance(i, str) else LayerInput(source=i[0], bytes=i[1]) for i in inputs)
    table = times if times is not None else {"ref": {1: LayerTimes(forward=1.0, backward=2.0)}}
    return Layer(
        name=name,
        parameter_bytes=parameters,
        output_bytes=output,
        activation_bytes=activation,
        times=table,
        inputs=edges or (LayerInput(source="input"),),
        **more,
    )


def profile(*layers, **more):
    return Profile(name="toy", precision="fp32", reference="ref", layers=layers, **more)


def device(name="a", **more):
    return Device(**{"id": f"n/{name}", "node": "n", "kind": "own", "memory": 100.0, "speed": 1.0} | more)


def job(**more):
    return Job(**{"name": "j", "model": Reference(profile="p"), "batch": Batch(total=4, micro=1), "steps": 10} | more)


def cluster(*devices, **link):
    rule = LinkRule(**{"bandwidth": 1.0, "latency": 0.0} | link)
    return Cluster(name="c", nodes=(Node(name="n", devices=devices),), links=(rule,), currency="EUR")


MEASURED = {2: LayerTimes(forward=4.0, backward=6.0), 4: LayerTimes(forward=6.0, backward=12.0)}


@pytest.mark.parametrize(
    ("samples", "forward", "backward"),
    [(2, 4, 6), (3, 5, 9), (4, 6, 12), (8, 10, 24), (1, 3, 3)],
)
def test_times_are_linear_between_and_affine_beyond(samples, forward, backward):
    seconds = layer_seconds(profile(layer("l", times={"ref": MEASURED})), 0, device(), samples)
    assert seconds[:2] == (forward, backward)


def test_times_never_fall_with_the_size_beyond_and_are_never_negative():
    falling = {2: LayerTimes(forward=4.0, backward=1.0), 4: LayerTimes(forward=3.0, backward=9.0)}
    p = profile(layer("l", times={"ref": falling}))
    assert layer_seconds(p, 0, device(), 9).forward == 3.0
    assert layer_seconds(p, 0, device(), 1).forward == 4.0
    assert layer_seconds(p, 0, device(), 1).backward == 0.0


def test_one_measured_size_scales_in_proportion():
    p = profile(layer("l", times={"ref": {4: LayerTimes(forward=4.0, backward=8.0)}}))
    assert layer_seconds(p, 0, device(), 6)[:2] == (6.0, 12.0)


def test_order_of_sources():
    times = {"ref": {1: LayerTimes(forward=1.0, backward=2.0)}, "own": {1: LayerTimes(forward=5.0, backward=7.0)}}
    p = profile(layer("l", times=times, forward_flops=10.0))
    assert layer_seconds(p, 0, device(speed=0.5), 1)[:2] == (5.0, 7.0)  # measured kind wins over speed
    assert layer_seconds(p, 0, device(kind="other", speed=0.5), 1)[:2] == (2.0, 4.0)
    assert layer_seconds(p, 0, device(kind="ref", speed=0.25), 1)[:2] == (4.0, 8.0)  # an emulated reference device
    fast = device(kind="other", speed=None, peak_flops=(("fp32", 5.0),), memory_bandwidth=1e9)
    assert layer_seconds(p, 0, fast, 1)[:2] == (2.0, 4.0)
    assert "roofline" in layer_seconds(p, 0, fast, 1).source
    assert layer_seconds(p, 0, device(kind="other", speed=None), 1) is None


def test_weight_part_is_measured_or_half():
    parts = LayerTimes(forward=1.0, backward=3.0, input_backward=2.0, weight_backward=1.0)
    assert layer_seconds(profile(layer("l", times={"ref": {1: parts}})), 0, device(), 2).weight_backward == 2.0
    assert layer_seconds(profile(layer("l")), 0, device(), 2).weight_backward == 2.0


def test_a_skip_counts_at_every_cut_and_once_for_each_receiving_stage():
    p = profile(layer("a"), layer("b", "a", output=10.0), layer("c", "b", "a", output=100.0), layer("d", "c", "a"))
    assert cut_bytes(p, (1, 1, 1, 1)) == (3.0, 12.0, 101.0)  # a is read by b, c and d, each on a stage of its own
    assert cut_bytes(p, (1, 3)) == (1.0,)  # …and only once by a stage that holds all three
    assert cut_bytes(p, (2, 2)) == (11.0,)
    assert cut_bytes(p, (4,)) == ()


def test_an_edge_may_read_less_than_the_whole_output():
    p = profile(layer("a", output=10.0), layer("b", ("a", 4.0)))
    assert cut_bytes(p, (1, 1)) == (4.0,)


@pytest.mark.parametrize(
    ("precision", "name", "expected"),
    [
        ("fp32", "sgd", (1, 1, 0)),
        ("fp32", "momentum", (1, 1, 1)),
        ("fp32", "adamw", (1, 1, 2)),
        ("bf16", "sgd", (0.5, 0.5, 1)),
        ("bf16", "momentum", (0.5, 0.5, 2)),
        ("fp16", "adam", (0.5, 0.5, 3)),
        ("auto", "adam", (1, 1, 2)),
    ],
)
def test_memory_factors(precision, name, expected):
    factors = memory_factors(job(precision=precision, optimizer=Optimizer(name=name)), profile(layer("l")))
    assert (factors.weights, factors.gradients, factors.optimizer) == expected


def test_memory_override_multiplies_as_written():
    own = MemoryFactors(weights=3.0, gradients=2.0, optimizer=0.5)
    assert memory_factors(job(precision="bf16", optimizer=Optimizer(memory=own)), profile(layer("l"))) == own


def test_memory_of_a_stage():
    p = profile(
        layer("a", parameters=10.0, activation=2.0, workspace_bytes=7.0),
        layer("b", "a", parameters=5.0, activation=3.0, workspace_bytes=4.0),
    )
    factors = MemoryFactors(weights=1.0, gradients=1.0, optimizer=2.0)
    assert stage_memory(p, 0, 2, factors, in_flight=3, samples=2) == 15 * 4 + 3 * 2 * 5 + 7
    assert stage_memory(p, 1, 2, factors, in_flight=1, samples=1) == 5 * 4 + 3 + 4


def test_what_is_there_for_a_moment_counts_where_it_rises_above_what_is_kept() -> None:
    p = profile(
        layer("a", activation=2.0, transient_bytes=9.0, carried_bytes=1.0),
        layer("b", "a", activation=3.0, transient_bytes=4.0),
        layer("c", "b", activation=6.0, transient_bytes=1.0, carried_bytes=5.0),
    )
    assert stage_activations(p, 0, 1) == Activations(kept=3.0, peak=8.0)  # 2 + 9 at once, 2 + 1 kept
    assert stage_activations(p, 0, 2) == Activations(kept=5.0, peak=6.0)  # 2 + 9 at `a`, 5 + 4 at `b`
    assert stage_activations(p, 0, 3) == Activations(kept=16.0, peak=0.0)  # 12 at `c` is below what is kept in all
    none = MemoryFactors(weights=0.0, gradients=0.0, optimizer=0.0)
    assert stage_memory(p, 0, 2, none, in_flight=3, samples=10) == 10 * (3 * 5 + 6)
    assert stage_memory(p, 0, 2, none, in_flight=3, samples=10, scale=0.5) == 5 * (3 * 5 + 6)


def test_tied_weights_count_on_each_stage_but_once_within_one():
    p = profile(
        layer("a", parameters=10.0),
        layer("b", "a", parameters=1.0),
        layer("c", "b", parameters=12.0),
        tied=(("a", "c"),),
    )
    assert stage_parameters(p, 0, 3) == 13.0
    assert stage_parameters(p, 0, 2) + stage_parameters(p, 2, 3) == 23.0


def test_ring():
    assert ring_seconds(100.0, 10.0, 0.5, 2) == 100 / 10 + 2 * 0.5
    assert ring_seconds(100.0, 10.0, 0.0, 4) == 2 * 3 / 4 * 10


@pytest.mark.parametrize(("total", "micro", "sizes"), [(8, 3, (3, 3, 2)), (8, 4, (4, 4)), (3, 5, (3,)), (1, 1, (1,))])
def test_microbatch_sizes(total, micro, sizes):
    assert microbatch_sizes(total, micro) == sizes


def test_a_plan_with_all_its_figures():
    p = profile(layer("a", parameters=4.0), layer("b", "a", parameters=8.0, activation=2.0))
    devices = (
        device("x", price=1.0, busy_power=10.0, idle_power=1.0),
        device("y", speed=0.5, price=2.0, busy_power=20.0, idle_power=2.0),
    )
    assignment = straight(split=(1, 1), devices=("n/x", "n/y"), microbatches=(1,) * 4, schedule="1f1b")
    plan = evaluate(job(optimizer=Optimizer(name="sgd")), p, cluster(*devices), assignment)
    # stage 0: f+b 3, stage 1: 2·3 = 6, links 1 each way: 1F1B ends at 1 + 1 + 4·6 + 1 + 2
    assert plan.predicted.step == 29.0
    assert plan.predicted.bottleneck.kind == "stage"
    assert (plan.predicted.bottleneck.index, plan.predicted.bottleneck.busy) == (1, 6.0)
    assert plan.predicted.duration == 290.0
    assert plan.predicted.cost == 290.0 * 3
    busy = 12 * 10 + 17 * 1 + 24 * 20 + 5 * 2
    assert plan.predicted.energy == pytest.approx(10 * busy)
    assert plan.predicted.transfer_bytes == 2 * 4 * 1.0
    assert [stage.devices[0].memory for stage in plan.stages] == [4 * 2 + 2 * 1, 8 * 2 + 1 * 2]
    assert [stage.in_flight for stage in plan.stages] == [2, 1]
    assert plan.predicted.samples_per_second == 4 / 29


def test_unknown_price_or_power_gives_null():
    p = profile(layer("a"))
    assignment = straight(split=(1,), devices=("n/a",), microbatches=(1,), schedule="gpipe")
    plan = evaluate(job(batch=Batch(total=1)), p, cluster(device()), assignment)
    assert plan.predicted.cost is None
    assert plan.predicted.energy is None


def test_a_16_bit_job_on_a_32_bit_profile_halves_bytes_and_says_so():
    p = profile(layer("a", output=8.0), layer("b", "a"))
    assignment = straight(split=(1, 1), devices=("n/a", "n/b"), microbatches=(1, 1), schedule="gpipe")
    plan = evaluate(job(precision="bf16", batch=Batch(total=2)), p, cluster(device("a"), device("b")), assignment)
    assert plan.predicted.transfer_bytes == 2 * 2 * 4.0
    assert any("no times in bf16" in warning for warning in plan.warnings)


def test_a_profile_without_any_times_is_timed_in_the_precision_asked_for():
    p = profile(layer("a", times={}, forward_flops=10.0))
    card = device(kind="card", speed=None, peak_flops=(("fp32", 5.0), ("bf16", 20.0)), memory_bandwidth=1e9)
    assignment = straight(split=(1,), devices=("n/a",), microbatches=(1,), schedule="1f1b")
    plan = evaluate(job(precision="bf16", batch=Batch(total=1)), p, cluster(card), assignment)
    assert plan.stages[0].forward == 0.5
    assert not any("no times" in warning for warning in plan.warnings)


def test_overheads_and_updates_that_a_profile_gives_scale_with_speed():
    p = profile(layer("a", update={"sgd": 3.0}), action_overhead=0.5)
    assignment = straight(split=(1,), devices=("n/a",), microbatches=(1, 1), schedule="gpipe")
    plan = evaluate(job(batch=Batch(total=2)), p, cluster(device(speed=0.5)), assignment)
    assert plan.predicted.step == 2 * ((1.5 + 2.5) * 2) + 6.0
    assert plan.stages[0].update == 6.0


def test_tied_weights_on_two_stages_are_reduced_before_the_update():
    p = profile(layer("a", parameters=6.0), layer("b", "a", parameters=6.0), tied=(("a", "b"),))
    assignment = straight(split=(1, 1), devices=("n/a", "n/b"), microbatches=(1,), schedule="gpipe")
    plan = evaluate(job(batch=Batch(total=1)), p, cluster(device("a"), device("b"), latency=0.0), assignment)
    alone = 1 + 1 + 1 + 2 + 1 + 2
    assert plan.stages[0].allreduce == plan.stages[1].allreduce == 6.0
    assert plan.predicted.step == alone + 6.0


@pytest.mark.parametrize(
    "change",
    [{"split": (2,)}, {"split": (1, 0)}, {"devices": ("n/a", "n/a")}, {"devices": ("n/a",)}, {"microbatches": ()}],
)
def test_a_malformed_choice_is_refused(change):
    p = profile(layer("a"), layer("b", "a"))
    fine = {"split": (1, 1), "devices": ("n/a", "n/b"), "microbatches": (1,), "schedule": "gpipe"}
    with pytest.raises(InputError, match="found"):
        evaluate(
            job(),
            profile(*p.layers[:2], layer("c", "b")),
            cluster(device("a"), device("b")),
            straight(**(fine | change)),
        )


def test_no_link_and_no_time_are_named():
    p = profile(layer("a"), layer("b", "a"))
    choice = straight(split=(1, 1), devices=("n/a", "n/b"), microbatches=(1,), schedule="gpipe")
    apart = Cluster(name="c", nodes=(Node(name="n", devices=(device("a"), device("b"))),), links=())
    with pytest.raises(InputError, match="no link from n/a to n/b"):
        evaluate(job(), p, apart, choice)
    with pytest.raises(InputError, match="'a' has no time on kind 'own'"):
        evaluate(job(), p, cluster(device("a", speed=None), device("b")), choice)
