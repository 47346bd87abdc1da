"""Narrowed tables keep every chain within the limit, and what they refute no chain goes below."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_planner_bounds import every_pipeline, families_of, suffixes

from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.kernel import make_room, value_of
from ignite_scheduler.planner.narrowing import everything, narrow, refuted
from planner_cases import problems

SMALL = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ROUNDING = 1e-9


@SMALL
@given(problem=problems(most_layers=5, most_devices=4, skips=True), part=st.floats(0.0, 1.0))
def test_every_chain_within_the_limit_is_left_with_at_least_the_fills_of_the_tables(
    problem: Problem, part: float
) -> None:
    for _, _, numbers in families_of(problem):
        chains = sorted((value, chain) for chain, value in every_pipeline(numbers))
        if not chains:
            continue
        limit = chains[int(part * (len(chains) - 1))][0] + 2 * ROUNDING
        tables = everything(numbers, limit)
        left, _ = narrow(numbers, tables, limit)
        assert left
        for value, chain in chains:
            if value > limit:
                break
            parts = list(suffixes(numbers, chain))
            fill, end = parts[-1][4], numbers.num_layers
            for _, multiset, c, i, behind, step in parts:
                assert tables.alive[multiset, c]
                assert tables.suffix[multiset, c, i] <= behind + ROUNDING
                assert tables.total[multiset, c, i] <= fill - behind + ROUNDING
                assert tables.total[multiset, c, i] + step <= value + ROUNDING
                assert tables.behind[multiset, c, end] <= behind + ROUNDING
                assert tables.stage[multiset, c, end] <= fill + ROUNDING
                end = i


@SMALL
@given(problem=problems(most_layers=6, most_devices=4, skips=True), above=st.floats(1.0, 2.0))
def test_what_is_refuted_no_chain_goes_below(problem: Problem, above: float) -> None:
    for _, _, numbers in families_of(problem):
        values = dict(every_pipeline(numbers))
        best = min(values.values(), default=np.inf)
        if best == np.inf:
            continue
        bound, met, _ = refuted(numbers, 0.0, above * best, lambda value: value + 2 * ROUNDING)
        assert 0 <= bound <= best + ROUNDING
        room = make_room(numbers.max_stages, numbers.num_microbatches)
        for classes, first in met:
            value = float(value_of(numbers, room, len(classes), np.array(classes), np.array(first)))
            assert value == values.get((classes, first), np.inf)
