"""Quantities: text with a unit to SI floats and back.

Inside the package every number is in SI base units (seconds, bytes, bytes/s). Text from users always carries its unit,
and a bare number is refused with the spellings that would do, since ``16`` may mean GB/s or Gbit/s: an eightfold
difference that no later check can see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from ignite_scheduler.errors import InputError

# Factors are exact, so that "50us" is the float nearest to 50 microseconds and not a product of two roundings.
Units = Mapping[str, Fraction]

_DECIMAL: Final = {p: Fraction(1000) ** n for p, n in {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}.items()}
_BINARY: Final = {p: Fraction(1024) ** n for p, n in {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}.items()}

MEMORY_UNITS: Final[Units] = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()}
BANDWIDTH_UNITS: Final[Units] = {
    **{u + "/s": f for u, f in MEMORY_UNITS.items()},
    **{p + "bit/s": f / 8 for p, f in (_DECIMAL | _BINARY).items()},
    **{p + "bps": f / 8 for p, f in _DECIMAL.items()},
}
DURATION_UNITS: Final[Units] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "sec": Fraction(1),
    "min": Fraction(60),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
PRICE_UNITS: Final[Units] = {f"/{unit}": 1 / DURATION_UNITS[unit] for unit in ("h", "s", "min", "d")}
POWER_UNITS: Final[Units] = {"mW": Fraction(1, 1000), "W": Fraction(1), "kW": Fraction(1000)}
FLOPS_UNITS: Final[Units] = {p + "FLOP/s": f for p, f in _DECIMAL.items()}

_QUANTITY: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*(\S*)\s*")


def _parse(text: object, units: Units, noun: str, examples: tuple[str, ...]) -> float:
    would_do = " or ".join(f"'{e}'" for e in examples)
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InputError(f"expected a {noun} such as {would_do}, found {text!r}")
    if not isinstance(text, str):
        bare = f"{text:g}"
        spellings = " or ".join(f"'{bare}{_unit_of(e)}'" for e in examples)
        raise InputError(f"a {noun} needs its unit: found the bare number {bare}; write {spellings}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InputError(f"expected a {noun} such as {would_do}, found {text!r}")
    number, unit = match.groups()
    if unit == "":
        spellings = " or ".join(f"'{number}{_unit_of(e)}'" for e in examples)
        raise InputError(f"a {noun} needs its unit: found the bare number {number}; write {spellings}")
    if unit not in units:
        raise InputError(f"unknown unit {unit!r} in {text!r}: a {noun} is written such as {would_do}")
    try:
        return float(Fraction(number) * units[unit])
    except OverflowError:
        raise InputError(f"expected a finite {noun}, found {text!r}") from None


def _unit_of(example: str) -> str:
    return example.lstrip("0123456789.")


def _positive(value: float, text: object, noun: str, *, zero: bool) -> float:
    if value < 0 or (value == 0 and not zero):
        raise InputError(f"a {noun} must be {'at least' if zero else 'above'} 0, found {text!r}")
    return value


def parse_memory(text: object) -> float:
    """Bytes of a text such as ``40GiB`` (2³⁰) or ``64GB`` (10⁹).

    >>> parse_memory("1.5GiB")
    1610612736.0
    """
    return _positive(_parse(text, MEMORY_UNITS, "memory size", ("16GB", "16GiB")), text, "memory size", zero=True)


def parse_bandwidth(text: object) -> float:
    """Bytes per second of a text such as ``25GB/s`` or ``10Gbit/s``.

    >>> parse_bandwidth("16GB/s") == parse_bandwidth("128Gbit/s")
    True
    """
    value = _parse(text, BANDWIDTH_UNITS, "bandwidth", ("16GB/s", "16Gbit/s"))
    return _positive(value, text, "bandwidth", zero=False)


def parse_duration(text: object) -> float:
    """Seconds of a text such as ``0.2ms``, ``50us``, ``90s`` or ``2h``.

    >>> parse_duration("2h")
    7200.0
    """
    return _positive(_parse(text, DURATION_UNITS, "duration", ("30s", "2h")), text, "duration", zero=True)


def parse_price(text: object) -> float:
    """Money per second of a text such as ``2.5/h`` (in the cluster's one currency).

    >>> parse_price("3600/h")
    1.0
    """
    return _positive(_parse(text, PRICE_UNITS, "price", ("2.5/h",)), text, "price", zero=True)


def parse_power(text: object) -> float:
    """Watts of a text such as ``250W``.

    >>> parse_power("0.25kW")
    250.0
    """
    return _positive(_parse(text, POWER_UNITS, "power", ("250W",)), text, "power", zero=True)


def parse_flops(text: object) -> float:
    """FLOP/s of a text such as ``19.5TFLOP/s``.

    >>> parse_flops("2GFLOP/s")
    2000000000.0
    """
    return _positive(_parse(text, FLOPS_UNITS, "computing rate", ("19.5TFLOP/s",)), text, "computing rate", zero=False)


def _print(value: float, scale: tuple[tuple[str, float], ...]) -> str:
    for unit, factor in scale:
        if abs(value) >= factor:
            return f"{value / factor:.4g}{unit}"
    unit, factor = scale[-1]
    return f"{value / factor:.4g}{unit}"


def format_memory(value: float) -> str:
    """Bytes as text in decimal units.

    >>> format_memory(31e9)
    '31GB'
    """
    return _print(value, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def format_bandwidth(value: float) -> str:
    """Bytes per second as text in decimal units.

    >>> format_bandwidth(1.25e9)
    '1.25GB/s'
    """
    return _print(value, (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)))


def format_duration(value: float) -> str:
    """Seconds as text that a person reads.

    >>> format_duration(5400)
    '1.5h'
    >>> format_duration(0.0123), format_duration(0)
    ('12.3ms', '0s')
    """
    if value == 0:
        return "0s"
    if value >= 60:
        return _print(value, (("d", 86400.0), ("h", 3600.0), ("min", 60.0)))
    return _print(value, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)))


def format_names(names: Sequence[str]) -> str:
    """Names for a place where there is room for few: the first, and how many more there are.

    >>> format_names(["n/a-0"]), format_names(["n/a-0", "n/a-1", "n/b-0"])
    ('n/a-0', 'n/a-0 and 2 more')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
