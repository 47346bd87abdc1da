"""Every bound that prunes is below the exact step of all completions, on random small instances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import PipelineChoice
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.extents import extent_tables
from ignite_scheduler.planner.kernel import (
    Numbers,
    crossing_bytes,
    make_room,
    response,
    set_link,
    set_stage,
    suffix_step,
    value_of,
)
from ignite_scheduler.planner.lanes import make_lanes, outer_responses
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup, prepare, quick_bound
from ignite_scheduler.planner.solve import NOTHING, first_plan, improve, levels
from ignite_scheduler.planner.tables import (
    behind_tables,
    cycle_pace,
    link_pace,
    link_seconds,
    round_trips,
    stage_pace,
    stage_seconds,
)
from planner_cases import job, problems

SMALL = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ROUNDING = 1e-9

Pipeline = tuple[tuple[int, ...], tuple[int, ...]]  # classes and first layers, from the end


def every_pipeline(numbers: Numbers) -> Iterator[tuple[Pipeline, float]]:
    """All permitted pipelines with their exact objective."""
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    every = [c for c, count in enumerate(numbers.counts) for _ in range(int(count))]
    for stages in range(1, numbers.max_stages + 1):
        for classes in sorted(set(permutations(every, stages))):
            for cuts in combinations(range(1, numbers.num_layers), stages - 1):
                first = (*reversed(cuts), 0)
                value = float(value_of(numbers, room, stages, np.array(classes), np.array(first)))
                if value < np.inf:
                    yield (classes, first), value


def families_of(problem: Problem) -> Iterator[tuple[Setup, Family, Numbers]]:
    setup = prepare(problem)
    assert isinstance(setup, Setup)
    for family in setup.families:
        yield setup, family, setup.numbers(family, setup.arrays(family))


def suffixes(numbers: Numbers, pipeline: Pipeline) -> Iterator[tuple[int, int, int, int, float, float]]:
    """(stages, multiset, class, first layer, fill, step of the suffix alone) from the last stage to all of them."""
    classes, first = pipeline
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    multiset, fill, end = 0, 0.0, numbers.num_layers
    for q, (c, i) in enumerate(zip(classes, first, strict=True)):
        if q > 0:
            set_link(numbers, room, q - 1, c, classes[q - 1], crossing_bytes(numbers, np.array(first), q, end))
            fill += room.link_forward[q - 1, 0] + room.link_backward[q - 1, 1]
        set_stage(numbers, room, q, c, i, end)
        fill += room.forward[q, 0] + room.backward[q, 1]
        multiset += int(numbers.strides[c])
        end = i
        yield q + 1, multiset, c, i, fill, suffix_step(numbers, room, q + 1, False)


@SMALL
@given(problem=problems(most_layers=5, most_devices=3, skips=True))
def test_suffix_and_tables_never_exceed_a_completion(problem: Problem) -> None:
    for _, _, numbers in families_of(problem):
        for pipeline, value in every_pipeline(numbers):
            floors, totals = levels(numbers, value + 2e-9, 8)
            for _, multiset, c, i, fill, step in suffixes(numbers, pipeline):
                for floor, total in zip(floors, totals, strict=True):
                    if floor <= fill:
                        assert step + total[multiset, c, i] <= value + ROUNDING


@SMALL
@given(problem=problems(most_layers=5, most_devices=3, skips=True))
def test_paces_and_round_trips_never_exceed_the_step(problem: Problem) -> None:
    for _, _, numbers in families_of(problem):
        for pipeline, value in every_pipeline(numbers):
            classes, first = pipeline
            parts = list(suffixes(numbers, pipeline))
            fill = parts[-1][4]
            end = numbers.num_layers
            for q, (c, i) in enumerate(zip(classes, first, strict=True)):
                assert fill + stage_pace(numbers, c, i, end, q + 1) <= value + ROUNDING
                own, busy = stage_seconds(numbers, c, i, end)
                front = fill - parts[q][4]
                assert front + busy <= value + ROUNDING
                behind = parts[q][4] - own
                assert front + round_trips(numbers, q + 1) * (own + behind) <= value + ROUNDING
                if q > 0:
                    there, back = link_seconds(numbers, c, classes[q - 1], end, numbers.sizes[0])
                    assert fill + link_pace(numbers, there, back) <= value + ROUNDING
                end = i


@SMALL
@given(problem=problems(most_layers=6, most_devices=3, skips=True))
def test_quick_and_first_bounds_never_exceed_the_best(problem: Problem) -> None:
    for setup, family, numbers in families_of(problem):
        best = min((value for _, value in every_pipeline(numbers)), default=np.inf)
        found, bound = first_plan(numbers)
        assert bound <= best + ROUNDING
        assert found.value >= best - ROUNDING
        assert (bound == np.inf) == (best == np.inf)
        assert quick_bound(setup, setup.arrays(family), family) <= best + ROUNDING


@SMALL
@given(
    problem=problems(most_layers=8, most_devices=4, skips=True),
    total=st.integers(1, 12),
    micro=st.integers(1, 2),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
)
def test_remembering_suffixes_loses_no_optimum(problem: Problem, total: int, micro: int, schedule: str) -> None:
    """Skip edges stay; without updates and tied weights suffixes are compared by their responses."""
    layers = tuple(replace(layer, update={}) for layer in problem.profile.layers)
    problem = replace(
        problem,
        profile=replace(problem.profile, layers=layers, tied=()),
        job=job(total=total, micro=micro, pipeline=PipelineChoice(schedule=schedule)),
    )
    for _, _, numbers in families_of(problem):
        plain, _, done = improve(numbers, NOTHING, np.inf, 10_000_000, remember=False)
        found, _, complete = improve(numbers, NOTHING, np.inf, 10_000_000)
        assert done
        assert complete
        assert found.value == plain.value or found.value == pytest.approx(plain.value, abs=ROUNDING)
        for target in (plain.value + 1e-6, 1.5 * plain.value + 1e-6):  # a limit brings in the tables by extent
            if plain.value < np.inf:
                found, _, complete = improve(numbers, NOTHING, target, 10_000_000)
                assert complete
                assert found.value == pytest.approx(plain.value, abs=ROUNDING)


@SMALL
@given(problem=problems(most_layers=5, most_devices=3))
def test_response_gives_the_step_when_all_arrive_together(problem: Problem) -> None:
    for _, _, numbers in families_of(problem):
        m = numbers.num_microbatches
        room = make_room(numbers.max_stages, m)
        out = np.zeros(m * m + 1)
        for pipeline, _ in list(every_pipeline(numbers))[:20]:
            classes, first = pipeline
            end = numbers.num_layers
            for q, (c, i) in enumerate(zip(classes, first, strict=True)):
                if q > 0:
                    set_link(numbers, room, q - 1, c, classes[q - 1], crossing_bytes(numbers, np.array(first), q, end))
                set_stage(numbers, room, q, c, i, end)
                end = i
            n = len(classes)
            step = suffix_step(numbers, room, n, False)
            length = response(numbers, room, n, False, 0.0, 0.0, 0.0, out)
            assert out[:length].max() == pytest.approx(step, abs=ROUNDING)


def with_batch(problem: Problem, total: int, micro: int, schedule: str = "1f1b") -> Problem:
    """The problem with ``total`` samples a step in microbatches of ``micro``."""
    return replace(problem, job=job(total=total, micro=micro, pipeline=PipelineChoice(schedule=schedule)))


@SMALL
@given(problem=problems(most_layers=6, most_devices=4, skips=True), total=st.integers(1, 14), micro=st.integers(1, 2))
def test_cycles_of_neighbours_never_exceed_the_step(problem: Problem, total: int, micro: int) -> None:
    for _, _, numbers in families_of(with_batch(problem, total, micro)):
        for pipeline, value in every_pipeline(numbers):
            classes, first = pipeline
            fill = list(suffixes(numbers, pipeline))[-1][4]
            ends = (numbers.num_layers, *first)
            for front in range(len(classes)):
                cycle, most = 0.0, 0.0
                for q in range(front, -1, -1):
                    c, i, end = classes[q], first[q], ends[q]
                    f, b = (
                        x[c, 0, end] - x[c, 0, i] + numbers.overhead[c] for x in (numbers.forward, numbers.backward)
                    )
                    if q == front:
                        most = max(f, b) if numbers.even else b
                    else:
                        cycle += sum(link_seconds(numbers, classes[q + 1], c, i, numbers.sizes[0]))
                    cycle += f + b
                    length = front - q + 1
                    assert fill + cycle_pace(numbers, front + 1, length, cycle, most) <= value + ROUNDING


@SMALL
@given(
    problem=problems(most_layers=6, most_devices=4, skips=True),
    total=st.integers(1, 14),
    micro=st.integers(1, 2),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
)
def test_tables_by_extent_never_exceed_a_completion(problem: Problem, total: int, micro: int, schedule: str) -> None:
    for _, _, numbers in families_of(with_batch(problem, total, micro, schedule)):
        for pipeline, value in sorted(every_pipeline(numbers), key=lambda entry: entry[1])[:40]:
            limit = value + 2e-9
            front = extent_tables(numbers, behind_tables(numbers, limit), limit)
            end = numbers.num_layers
            for _, multiset, c, i, _, step in suffixes(numbers, pipeline):
                assert step + front[multiset, c, i, end] <= value + ROUNDING
                end = i


@SMALL
@given(data=st.data(), stages=st.integers(1, 4), total=st.integers(2, 20), micro=st.integers(1, 3))
def test_outer_responses_imply_all_others(data: st.DataObject, stages: int, total: int, micro: int) -> None:
    problem = problems(most_layers=6, most_devices=4).map(lambda drawn: with_batch(drawn, total, micro))
    numbers = next(
        numbers
        for _, _, numbers in families_of(data.draw(problem.filter(lambda drawn: len(drawn.cluster.devices) == 4)))
    )
    m, n = numbers.num_microbatches, min(stages, numbers.max_stages)
    if m <= n:
        return
    room, lanes = make_room(numbers.max_stages, m), make_lanes(numbers.max_stages, m)
    seconds = st.integers(0, 9)
    for figures in (room.forward, room.backward, room.link_forward, room.link_backward):
        for q in range(n):
            figures[q] = data.draw(seconds)
            if not numbers.even:
                figures[q, 1] = data.draw(st.integers(0, int(figures[q, 0])))
    closed, spacing, turn, gap = data.draw(st.tuples(st.booleans(), seconds, st.integers(0, 40), seconds))
    every, outer = np.zeros(m * m), np.zeros(2 * n * m)
    response(numbers, room, n, closed, float(spacing), float(turn), float(gap), every)
    length = outer_responses(numbers, room, lanes, n, closed, float(spacing), float(turn), float(gap), outer)
    first, last = outer[: n * m].reshape(m, n), outer[n * m : length].reshape(m - n, n)
    at = 0
    for j in range(m):
        for k in range(max(0, j - n + 1), m):
            if j < n:
                implied = first[k, j]
            elif k >= m - n:
                implied = last[m - 1 - j, m - 1 - k]
            else:
                implied = first[k - j + n - 1, n - 1]
            assert every[at] == implied
            at += 1
