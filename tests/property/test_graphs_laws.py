"""Graphs of stages: as good as looking at every one, never below the bound, no layer lost, no order preferred."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_cases import best_graph, branching_problems, graph_of, partitions, shuffled
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.graphs import search as graphs
from ignite_scheduler.planner.graphs.atoms import coarsened
from ignite_scheduler.planner.graphs.bound import graph_bound
from ignite_scheduler.planner.graphs.dag import branches, by_branch, by_live_bytes, reordered, tensors_of
from ignite_scheduler.planner.graphs.field import field_of
from ignite_scheduler.planner.graphs.timing import graph_value, make_graph
from ignite_scheduler.planner.request import requested
from ignite_scheduler.planner.setup import prepare
from ignite_scheduler.planner.weighed import value_of_choice

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def searched(problem: Problem) -> graphs.Found:
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    return graphs.search(problem, request, None)


def looked_for(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> graphs.Found:
    """What local search finds, where every graph could be timed too."""
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "_tiny", lambda world: False)
        return searched(problem)


@FEW
@given(problem=branching_problems(most_layers=5, most_devices=3))
def test_a_tiny_model_gets_the_best_of_all_graphs_of_stages(problem: Problem) -> None:
    found = searched(problem)
    if not branches(problem.profile):
        assert found.best is None
        return
    best = best_graph(problem)
    assert found.value == pytest.approx(best, rel=1e-9, abs=1e-9)
    if found.best is not None:
        assert found.complete
        assert found.bound == pytest.approx(best, rel=1e-9, abs=1e-9)


@FEW
@given(problem=branching_problems(most_layers=5, most_devices=3))
def test_no_graph_of_stages_goes_below_the_bound(problem: Problem) -> None:
    setup = prepare(problem)
    assert not isinstance(setup, Infeasible)
    tensors = tensors_of(problem.profile)
    bound = min(graph_bound(setup, setup.arrays(family), family, tensors) for family in setup.families)
    assert bound <= best_graph(problem) * (1 + 1e-9) + 1e-9


@settings(FEW, max_examples=40, suppress_health_check=[*HealthCheck])
@given(problem=branching_problems(most_layers=6, most_devices=4))
def test_local_search_keeps_every_layer_once_and_says_what_its_plan_takes(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = looked_for(problem, monkeypatch)
    for assignment in () if found.best is None else (found.best, *found.others):
        held = [layer for stage in assignment.stages for layer in stage.layers]
        assert sorted(held) == list(range(len(problem.profile.layers)))
    if found.best is not None:
        assert value_of_choice(problem, found.best) == found.value
        assert found.bound <= found.value


@settings(FEW, max_examples=40, suppress_health_check=[*HealthCheck])
@given(data=st.data(), problem=branching_problems(most_layers=6, most_devices=3), local=st.booleans())
def test_the_order_of_the_listing_changes_nothing(
    data: st.DataObject, problem: Problem, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(problem.profile.layers)
    order = shuffled(problem, data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    other = replace(problem, profile=reordered(problem.profile, order))
    if branches(problem.profile) != branches(other.profile):  # a line is a line in one order only
        return
    one, two = (looked_for(each, monkeypatch) if local else searched(each) for each in (problem, other))
    assert one.value == pytest.approx(two.value, rel=1e-12)
    if one.best is not None and two.best is not None:
        assert one.best.devices == two.best.devices
        names = [
            [sorted(each.profile.layers[index].name for index in stage.layers) for stage in found.best.stages]
            for each, found in ((problem, one), (other, two))
            if found.best is not None
        ]
        assert names[0] == names[1]


@FEW
@given(data=st.data(), problem=branching_problems(most_layers=6, most_devices=4))
def test_the_compiled_step_is_that_of_the_full_timeline(data: st.DataObject, problem: Problem) -> None:
    setup = prepare(problem)
    assert not isinstance(setup, Infeasible)
    size = len(problem.profile.layers)
    stage_of = data.draw(st.sampled_from(list(partitions(size))))
    ids = tuple(device for members in setup.classes.members for device in members)
    if max(stage_of) >= len(ids):
        return
    devices = data.draw(st.permutations(ids))[: max(stage_of) + 1]
    family = data.draw(st.sampled_from(setup.families))
    atoms = tuple((index,) for index in range(size))
    known = field_of(setup, family, setup.arrays(family), atoms, tensors_of(problem.profile), (), len(ids))
    graph = make_graph(known.max_stages + 1, known.num_microbatches)
    numbers = np.array([ids.index(device) for device in devices], dtype=np.int64)
    value = graph_value(known, graph, len(devices), np.array(stage_of, dtype=np.int64), numbers)
    try:
        expected = value_of_choice(problem, graph_of(problem, family, stage_of, devices))
    except InputError:
        expected = math.inf
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


@FEW
@given(problem=branching_problems(most_layers=9, most_devices=1), count=st.integers(1, 9), halves=st.booleans())
def test_atoms_hold_every_layer_once_and_stand_in_order(problem: Problem, count: int, halves: bool) -> None:
    size = len(problem.profile.layers)
    tensors = tensors_of(problem.profile)
    apart = [index * 2 // size for index in range(size)] if halves else None
    atoms = coarsened([1.0] * size, tensors, count, apart)
    assert sorted(layer for atom in atoms for layer in atom) == list(range(size))
    atom_of = {layer: index for index, atom in enumerate(atoms) for layer in atom}
    assert all(atom_of[t.producer] <= atom_of[reader] for t in tensors for reader, _ in t.readers)
    if apart is None:
        assert len(atoms) <= count
    else:
        assert all(len({apart[layer] for layer in atom}) == 1 for atom in atoms)


@FEW
@given(data=st.data(), problem=branching_problems(most_layers=9, most_devices=1))
def test_orders_are_topological_and_do_not_depend_on_the_listing(data: st.DataObject, problem: Problem) -> None:
    size = len(problem.profile.layers)
    numbers = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    other = reordered(problem.profile, shuffled(problem, numbers))
    for ordered in (by_branch, by_live_bytes):
        names = [problem.profile.layers[index].name for index in ordered(problem.profile)]
        assert names == [other.layers[index].name for index in ordered(other)]
        place = {name: index for index, name in enumerate(names)}
        for layer in problem.profile.layers:
            assert all(place.get(edge.source, -1) < place[layer.name] for edge in layer.inputs)
