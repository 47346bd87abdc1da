"""The joint choice against brute force: never infeasible, never above its bound, optimal where it says so."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.policy import knapsack
from ignite_scheduler.policy.knapsack import Choice, choose
from ignite_scheduler.policy.view import fits, take

POOLS = ("a", "b", "c")


@st.composite
def problems(draw, max_jobs=5):
    capacity = {pool: draw(st.integers(0, 5)) for pool in POOLS}
    needs = st.lists(
        st.tuples(st.sampled_from(POOLS), st.integers(1, 4)), min_size=1, max_size=2, unique_by=lambda n: n[0]
    )
    jobs = [
        [
            Choice(key=(job, option), value=draw(st.integers(-2, 20)), needs=tuple(sorted(draw(needs))))
            for option in range(draw(st.integers(1, 3)))
        ]
        for job in range(draw(st.integers(0, max_jobs)))
    ]
    return jobs, capacity


def optimum(jobs, capacity):
    best = 0
    for picks in itertools.product(*([None, *job] for job in jobs)):
        left = dict(capacity)
        value = 0
        for pick in picks:
            if pick is not None:
                if not fits(pick.needs, left):
                    break
                take(pick.needs, left)
                value += pick.value
        else:
            best = max(best, value)
    return best


def is_feasible(selection, capacity):
    left = dict(capacity)
    for each in selection.chosen:
        if not fits(each.needs, left):
            return False
        take(each.needs, left)
    jobs = [each.key[0] for each in selection.chosen]
    return len(set(jobs)) == len(jobs)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_small_problems_are_solved_exactly(problem):
    jobs, capacity = problem
    selection = choose(jobs, capacity)
    assert is_feasible(selection, capacity)
    assert selection.value == sum(each.value for each in selection.chosen) == optimum(jobs, capacity)
    assert selection.gap == 0


@pytest.mark.parametrize(("exact_choices", "method"), [(0, "prices"), (600, "HiGHS")])
@settings(max_examples=80, deadline=None)
@given(problem=problems())
def test_without_enumeration_the_bound_still_holds(problem, exact_choices, method):
    jobs, capacity = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knapsack, "MAX_DEPTH", -1)
        patch.setattr(knapsack, "EXACT_CHOICES", exact_choices)
        selection = choose(jobs, capacity)
    best = optimum(jobs, capacity)
    assert is_feasible(selection, capacity)
    assert selection.value <= best <= selection.bound * (1 + 1e-6)
    if method == "HiGHS":
        assert selection.value == best


@settings(max_examples=80, deadline=None)
@given(problems(), st.sampled_from(POOLS))
def test_more_devices_are_never_worth_less(problem, pool):
    jobs, capacity = problem
    more = capacity | {pool: capacity[pool] + 1}
    assert choose(jobs, more).value >= choose(jobs, capacity).value
