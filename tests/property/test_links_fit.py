"""Laws of the line through seconds by size of the message."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.profiler.links import fit_line

sizes = st.lists(st.integers(64, 2**30), min_size=2, max_size=10, unique=True)
latencies = st.just(0.0) | st.floats(1e-7, 1.0)
bandwidths = st.floats(1e3, 1e12)
seconds = st.floats(1e-6, 1e1)
measured = st.dictionaries(st.integers(64, 2**30), seconds, min_size=2, max_size=10)


@given(sizes, latencies, bandwidths)
def test_a_line_is_found_again(sizes: list[int], latency: float, bandwidth: float) -> None:
    assume(max(sizes) > 1.5 * min(sizes))

    fit = fit_line({size: latency + size / bandwidth for size in sizes})

    assert fit.worst < 1e-6
    assert all(fit.seconds(size) == pytest.approx(latency + size / bandwidth, rel=1e-6) for size in sizes)
    if latency * bandwidth > min(sizes) / 10 and latency * bandwidth < 10 * max(sizes):  # else it hardly shows
        assert fit.latency == pytest.approx(latency, rel=1e-3)
        assert fit.bandwidth == pytest.approx(bandwidth, rel=1e-3)


@given(measured)
def test_neither_figure_is_ever_negative(points: dict[int, float]) -> None:
    fit = fit_line(points)

    assert fit.latency >= 0
    assert fit.bandwidth > 0
    assert fit.r_squared <= 1 + 1e-9
    assert set(fit.residuals) == set(points)


def error(points: dict[int, float], latency: float, slope: float) -> float:
    return sum(((latency + slope * size - t) / t) ** 2 for size, t in points.items())


@given(measured, st.floats(-0.3, 0.3), st.floats(-0.3, 0.3))
def test_no_line_near_it_is_nearer_to_the_points(points: dict[int, float], up: float, steeper: float) -> None:
    fit = fit_line(points)
    assume(fit.latency > 0)

    best = error(points, fit.latency, 1 / fit.bandwidth)

    assert best <= error(points, fit.latency * (1 + up), (1 + steeper) / fit.bandwidth) * (1 + 1e-6) + 1e-9


@given(measured, st.sampled_from([0.5, 2.0, 1024.0]))
def test_another_unit_of_time_changes_nothing_else(points: dict[int, float], factor: float) -> None:
    one, other = fit_line(points), fit_line({size: t * factor for size, t in points.items()})

    assert other.latency == pytest.approx(one.latency * factor, rel=1e-6, abs=1e-9 * factor)
    assert other.bandwidth * factor == pytest.approx(one.bandwidth, rel=1e-6)


def test_an_exact_example() -> None:
    fit = fit_line({1000: 2.0, 3000: 4.0})

    assert fit.latency == pytest.approx(1.0)
    assert fit.bandwidth == pytest.approx(1000.0)
    assert fit.r_squared == pytest.approx(1.0)


def test_small_messages_count_as_much_as_large_ones() -> None:
    points = {1_000: 1e-3, 1_000_000: 2e-3, 1_000_000_000: 1.1}  # 1 ms and 1 GB/s, the last one 10 % late

    fit = fit_line(points)

    assert fit.latency == pytest.approx(1e-3, rel=0.05)
    assert abs(fit.residuals[1_000]) < 0.05


@pytest.mark.parametrize("points", [{}, {64: 1.0}, {64: 1.0, 128: 0.0}, {64: -1.0, 128: 1.0}])
def test_too_little_or_impossible_is_refused(points: dict[int, float]) -> None:
    with pytest.raises(InputError):
        fit_line(points)
