"""Each baseline on an example solved by hand: what its paper's rule chooses, before anything is judged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ignite_scheduler.cost import Assignment
from ignite_scheduler.model import Cluster, Device, LinkRule, Node, Profile
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.peers import PEERS
from ignite_scheduler.planner.peers.cutting import best_cut, run_costs
from ignite_scheduler.planner.peers.dapple import Part, _latency
from ignite_scheduler.planner.peers.placing import lines
from ignite_scheduler.planner.peers.view import View, see
from ignite_scheduler.planner.request import Request, requested
from planner_cases import chain, devices_in_one_node, job

ABLE = frozenset({"replicas", "workers"})


def view_of(profile: Profile, cluster: Cluster, *, total: int, micro: int = 1, schedule: str = "1f1b") -> View:
    problem = Problem(job=job(total=total, micro=micro), profile=profile, cluster=cluster, abilities=ABLE)
    request = requested(problem)
    assert isinstance(request, Request)
    family = next(family for family in request.families if family.schedule == schedule)
    return see(request, request.devices, family)


def chosen(name: str, view: View) -> Assignment:
    return PEERS[name].choose(view)[0]


def shape(assignment: Assignment) -> list[tuple[int, int]]:
    """Layers and devices of each stage."""
    return [(len(stage.layers), len(stage.devices)) for stage in assignment.stages]


def two_nodes(speeds: list[list[float]], between: float, **figures: float) -> Cluster:
    """Nodes n0, n1, … with free links inside and ``between`` bytes/s among them."""
    nodes = tuple(
        Node(
            name=f"n{n}",
            devices=tuple(
                Device(id=f"n{n}/d{i}", node=f"n{n}", kind="own", speed=speed, **({"memory": math.inf} | figures))
                for i, speed in enumerate(of_node)
            ),
        )
        for n, of_node in enumerate(speeds)
    )
    rules = (LinkRule(bandwidth=between, latency=0.0), LinkRule(bandwidth=1e30, latency=0.0, within=True))
    return Cluster(name="nodes", nodes=nodes, links=rules)


def test_a_mean_device_has_the_mean_speed() -> None:
    view = view_of(chain([3.0]), devices_in_one_node([2.0, 1.0]), total=4)
    assert view.mean().total.tolist() == [0.0, 2.0]  # 3 ÷ mean of 2 and 1


def test_cuts_by_sum_and_by_maximum_differ() -> None:
    prefix = np.array([0.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    assert best_cut([run_costs(prefix) ** 2] * 3, "sum") is not None
    cut = best_cut([run_costs(prefix)] * 2)
    assert cut is not None
    assert (cut.bounds, cut.value) == ((0, 1, 6 - 1), 5.0)
    assert best_cut([run_costs(prefix)] * 6) is None  # five blocks fill no six stages


def test_equal_layers_puts_the_longer_part_on_the_faster_device() -> None:
    found = chosen("equal-layers", view_of(chain([1.0] * 5), devices_in_one_node([1.0, 2.0]), total=8))
    assert found.split == (3, 2)
    assert found.devices == ("n/d1", "n/d0")


def test_equal_parameters_counts_bytes() -> None:
    profile = chain([1.0] * 4, parameters=[1.0, 1.0, 1.0, 3.0])
    assert chosen("equal-parameters", view_of(profile, devices_in_one_node([1.0] * 2), total=8)).split == (3, 1)


def test_gpipe_makes_the_variance_of_flops_least() -> None:
    profile = chain([1.0] * 5)
    flops = [5.0, 1.0, 1.0, 1.0, 1.0]  # 5² + 4² = 41 < 6² + 3² = 45
    layers = [replace(layer, forward_flops=value) for layer, value in zip(profile.layers, flops, strict=True)]
    cluster = devices_in_one_node([1.0] * 2)
    found = chosen("gpipe", view_of(replace(profile, layers=tuple(layers)), cluster, total=8, schedule="gpipe"))
    assert (found.split, found.schedule) == ((1, 4), "gpipe")
    timed = view_of(chain([1.0, 2.0, 3.0, 4.0, 5.0]), cluster, total=8, schedule="gpipe")
    assert chosen("gpipe", timed).split == (3, 2)  # 6² + 9² = 117 < 10² + 5²


def test_autopipe_moves_a_block_off_the_master_stage() -> None:
    """Two microbatches of five equal layers: 2 + 3 takes 8, and 3 + 2, which min-max does not tell apart, takes 7."""
    assert chosen("autopipe", view_of(chain([1.0] * 5), devices_in_one_node([1.0] * 2), total=2)).split == (3, 2)


def test_pipedream_replicates_what_is_slow_and_light() -> None:
    """Layer 0 takes 1 and is heavy, layer 1 takes 2: one device and two give a microbatch a second."""
    profile = chain([1.0, 2.0], parameters=[30.0, 0.0])
    view = view_of(_per_sample(profile, 2), devices_in_one_node([1.0] * 3, bandwidth=1.0), total=16, micro=2)
    assert shape(chosen("pipedream", view)) == [(1, 1), (1, 2)]


def test_pipedream_plans_nodes_first() -> None:
    """Heavy layers are not replicated over the slow link between nodes, light ones are inside a node."""
    profile = _per_sample(chain([2.0, 2.0], parameters=[1.0, 1.0]), 2)
    view = view_of(profile, two_nodes([[1.0, 1.0], [1.0, 1.0]], between=0.1), total=16, micro=2)
    found = chosen("pipedream", view)
    assert [stage.devices for stage in found.stages] == [("n0/d0", "n0/d1"), ("n1/d0", "n1/d1")]


def test_dapple_latency_is_warm_up_steady_and_ending_around_the_pivot() -> None:
    """Stages of 1 + 2, 2 + 4, 1 + 2 and four microbatches, free links: the middle one is the pivot."""
    zero = np.zeros(1)
    stages = [Part(np.array([f]), np.array([2 * f]), zero) for f in (1.0, 2.0, 1.0)]
    assert _latency(stages, 4).tolist() == [(1 + 2) + 3 * 6 + (4 + 2)]
    late = [*stages[:2], stages[2]._replace(reduce=np.array([50.0]))]
    assert _latency(late, 4).tolist() == [(1 + 2) + 3 * 6 + 50.0]  # its reduction begins when the pivot's ends


def test_dapple_replicates_what_is_slow_and_light() -> None:
    profile = _per_sample(chain([1.0, 2.0], parameters=[1e3, 0.0]), 2)
    view = view_of(profile, devices_in_one_node([1.0] * 3, bandwidth=1.0), total=16, micro=2)
    assert shape(chosen("dapple", view)) == [(1, 1), (1, 2)]


def test_alpa_takes_the_least_sum_and_pace() -> None:
    """Σ t + (M − 1) max t: a submesh of two for the slow layer gives 1 + 1 + 7 · 1, all three for both need more."""
    profile = _per_sample(chain([1.0, 2.0], parameters=[1e3, 0.0]), 2)
    view = view_of(profile, devices_in_one_node([1.0] * 3, bandwidth=1.0), total=16, micro=2)
    assert shape(chosen("alpa", view)) == [(1, 1), (1, 2)]


def test_alpa_covers_all_devices_with_powers_of_two_and_whole_nodes() -> None:
    view = view_of(_per_sample(chain([1.0] * 3), 8), two_nodes([[1.0] * 2] * 2, between=1e30), total=64, micro=8)
    found = chosen("alpa", view)
    assert sum(len(stage.devices) for stage in found.stages) == 4
    assert all(len(stage.devices) in (1, 2, 4) for stage in found.stages)


def test_hetpipe_forms_workers_by_each_policy() -> None:
    profile = _per_sample(chain([1.0] * 3), 2)
    view = view_of(profile, two_nodes([[1.0, 1.0], [0.5, 0.5]], between=1e30), total=16, micro=2)
    by_node, across = PEERS["hetpipe"].choose(view)  # pairs of two nodes are the same as across nodes
    assert [stage.devices[0] for stage in by_node.stages] == ["n0/d0", "n0/d1", "n1/d0", "n1/d1"]
    assert across.split == (2, 1, 2, 1)  # two layers on the fast device: 2 and 2 seconds
    assert [stage.devices[0] for stage in across.stages] == ["n0/d0", "n1/d0", "n0/d1", "n1/d1"]
    assert [stage.inputs for stage in across.stages] == [(), None, (), None]


def test_asteroid_shares_by_speed_and_shifts_by_memory() -> None:
    profile = _per_sample(chain([4.0], activations=8.0), 8)  # one layer: nothing to cut, a byte a sample
    roomy = view_of(profile, devices_in_one_node([3.0, 1.0], memory=[80.0, 80.0]), total=8, micro=8)
    assert chosen("asteroid", roomy).stages[0].samples == (6, 2)
    tight = view_of(profile, devices_in_one_node([3.0, 1.0], memory=[4.0, 80.0]), total=8, micro=8)
    stage = chosen("asteroid", tight).stages[0]
    assert dict(zip(stage.devices, stage.samples, strict=True)) == {"n/d0": 4, "n/d1": 4}


def test_asteroid_puts_large_memory_first() -> None:
    cluster = devices_in_one_node([1.0, 1.0], memory=[50.0, 90.0])
    profile = chain([1.0, 1.0], parameters=[40.0, 40.0])  # no device holds both
    assert chosen("asteroid", view_of(profile, cluster, total=8)).devices == ("n/d1", "n/d0")


def test_hph_pipelines_across_kinds_and_replicates_inside() -> None:
    """Five equal layers on two devices of speed 1 and one of 1 ÷ 2: four and one, two seconds each."""
    view = view_of(_per_sample(chain([1.0] * 5), 2), devices_in_one_node([1.0, 1.0, 0.5]), total=16, micro=2)
    found = chosen("hph", view)
    assert sorted(shape(found)) == [(1, 1), (4, 2)]


@pytest.mark.parametrize("name", sorted(PEERS))
def test_every_peer_gives_each_layer_to_one_chain(name: str) -> None:
    profile = _per_sample(chain([1.0, 2.0, 1.0, 3.0, 1.0], parameters=[1.0] * 5, outputs=[1.0] * 5), 8)
    view = view_of(
        profile,
        two_nodes([[1.0, 0.5], [1.0, 0.25]], between=10.0),
        total=64,
        micro=8,
        schedule=PEERS[name].schedule,
    )
    for assignment in PEERS[name].choose(view):
        held = [0] * 5
        for stage in assignment.stages:
            for layer in stage.layers:
                held[layer] += sum(stage.samples)
        assert held == [8] * 5
        assert len(set(assignment.devices)) == sum(len(stage.devices) for stage in assignment.stages)


def test_lines_do_not_depend_on_the_listing() -> None:
    cluster = two_nodes([[1.0, 0.5], [1.0, 0.25]], between=10.0)
    turned = replace(
        cluster, nodes=tuple(replace(node, devices=node.devices[::-1]) for node in reversed(cluster.nodes))
    )
    profile = chain([1.0] * 3)
    assert lines(view_of(profile, cluster, total=4)) == lines(view_of(profile, turned, total=4))


def _per_sample(profile: Profile, samples: int) -> Profile:
    """The profile with what it says of one sample said of so many."""
    return replace(
        profile,
        layers=tuple(
            replace(
                layer,
                output_bytes=layer.output_bytes / samples,
                activation_bytes=layer.activation_bytes / samples,
                times={kind: {samples: table[1]} for kind, table in layer.times.items()},
            )
            for layer in profile.layers
        ),
    )
