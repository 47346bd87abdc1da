"""Latency and bandwidth of a link: a line through seconds by size of the message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ignite_scheduler.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """``latency + bytes ÷ bandwidth``, in seconds and bytes/s, and how well it holds.

    ``residuals`` maps sizes to fitted ÷ measured − 1; ``r_squared`` is the share of the seconds' variance that the
    line explains, each size weighing as in the fit (1 = all).
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
    """The line with the least sum of squared *relative* errors, so that small messages count as much as large ones.

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
    Minimises Σ ((α + β·s − t) ÷ t)² over α ≥ 0, β > 0: weighted least squares with weights t⁻². A line that falls, or
    meets 0 bytes below 0 s, is replaced by the best one through the origin.

    References
    ----------
    R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994: the two parameters.
    """
    if len(points) < 2:
        raise InputError(f"a line needs messages of at least 2 sizes, found {len(points)}")
    if any(size <= 0 or seconds <= 0 for size, seconds in points.items()):
        raise InputError(f"expected sizes and seconds above 0, found {dict(points)}")
    latency, slope = _weighted(points)
    if latency < 0 or slope <= 0:
        latency, slope = 0.0, _through_origin(points)
    fitted = {size: latency + slope * size for size in points}
    return LineFit(
        latency=latency,
        bandwidth=1 / slope,
        residuals={size: fitted[size] / seconds - 1 for size, seconds in sorted(points.items())},
        r_squared=_explained(points, fitted),
    )


def _weighted(points: Mapping[int, float]) -> tuple[float, float]:
    """(α, β) without limits: the columns 1 ÷ t and size ÷ t against ones, orthogonalised to keep all digits."""
    ones = [1 / seconds for seconds in points.values()]
    sizes = [size / seconds for size, seconds in points.items()]
    part = _dot(ones, sizes) / _dot(ones, ones)
    rest = [size - part * one for size, one in zip(sizes, ones, strict=True)]
    slope = math.fsum(rest) / _dot(rest, rest)
    return (math.fsum(ones) - slope * _dot(ones, sizes)) / _dot(ones, ones), slope


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _through_origin(points: Mapping[int, float]) -> float:
    ratios = [size / seconds for size, seconds in points.items()]
    return sum(ratios) / sum(ratio * ratio for ratio in ratios)


def _explained(points: Mapping[int, float], fitted: Mapping[int, float]) -> float:
    weights = {size: seconds**-2 for size, seconds in points.items()}
    mean = sum(weights[size] * seconds for size, seconds in points.items()) / sum(weights.values())
    whole = sum(weights[size] * (seconds - mean) ** 2 for size, seconds in points.items())
    left = sum(weights[size] * (seconds - fitted[size]) ** 2 for size, seconds in points.items())
    return 1.0 if whole == 0 else 1 - left / whole
