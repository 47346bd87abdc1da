"""Laws of the line through seconds by size of the message."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.profiler.links import fit_line

lengths = st.lists(st.integers(64, 2**30), min_size=2, max_size=10, unique=True)
latencies = st.just(0.0) | st.floats(1e-7, 1.0)
bandwidths = st.floats(1e3, 1e12)
measured = st.dictionaries(st.integers(64, 2**30), st.floats(1e-6, 1e1), min_size=2, max_size=10)
SIZES = tuple(4**power * 1024 for power in range(1, 8))


@given(lengths, latencies, bandwidths)
def test_a_line_is_found_again(sizes: list[int], latency: float, bandwidth: float) -> None:
    assume(max(sizes) > 1.5 * min(sizes))

    fit = fit_line({size: latency + size / bandwidth for size in sizes})

    assert fit.worst < 1e-6
    assert all(fit.seconds(size) == pytest.approx(latency + size / bandwidth, rel=1e-6) for size in sizes)
    if min(sizes) / 10 < latency * bandwidth < 10 * max(sizes):  # elsewhere one of the two hardly shows
        assert fit.latency == pytest.approx(latency, rel=1e-3)
        assert fit.bandwidth == pytest.approx(bandwidth, rel=1e-3)


@given(measured)
def test_neither_figure_is_ever_negative(points: dict[int, float]) -> None:
    fit = fit_line(points)

    assert fit.latency >= 0
    assert 0 < fit.bandwidth < math.inf
    assert fit.r_squared <= 1 + 1e-9
    assert set(fit.residuals) == set(points)
    assert min(abs(residual) for residual in fit.residuals.values()) < 1e-6  # it goes through a point


@given(st.floats(1e-5, 1e-2), st.floats(1e6, 1e10), st.sets(st.sampled_from(SIZES)), st.floats(1.0, 100))
def test_sizes_that_were_held_up_cost_no_more_than_their_delay(
    latency: float, bandwidth: float, late: set[int], factor: float
) -> None:
    points = {size: latency + size / bandwidth for size in SIZES}

    fit = fit_line({size: seconds * (factor if size in late else 1) for size, seconds in points.items()})

    assert sum(map(error_of, fit.residuals.values())) <= len(late) * math.log(factor) + 1e-6


@pytest.mark.parametrize("late", SIZES[1:-1])
def test_one_size_that_was_held_up_changes_nothing(late: int) -> None:
    points = {size: 1e-4 + size / 1e8 for size in SIZES}

    fit = fit_line(points | {late: 3 * points[late]})

    assert (fit.latency, fit.bandwidth) == pytest.approx((1e-4, 1e8))


@given(measured, st.sampled_from([0.5, 2.0, 1024.0]))
def test_another_unit_of_time_changes_nothing_else(points: dict[int, float], factor: float) -> None:
    one, other = fit_line(points), fit_line({size: seconds * factor for size, seconds in points.items()})

    assert sum(map(error_of, other.residuals.values())) == pytest.approx(sum(map(error_of, one.residuals.values())))


def error_of(residual: float) -> float:
    return abs(math.log1p(residual))


def test_an_exact_example() -> None:
    fit = fit_line({1000: 2.0, 3000: 4.0})

    assert (fit.latency, fit.bandwidth, fit.r_squared) == pytest.approx((1.0, 1000.0, 1.0))


def test_messages_that_a_buffer_swallows_do_not_hide_the_bandwidth() -> None:
    swallowed = {4096: 1.6e-4, 16384: 1.3e-4, 65536: 9e-5}
    points = swallowed | {2**power: 2**power / 5e7 for power in (18, 20, 22, 24)}  # a bucket before 50 MB/s

    fit = fit_line(points)

    assert fit.bandwidth == pytest.approx(5e7, rel=0.1)
    assert fit.worst > 1  # and the line says that it does not hold for the small ones


def test_a_line_that_falls_has_no_latency() -> None:
    assert fit_line({64: 2.0, 128: 1.0}).latency == 0


@pytest.mark.parametrize("points", [{}, {64: 1.0}, {64: 1.0, 128: 0.0}, {64: -1.0, 128: 1.0}])
def test_too_little_or_impossible_is_refused(points: dict[int, float]) -> None:
    with pytest.raises(InputError):
        fit_line(points)
