"""Figures of a series, against hand-worked ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.profiler.machine import cpu_model, describe_machine
from ignite_scheduler.profiler.summary import outliers, quartiles, relative_spread, typical

SECONDS = st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=30)


@given(SECONDS, st.integers(1, 64))
def test_the_spread_does_not_depend_on_the_unit(values: list[float], factor: int) -> None:
    scaled = [value * factor for value in values]
    assert abs(relative_spread(scaled) - relative_spread(values)) < 1e-12
    assert outliers(scaled) == outliers(values)


@given(SECONDS)
def test_quartiles_are_ordered_within_the_values(values: list[float]) -> None:
    low, middle, high = quartiles(values)
    assert min(values) <= low <= middle <= high <= max(values)


@given(SECONDS, st.integers(1, 64))
def test_what_is_typical_lies_between_the_least_and_the_median_and_scales(values: list[float], factor: int) -> None:
    assert min(values) <= typical(values) <= quartiles(values)[1]
    assert typical([value * factor for value in values]) == typical(values) * factor


def test_a_slow_half_does_not_matter() -> None:
    assert typical([1.0, 2.0, 3.0, 100.0, 200.0, 300.0]) == 2.0
    assert typical([5.0]) == 5.0


def test_equal_values_have_no_spread_and_no_outliers() -> None:
    assert relative_spread([2.0] * 5) == 0
    assert outliers([2.0] * 5) == ()
    assert relative_spread([0.0, 0.0]) == 0


def test_a_far_value_counts_as_an_outlier() -> None:
    assert outliers([1.0, 2.0, 3.0, 4.0, 5.0, 100.0]) == (5,)


def test_the_machine_is_named() -> None:
    facts = describe_machine()
    assert cpu_model()
    assert facts["cores"] >= 1
