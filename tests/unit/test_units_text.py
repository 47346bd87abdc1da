"""Quantities as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler import units
from ignite_scheduler.errors import InputError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_memory, "40GiB", 40 * 2**30),
        (units.parse_memory, "64 GB", 64e9),
        (units.parse_memory, "0B", 0.0),
        (units.parse_bandwidth, "10Gbit/s", 1.25e9),
        (units.parse_bandwidth, "25GB/s", 25e9),
        (units.parse_duration, "50us", 5e-5),
        (units.parse_duration, "0.2ms", 2e-4),
        (units.parse_duration, "2h", 7200.0),
        (units.parse_price, "2.5/h", 2.5 / 3600),
        (units.parse_power, "250W", 250.0),
        (units.parse_flops, "19.5TFLOP/s", 19.5e12),
    ],
)
def test_text_means_the_nearest_float(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize("bare", ["16", 16, 16.0])
def test_a_bare_bandwidth_is_refused_with_both_spellings(bare):
    with pytest.raises(InputError, match="'16GB/s' or '16Gbit/s'"):
        units.parse_bandwidth(bare)


@pytest.mark.parametrize(
    "text", ["-1GB", "1XB", "GB", "", "nanGB", "infGB", "1e999GB", "1e999999999GB", True, None, []]
)
def test_what_is_no_memory_size(text):
    with pytest.raises(InputError):
        units.parse_memory(text)


def test_a_link_needs_some_bandwidth():
    with pytest.raises(InputError, match="above 0"):
        units.parse_bandwidth("0GB/s")


@given(st.integers(1, 10**6))
def test_bytes_and_bits_agree(n):
    assert units.parse_bandwidth(f"{n}GB/s") == units.parse_bandwidth(f"{8 * n}Gbit/s")
