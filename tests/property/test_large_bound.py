"""The bound over wide clusters holds for every chain, and no chain is better than what its judge says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np
import pytest

from ignite_scheduler.cost import evaluate
from ignite_scheduler.model import (
    MODEL_INPUT,
    Batch,
    Cluster,
    Device,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Optimizer,
    PipelineChoice,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.large.bound import least_step
from ignite_scheduler.planner.large.ground import Ground, ground_of
from ignite_scheduler.planner.large.judge import Chain, Judge
from ignite_scheduler.planner.request import requested

ABILITIES = frozenset({"replicas", "recompute", "shard", "offload"})


def random_problem(seed: int, replicas: int | str = "auto", *, actions: bool = False) -> Problem:
    """Few layers and devices, some of them alike, with links of two speeds and now and then little memory."""
    source = np.random.default_rng(seed)
    num_layers, num_devices = int(source.integers(2, 5)), int(source.integers(2, 5))
    sizes = (1,) if source.random() < 0.4 else (1, 2, 4)
    layers = []
    for index in range(num_layers):
        base, per = float(source.uniform(0.0, 1.0)), float(source.uniform(0.1, 3.0))
        ratio = float(source.uniform(0.5, 3.0))
        table = {
            size: LayerTimes(
                forward=base + per * size, backward=ratio * (base + per * size * float(source.uniform(0.9, 1.1)))
            )
            for size in sizes
        }
        layers.append(
            Layer(
                name=f"l{index}",
                parameter_bytes=float(source.integers(0, 5)),
                output_bytes=float(source.integers(0, 4)),
                activation_bytes=float(source.integers(1, 5)),
                times={"k": table},
                inputs=(LayerInput(source=f"l{index - 1}" if index else MODEL_INPUT),),
            )
        )
    memory = float(source.choice([1e9, 60.0, 40.0]))
    nodes = []
    for n in range(2):
        devices = tuple(
            Device(
                id=f"n{n}/{d}",
                node=f"n{n}",
                kind="k",
                speed=float(source.choice([1.0, 0.5, 0.3])),
                memory=memory,
                host_bandwidth=20.0,
            )
            for d in range((num_devices + 1 - n) // 2)
        )
        nodes.append(Node(name=f"n{n}", devices=devices))
    slow = float(source.choice([0.5, 5.0, 1e3]))
    cluster = Cluster(
        name="random",
        nodes=tuple(nodes),
        links=(
            LinkRule(bandwidth=slow, latency=0.05),
            LinkRule(bandwidth=10 * slow, latency=0.01, within=True),
        ),
    )
    wish = "auto" if actions else False
    job = Job(
        name="random",
        model=Reference(profile="p"),
        batch=Batch(total=int(source.integers(1, 7))),
        steps=1,
        optimizer=Optimizer(name="sgd"),
        pipeline=PipelineChoice(replicas=replicas, recompute=wish, shard=wish, offload=wish),  # type: ignore[arg-type]
    )
    profile = Profile(name="p", precision="fp32", reference="k", layers=tuple(layers))
    return Problem(job=job, profile=profile, cluster=cluster, abilities=ABILITIES)


def ordered_groups(devices: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to put the devices into groups that stand in order."""
    if not devices:
        yield ()
        return
    for size in range(1, len(devices) + 1):
        for first in combinations(devices, size):
            rest = tuple(device for device in devices if device not in first)
            for others in ordered_groups(rest):
                yield (first, *others)


def all_chains(ground: Ground) -> Iterator[Chain]:
    """Every chain over every subset of the devices."""
    num_layers = ground.rows.num_layers
    devices = tuple(range(len(ground.ids)))
    for size in range(1, len(devices) + 1):
        for used in combinations(devices, size):
            for groups in ordered_groups(used):
                if ground.request.replicas is not None and any(len(g) != ground.request.replicas for g in groups):
                    continue
                for cuts in combinations(range(1, num_layers), len(groups) - 1):
                    yield Chain((0, *cuts), tuple(ground.standing(group) for group in groups))


