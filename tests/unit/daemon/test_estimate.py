"""The remaining time of a job from its steps: honest at the start, quick to forget a slow one, deaf to strays."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.daemon.estimate import FIRST_ESTIMATE, WINDOW, StepClock, midmean

SECONDS = st.fractions(min_value=Fraction(1, 1000), max_value=1000)


def clock_of(durations: list) -> StepClock:
    clock = StepClock()
    for seconds in durations:
        clock.add(seconds)
    return clock


def test_three_slow_steps_do_not_spoil_the_estimate() -> None:
    durations = [10.0] * 3 + [2.0] * 7
    assert clock_of(durations).remaining(990) == pytest.approx(1980, rel=0.05)
    assert sum(durations) / 10 * 990 == 4356  # what a plain average says


@pytest.mark.parametrize("count", range(FIRST_ESTIMATE))
def test_it_says_estimating_in_the_first_steps(count: int) -> None:
    clock = clock_of([1.0] * count)
    assert clock.step is None
    assert clock.rate is None
    assert clock.remaining(10) is None


@given(SECONDS, st.integers(FIRST_ESTIMATE, 3 * WINDOW), st.integers(0, 10**6))
def test_an_even_pace_is_told_exactly(seconds: Fraction, count: int, left: int) -> None:
    clock = clock_of([seconds] * count)
    assert clock.remaining(left) == left * seconds
    assert clock.count == count


@given(SECONDS, st.lists(SECONDS, max_size=20), st.data())
def test_a_slow_start_is_forgotten_after_as_many_steps_again(seconds: Fraction, start: list, data) -> None:
    count = data.draw(st.integers(max(len(start), FIRST_ESTIMATE), 3 * WINDOW))
    assert clock_of(start + [seconds] * count).step == seconds


@given(SECONDS, st.lists(SECONDS, max_size=WINDOW // 4), st.randoms(use_true_random=False))
def test_strays_up_to_a_quarter_of_the_window_change_nothing(seconds: Fraction, strays: list, random) -> None:
    window = strays + [seconds] * (WINDOW - len(strays))
    random.shuffle(window)
    assert clock_of([seconds] * WINDOW + window).step == seconds


@given(st.lists(SECONDS, min_size=1, max_size=60), SECONDS)
def test_the_midmean_scales_and_stays_within_the_values(values: list, factor: Fraction) -> None:
    assert min(values) <= midmean(values) <= max(values)
    assert midmean([value * factor for value in values]) == midmean(values) * factor
    assert midmean(reversed(values)) == midmean(values)


def test_the_midmean_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        midmean([])
