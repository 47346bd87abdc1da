"""Links whose bandwidth depends on the message, and gathers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.cost import ring_seconds
from ignite_scheduler.cost.links import BandwidthCurve, all_gather_seconds

CURVE = BandwidthCurve(coefficients=(-0.1e9, 2e9, 4e9), unit=1e6, smallest=1e6, largest=16e6, limit=9e9)


def test_inside_its_range_a_curve_is_its_polynomial_and_outside_its_ends():
    assert CURVE.bandwidth(2e6) == pytest.approx(5.9e9)  # −0.1 + 2 + 4
    assert CURVE.bandwidth(1) == CURVE.bandwidth(1e6) == pytest.approx(4e9)
    assert CURVE.bandwidth(4e6) == pytest.approx(7.6e9)
    assert CURVE.bandwidth(16e6) == CURVE.bandwidth(1e12) == pytest.approx(9e9)  # 10.4e9, but never measured above 9e9


def test_messages_that_go_together_share_the_bandwidth_of_their_own_size():
    assert CURVE.seconds(8e6, at_once=4) == pytest.approx(8e6 / 5.9e9)
    assert CURVE.seconds(0) == 0.0


@given(st.floats(1, 1e12), st.floats(1, 4))
def test_a_larger_message_never_takes_less_time(num_bytes, factor):
    assert CURVE.seconds(num_bytes * factor) >= CURVE.seconds(num_bytes) * (1 - 1e-12)


@given(st.integers(1, 9), st.floats(0, 1e9), st.floats(1, 1e12), st.floats(0, 1))
def test_a_gather_is_half_of_a_reduction(holders, num_bytes, bandwidth, latency):
    gathered = all_gather_seconds(num_bytes, bandwidth, latency, holders)
    assert 2 * gathered == pytest.approx(ring_seconds(num_bytes, bandwidth, latency, holders))
