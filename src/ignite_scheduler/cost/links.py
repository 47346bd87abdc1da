"""Links whose bandwidth depends on the size of the message, and collectives within a group of devices."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCurve:
    """Bandwidth fitted as a polynomial of log₂(message ÷ ``unit``), an alternative to latency and one bandwidth.

    ``coefficients`` are in bytes/s, the constant last. Between ``smallest`` and ``largest`` bytes the polynomial holds;
    outside, the bandwidth is that at the nearer end: a polynomial says nothing beyond its fit. ``limit`` is the most
    that was ever measured, in bytes/s. Where the bandwidth grows by less than ln 2 of itself for each doubling, as that
    of links does, a larger message never takes less time.

    >>> curve = BandwidthCurve(coefficients=(1e9, 2e9), unit=1e6, smallest=1e6, largest=64e6, limit=5e9)
    >>> curve.bandwidth(1e6), curve.bandwidth(4e6), curve.bandwidth(1e9)
    (2000000000.0, 4000000000.0, 5000000000.0)
    >>> curve.seconds(4e6)
    0.001
    """

    coefficients: tuple[float, ...]
    unit: float
    smallest: float
    largest: float
    limit: float

    def bandwidth(self, num_bytes: float) -> float:
        """Bytes/s of a message of that size; never above ``limit``."""
        x = math.log2(min(max(num_bytes, self.smallest), self.largest) / self.unit)
        value = 0.0
        for coefficient in self.coefficients:
            value = value * x + coefficient
        return min(value, self.limit)

    def seconds(self, num_bytes: float, at_once: int = 1) -> float:
        """Seconds until ``at_once`` equal messages with ``num_bytes`` in all have gone over the link together.

        The curve is then that of the link when so many senders use it, and gives their joint bandwidth.
        """
        return num_bytes / self.bandwidth(num_bytes / at_once) if num_bytes > 0 else 0.0


def all_gather_seconds(num_bytes: float, bandwidth: float, latency: float, holders: int) -> float:
    """Seconds of a ring all-gather after which each of ``holders`` devices has all ``num_bytes``.

    (r−1)/r · bytes ÷ bandwidth + (r−1) · latency, half of a ring all-reduce. Each holder starts with 1/r of the bytes.
    ``bandwidth`` is that of one device to its neighbour, all sending at once.

    A tensor-parallel group that acts as one compound device receives a boundary tensor in parts, one for each member,
    and gathers it this way before it computes.
    """
    rounds = holders - 1
    return rounds / holders * num_bytes / bandwidth + rounds * latency
