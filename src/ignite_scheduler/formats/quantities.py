"""SI floats → text with a unit that reads back to exactly the same float."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ignite_scheduler import units

_MEMORY: Final = ("TB", "TiB", "GB", "GiB", "MB", "MiB", "kB", "KiB", "B")
_DURATION: Final = ("d", "h", "min", "s", "ms", "us", "ns")


def _exact(value: float, known: units.Units, preferred: tuple[str, ...], base: str) -> str:
    if value == 0:
        return f"0{base}"
    for unit in preferred:
        number = value / float(known[unit])
        short = f"{number:.6g}"
        if 1 <= number < 1e5 and "e" not in short and float(Fraction(short) * known[unit]) == value:
            return short + unit
    if value.is_integer() and value < 2**53:
        return f"{value:.0f}{base}"
    return f"{value!r}{base}"  # the base unit's factor is 1, and repr of a float reads back exactly


def memory_text(value: float) -> str:
    """Bytes as text, losslessly.

    >>> memory_text(40e9), memory_text(3 * 2.0**30), memory_text(0.1)
    ('40GB', '3GiB', '0.1B')
    """
    return _exact(value, units.MEMORY_UNITS, _MEMORY, "B")


def bandwidth_text(value: float) -> str:
    """Bytes/s as text, losslessly.

    >>> bandwidth_text(1.25e9)
    '1.25GB/s'
    """
    return _exact(value, units.BANDWIDTH_UNITS, tuple(f"{unit}/s" for unit in _MEMORY), "B/s")


def duration_text(value: float) -> str:
    """Seconds as text, losslessly.

    >>> duration_text(7200.0), duration_text(0.5)
    ('2h', '500ms')
    """
    return _exact(value, units.DURATION_UNITS, _DURATION, "s")


def price_text(value: float) -> str:
    """Money per second as text, losslessly.

    >>> price_text(1.0)
    '3600/h'
    """
    return _exact(value, units.PRICE_UNITS, ("/h",), "/s")


def power_text(value: float) -> str:
    """Watts as text, losslessly.

    >>> power_text(250.0)
    '250W'
    """
    return _exact(value, units.POWER_UNITS, ("W",), "W")


def flops_text(value: float) -> str:
    """FLOP/s as text, losslessly.

    >>> flops_text(19.5e12)
    '19.5TFLOP/s'
    """
    return _exact(value, units.FLOPS_UNITS, ("TFLOP/s", "GFLOP/s", "MFLOP/s"), "FLOP/s")
