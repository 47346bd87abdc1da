"""Latency and bandwidth of a link: a line through seconds by size of the message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from ignite_scheduler.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """``latency + bytes ÷ bandwidth``, in seconds and bytes/s, and how well it holds.

    ``residuals`` maps sizes to fitted ÷ measured − 1; ``r_squared`` is the share of the variance of the logarithms of
    the seconds that the line explains: 1 = all, 0 or less = no more than one figure for all sizes would.
    """

    latency: float
    bandwidth: float
    residuals: Mapping[int, float]
    r_squared: float

    def seconds(self, num_bytes: float) -> float:
        """Seconds of one message."""
        return self.latency + num_bytes / self.bandwidth

    @property
    def worst(self) -> float:
        """The largest residual, without its sign."""
        return max(abs(residual) for residual in self.residuals.values())


def fit_line(points: Mapping[int, float]) -> LineFit:
    """The line with the least sum of errors of the *logarithm*: twice as long counts as much as half as long.

    Small messages count as much as large ones. A minority of sizes that do not follow (a buffer that swallows small
    messages, a size at which something else ran) does not pull the line away from the others.

    Parameters
    ----------
    points
        Bytes of a message → seconds, both above 0.

    Raises
    ------
    InputError
        Fewer than two sizes, or a size or time that is not above 0.

    Notes
    -----
    Least absolute deviations: as in L1 regression, lines through two of the points are compared, and those through one
    point without latency. The least sum wins, then the lower latency. O(n³) for n sizes.

    References
    ----------
    R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 20(3), 1994:
    the two parameters. P. Bloomfield, W. Steiger, "Least Absolute Deviations", 1983, on lines through points; there
    errors are differences, here they are ratios.
    """
    if len(points) < 2:
        raise InputError(f"a line needs messages of at least 2 sizes, found {len(points)}")
    if any(size <= 0 or seconds <= 0 for size, seconds in points.items()):
        raise InputError(f"expected sizes and seconds above 0, found {dict(points)}")
    _, latency, slope = min((_cost(points, *line), *line) for line in _candidates(points))
    return LineFit(
        latency=latency,
        bandwidth=1 / slope,
        residuals={size: (latency + slope * size) / seconds - 1 for size, seconds in sorted(points.items())},
        r_squared=_explained(points, latency, slope),
    )


def _candidates(points: Mapping[int, float]) -> Iterator[tuple[float, float]]:
    """(latency, seconds a byte) of lines that neither fall nor begin below 0."""
    for size, seconds in points.items():
        yield 0.0, seconds / size
    for (small, early), (large, late) in combinations(sorted(points.items()), 2):
        slope = (late - early) / (large - small)
        latency = early - slope * small
        if slope > 0 and latency >= 0:
            yield latency, slope


def _cost(points: Mapping[int, float], latency: float, slope: float) -> float:
    return math.fsum(abs(math.log((latency + slope * size) / seconds)) for size, seconds in points.items())


def _explained(points: Mapping[int, float], latency: float, slope: float) -> float:
    logs = [math.log(seconds) for seconds in points.values()]
    mean = math.fsum(logs) / len(logs)
    whole = math.fsum((value - mean) ** 2 for value in logs)
    left = math.fsum(math.log((latency + slope * size) / seconds) ** 2 for size, seconds in points.items())
    return 1.0 if whole == 0 else 1 - left / whole
