"""Models of very many layers: runs keep memory and time, cuts end at single layers, figures are real."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import Assignment, StageChoice, evaluate, straight
from ignite_scheduler.model import Infeasible, LayerInput, PipelineChoice, Plan
from ignite_scheduler.planner import Problem, coarse, plan
from ignite_scheduler.planner.coarse import merged, search_in_runs, unmerged
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.search import _straight
from planner_cases import chain, devices_in_one_node, job, profiles

CLUSTER = devices_in_one_node([1.0, 2.0], bandwidth=3.0)
ONES = (1,) * 4


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_plan_over_runs_has_the_figures_of_the_plan_over_their_layers(data: st.DataObject) -> None:
    profile = data.draw(profiles(7))
    profile = replace(profile, tied=(), layers=tuple(replace(layer, update={}) for layer in profile.layers))
    size = len(profile.layers)
    starts = (0, *sorted(data.draw(st.sets(st.integers(1, size)))), size)
    starts = tuple(sorted(set(starts)))
    problem = Problem(
        job=job(total=4, micro=1), profile=profile, cluster=devices_in_one_node([1.0, 2.0], bandwidth=3.0)
    )
    runs = len(starts) - 1
    cut = data.draw(st.integers(1, runs))
    choice = straight(
        (cut, runs - cut) if cut < runs else (runs,), ("n/d0", "n/d1")[: 1 + (cut < runs)], (1,) * 4, "1f1b"
    )

    rough = merged(problem, starts)
    over_runs = evaluate(rough.job, rough.profile, rough.cluster, choice)
    over_layers = evaluate(problem.job, profile, problem.cluster, unmerged(choice, starts))

    assert over_runs.predicted.step == pytest.approx(over_layers.predicted.step)
    memory = [[stage.devices[0].memory for stage in made.stages] for made in (over_runs, over_layers)]
    assert memory[0] == pytest.approx(memory[1])


def test_recomputed_segments_are_told_in_layers() -> None:
    stage = StageChoice(layers=(1, 2), devices=("a",), samples=(1,), recompute=((1, 2),))
    choice = Assignment(stages=(stage,), microbatches=(1,), schedule="1f1b")

    (found,) = unmerged(choice, (0, 2, 5, 6)).stages

    assert (found.layers, found.recompute) == ((2, 3, 4, 5), ((2, 5),))


def test_what_a_run_reads_from_outside_is_counted_once_for_each_tensor() -> None:
    profile = chain([1.0] * 5, outputs=[1.0, 2.0, 4.0, 8.0, 16.0])
    third = replace(profile.layers[3], inputs=(LayerInput(source="l2"), LayerInput(source="l0")))
    fourth = replace(profile.layers[4], inputs=(LayerInput(source="l3"), LayerInput(source="l0", bytes=0.5)))
    profile = replace(profile, layers=(*profile.layers[:3], third, fourth))

    rough = merged(Problem(job=job(), profile=profile, cluster=devices_in_one_node([1.0])), (0, 2, 3, 5)).profile

    assert [layer.name for layer in rough.layers] == ["l0", "l2", "l3"]
    assert rough.layers[1].inputs == (LayerInput(source="l0", bytes=3.0),)  # 1 of it for the last layers
    assert rough.layers[2].inputs == (LayerInput(source="l0", bytes=1.0), LayerInput(source="l2", bytes=4.0))


def asked(num_layers: int, speeds: list[float], **terms: object) -> Request:
    memory = terms.pop("memory", None)
    request = requested(
        Problem(
            job=job(total=8, **terms),
            profile=chain(
                [1.0 + (7 * i % 5) / 5 for i in range(num_layers)],
                outputs=[100.0 + 13 * i % 7 for i in range(num_layers)],
                parameters=[1.0] * num_layers,
            ),
            cluster=devices_in_one_node(speeds, bandwidth=1e6, memory=memory),  # type: ignore[arg-type]
        )
    )
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize("speeds", [[1.0, 1.0], [1.0, 0.5, 0.25], [2.0, 1.0, 1.0, 0.5]])
def test_runs_find_what_all_layers_find_or_nearly(monkeypatch: pytest.MonkeyPatch, speeds: list[float]) -> None:
    monkeypatch.setattr(coarse, "MOST_RUNS", 24)
    request = asked(120, speeds)

    rough, exact = search_in_runs(request, lambda asked, _: _straight(asked)), _straight(request)

    assert not isinstance(rough, Infeasible)
    assert not isinstance(exact, Infeasible)
    assert rough.bound <= exact.value
    assert (1 - 1e-12) * exact.value <= rough.value <= 1.005 * exact.value
    assert [layer for stage in rough.best.stages for layer in stage.layers] == list(range(120))


def test_a_fixed_split_is_obeyed_to_the_layer() -> None:
    split = (101, 7, 292)
    request = asked(400, [1.0, 1.0, 2.0], pipeline=PipelineChoice(split=split))

    found = search_in_runs(request, lambda asked, _: _straight(asked))

    assert not isinstance(found, Infeasible)
    assert found.best.split == split


def test_tied_layers_are_runs_of_their_own() -> None:
    request = asked(400, [1.0, 1.0])
    profile = replace(request.problem.profile, tied=(("l0", "l397"),))
    tied = requested(replace(request.problem, profile=profile))
    assert isinstance(tied, Request)

    starts = coarse._spread(tied, (), 0)

    assert {0, 1, 397, 398, 400} <= set(starts)
    assert all(a < b for a, b in pairwise(starts))
    assert merged(tied.problem, starts).profile.tied == (("l0", "l397"),)


def test_thousands_of_layers_are_answered_with_real_figures_and_reasons() -> None:
    request = asked(3000, [1.0, 1.0, 0.5, 1e-6])

    made = plan(request.problem)

    assert isinstance(made, Plan)
    assert sum(len(stage.layers) for stage in made.stages) == 3000
    assert made.bound.step <= made.predicted.step
    assert not made.bound.optimal
    assert made.why
    assert [entry.device for entry in made.unused] == ["n/d3"]


def test_too_little_memory_for_any_run_is_refused_without_a_claim() -> None:
    answer = plan(asked(3000, [1.0, 1.0], memory=[9.0, 9.0]).problem)

    assert isinstance(answer, Infeasible)
    assert (answer.code, answer.shortfall) == ("memory", None)
    assert "not proven" in answer.text
