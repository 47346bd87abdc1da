"""A fixed piece of numpy work, timed in CPU seconds: benchmarks print it so that machines can be compared.

Usage: ``python benchmarks/yardstick.py``; other benchmarks call :func:`yardstick` in the same run as what they time.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

ROUNDS: Final = 5
SIZE: Final = 400


def yardstick() -> float:
    """CPU seconds of the fixed work: the least of a few rounds.

    A round sorts, sums up and takes minima over rows, as the planner's array work does; no linear algebra library is
    called, so that the number of its threads does not matter.
    """
    source = np.random.default_rng(0)
    matrix = source.random((SIZE, SIZE))
    best = np.inf
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(20):
            ordered = np.sort(matrix, axis=1)
            sums = np.cumsum(ordered, axis=0)
            np.minimum.accumulate(sums - matrix, axis=1)
        best = min(best, time.process_time() - begin)
    return float(best)


def beside(seconds: float, unit: float) -> str:
    """``seconds`` as text, with how many times the yardstick they are."""
    return f"{seconds:.2f} s ({seconds / unit:.0f} yardsticks)"


if __name__ == "__main__":
    print(f"yardstick {yardstick():.4f} CPU s")
