"""Graphs of stages: examples solved by hand, gains of branches side by side, and what they are not asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph_cases import forked, graph_of, layer, profile
from ignite_scheduler.cost import Assignment, evaluate
from ignite_scheduler.model import Cluster, Infeasible, PipelineChoice, Profile
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.graphs import linear
from ignite_scheduler.planner.graphs import search as graphs
from ignite_scheduler.planner.graphs.starts import Fork, decomposed
from ignite_scheduler.planner.request import requested
from planner_cases import chain, devices_in_one_node, job


def problem_of(model: Profile, cluster: Cluster, microbatches: int, **terms: object) -> Problem:
    return Problem(job=job(total=microbatches, micro=1, **terms), profile=model, cluster=cluster)


def searched(problem: Problem, incumbent: Assignment | None = None) -> Found:
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    return graphs.search(problem, request, incumbent)


def best_chain(problem: Problem) -> Found:
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    return linear.search(problem, request, None)


def test_two_branches_feed_a_join_on_a_third_device() -> None:
    """Forward : backward = 1 : 2, links free. Branches take 2 + 4 s a microbatch, the join 1 + 2 s.

    ::

        branch  F0 F0 F1 F1 .  B0 B0 B0 B0 B1 B1 B1 B1         5 … 13 s
        join    .  .  F0 B0 B0 F1 B1 B1                        2 … 8 s
    """
    problem = problem_of(forked(2, 2), devices_in_one_node([1.0] * 3), 2)
    found = searched(problem)
    assert found.value == pytest.approx(13.0)
    assert found.complete
    assert found.bound == pytest.approx(13.0)
    assert found.best is not None
    assert [stage.layers for stage in found.best.stages] == [(0, 1), (2, 3), (4,)]
    assert [stage.inputs for stage in found.best.stages] == [(), (), (0, 1)]
    assert found.best.schedule == "1f1b"
    assert best_chain(problem).value == pytest.approx(19.0)


def test_a_line_of_stages_is_written_as_a_chain() -> None:
    problem = problem_of(forked(2, 2), devices_in_one_node([1.0], bandwidth=1.0), 2)
    found = searched(problem)
    assert found.best is not None
    assert [stage.inputs for stage in found.best.stages] == [None]


@pytest.mark.parametrize(("branches", "length", "devices", "microbatches"), [(2, 8, 4, 4), (4, 4, 8, 4), (4, 8, 8, 8)])
def test_branches_side_by_side_beat_the_chain_at_few_microbatches(
    branches: int, length: int, devices: int, microbatches: int
) -> None:
    problem = problem_of(forked(branches, length), devices_in_one_node([1.0] * devices), microbatches)
    found, line = searched(problem), best_chain(problem)
    assert line.value > 1.15 * found.value
    assert found.best is not None
    assert sum(stage.inputs == () for stage in found.best.stages) == branches


def test_a_branch_that_is_skipped_by_a_tensor_needs_no_hop() -> None:
    """a feeds b and d; on three devices the big tensor of a goes to d at once, not over b's device."""
    model = profile(
        [
            layer("a", 3.0, [], output=6.0),
            layer("b", 3.0, ["a"], output=0.0),
            layer("c", 3.0, ["b"], output=0.0),
            layer("d", 3.0, ["a", "c"]),
        ]
    )
    problem = problem_of(model, devices_in_one_node([1.0] * 4, bandwidth=6.0), 1)
    family = next(f for f in requested(problem).families if f.schedule == "gpipe")  # type: ignore[union-attr]
    split = graph_of(problem, family, [0, 1, 2, 3], ["n/d0", "n/d1", "n/d2", "n/d3"])
    # a, its tensor over one link, b, c, d, and back the same way: 4 · 3 s of layers and 2 · 1 s of transfers
    assert evaluate(problem.job, model, problem.cluster, split).predicted.step == pytest.approx(14.0)


def test_what_wants_a_chain_or_has_no_branches_is_left_to_other_searches() -> None:
    cluster = devices_in_one_node([1.0] * 3)
    assert searched(problem_of(chain([1.0, 2.0]), cluster, 2)).best is None
    stages = problem_of(forked(2, 2), cluster, 2, pipeline=PipelineChoice(stages=2))
    split = problem_of(forked(2, 2), cluster, 2, pipeline=PipelineChoice(split=(2, 3)))
    assert searched(stages).best is None
    assert searched(split).best is None


def test_devices_are_taken_whatever_their_number_and_the_order_of_their_listing() -> None:
    many = devices_in_one_node([1.0 + 0.01 * (i % 3) for i in range(40)])
    turned = replace(many, nodes=tuple(replace(node, devices=node.devices[::-1]) for node in many.nodes))
    found = [searched(problem_of(forked(3, 4), cluster, 4)) for cluster in (many, turned)]
    assert found[0] == found[1]
    assert found[0].best is not None


def test_the_plan_of_another_search_is_never_made_worse() -> None:
    problem = problem_of(forked(3, 3), devices_in_one_node([1.0, 0.5, 0.25, 0.25], bandwidth=2.0), 4)
    line = best_chain(problem)
    assert line.best is not None
    assert searched(problem, line.best).value <= line.value + 1e-9


def test_limits_of_the_request_are_kept() -> None:
    problem = problem_of(forked(4, 2), devices_in_one_node([1.0] * 6, memory=[4.0] * 6), 4)
    few = replace(problem, job=replace(problem.job, resources=replace(problem.job.resources, max_devices=3)))
    found = searched(few)
    assert found.best is not None
    assert len(found.best.devices) <= 3
    kinds = replace(problem.job.resources, any_of=({"own": 5},))
    exact = searched(replace(problem, job=replace(problem.job, resources=kinds)))
    assert exact.best is not None
    assert len(exact.best.devices) == 5


def test_branches_are_found_at_every_depth() -> None:
    reach = np.zeros((7, 7), dtype=bool)  # 0 → (1 → (2, 3) → 4, 5) → 6
    for source, targets in {0: (1, 2, 3, 4, 5, 6), 1: (2, 3, 4, 6), 2: (4, 6), 3: (4, 6), 4: (6,), 5: (6,)}.items():
        reach[source, list(targets)] = True
    first, fork, last = decomposed(reach, range(7)).items
    assert (first, last) == (0, 6)
    assert isinstance(fork, Fork)
    assert [branch.atoms() for branch in fork.branches] == [(1, 2, 3, 4), (5,)]
    inner = fork.branches[0].items[1]
    assert isinstance(inner, Fork)
    assert [branch.atoms() for branch in inner.branches] == [(2,), (3,)]


def test_local_search_finds_most_of_what_looking_at_every_graph_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(5)
    equal, worst = 0, 1.0
    for _ in range(20):
        layers = []
        for i in range(6):
            read = sorted({int(source.integers(0, i)) for _ in range(int(source.integers(0, 3)))}) if i else []
            layers.append(layer(f"l{i}", 3.0 * int(source.integers(1, 5)), [f"l{r}" for r in read], output=2.0))
        speeds = [float(speed) for speed in source.choice([1.0, 0.5, 0.25], 4)]
        problem = problem_of(profile(layers), devices_in_one_node(speeds, bandwidth=4.0), 3)
        best = searched(problem)
        with monkeypatch.context() as patch:
            patch.setattr(graphs, "_tiny", lambda world: False)
            found = searched(problem)
        if best.best is not None:
            worst = max(worst, found.value / best.value)
            equal += found.value <= best.value * (1 + 1e-9)
        else:
            equal += 1
    assert equal >= 18
    assert worst < 1.05