def best_by_family(ground: Ground) -> dict[object, float]:
    """The least step of each family."""
    best: dict[object, float] = {}
    chains = list(all_chains(ground))
    for family in ground.request.families:
        judge = Judge(ground.costs, ground.net, family)
        best[family] = min((judge.value(chain) for chain in chains), default=np.inf)
    return best


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("replicas", ["auto", 1])
def test_bound_is_below_the_best_of_all_chains(block: int, replicas: int | str) -> None:
    """For each family alone and for all together, whatever step is known."""
    for seed in range(8 * block, 8 * block + 8):
        problem = random_problem(seed, replicas, actions=seed % 3 == 0)
        request = requested(problem)
        if isinstance(request, Infeasible):
            continue
        ground = ground_of(problem, request)
        best = best_by_family(ground)
        for family, least in best.items():
            if least < np.inf:
                for known in (1.3 * least,):
                    bound, _ = least_step(ground, (family,), known, 300_000)  # type: ignore[arg-type]
                    assert bound <= least * (1 + 1e-9), (seed, family, known)
        least = min(best.values())
        if least < np.inf:
            assert least_step(ground, request.families, 1.1 * least, 1_000_000)[0] <= least * (1 + 1e-9), seed


def three_nodes(seed: int) -> Problem:
    """Five devices of two speeds in three nodes, with slow links between nodes, for chains of one device a stage."""
    problem = random_problem(seed, 1)
    source = np.random.default_rng(seed)
    speeds = source.choice([1.0, 0.7], size=2)
    nodes = tuple(
        Node(
            name=f"n{n}",
            devices=tuple(
                Device(id=f"n{n}/{d}", node=f"n{n}", kind="k", speed=float(speeds[n % 2]), memory=1e9)
                for d in range(size)
            ),
        )
        for n, size in enumerate((2, 2, 1))
    )
    slow = float(source.choice([0.5, 2.0]))
    cluster = Cluster(
        name="three",
        nodes=nodes,
        links=(LinkRule(bandwidth=slow, latency=0.05), LinkRule(bandwidth=20 * slow, latency=0.01, within=True)),
    )
    return replace(problem, cluster=cluster)


@pytest.mark.parametrize("seed", range(100, 124))
def test_bound_counts_no_link_that_a_straight_chain_need_not_take(seed: int) -> None:
    """Runs of stages in one node pay for near links only, and for a far one when the node is used up."""
    problem = three_nodes(seed)
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    ground = ground_of(problem, request)
    devices, num_layers = range(len(ground.ids)), ground.rows.num_layers
    for family in request.families[-2:]:
        judge = Judge(ground.costs, ground.net, family)
        least = min(
            judge.value(Chain((0, *cuts), tuple((device,) for device in order)))
            for size in range(1, min(len(devices), num_layers) + 1)
            for order in permutations(devices, size)
            for cuts in combinations(range(1, num_layers), size - 1)
        )
        for known in (1.01 * least, 1.4 * least):
            assert least_step(ground, (family,), known, 1_000_000)[0] <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_judge_and_cost_model_agree(seed: int) -> None:
    """Step and memory of a chain are those of the plan that it becomes."""
    problem = random_problem(seed, actions=seed % 2 == 0)
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    ground = ground_of(problem, request)
    source = np.random.default_rng(seed)
    chains = list(all_chains(ground))
    for family, _ in product(request.families, range(3)):
        judge = Judge(ground.costs, ground.net, family)
        chain = chains[int(source.integers(len(chains)))]
        value = judge.value(chain)
        if value == np.inf:
            continue
        plan = evaluate(problem.job, problem.profile, problem.cluster, judge.assignment(chain, ground.ids))
        assert plan.predicted.step == pytest.approx(value, rel=1e-9)
        assert all(share.memory <= share.memory_limit for stage in plan.stages for share in stage.devices)


def test_every_chain_is_listed_once() -> None:
    """The reference itself: 3 devices make 13 ordered partitions."""
    assert len(set(ordered_groups((0, 1, 2)))) == len(list(ordered_groups((0, 1, 2)))) == 13
