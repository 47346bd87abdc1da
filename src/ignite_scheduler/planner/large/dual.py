"""The best prices for a span of paces: the largest lower bound that priced chains give, by cutting planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import highspy
import numpy as np

from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.priced import Offers, Options
from ignite_scheduler.planner.large.route import cheapest

Mode = Literal["gpipe", "short", "long"]

TOLERANCE: Final = 1e-3
"""Share of the target by which the bound may be raised further when we stop."""
FAR: Final = 0.3
NEAR: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of all devices of each kind, weights of the bounds by both turns and by the first turn, price of a stage.

    What the two weights leave of 1 is the weight of the bound by work.
    """

    kinds: Floats
    turns: float
    turn: float
    stage: float

    def vector(self) -> Floats:
        """All in one."""
        return np.append(self.kinds, [self.turns, self.turn, self.stage])


def prices_of(vector: Floats) -> Prices:
    """The inverse of :meth:`Prices.vector`."""
    return Prices(kinds=vector[:-3], turns=float(vector[-3]), turn=float(vector[-2]), stage=float(vector[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Chains of one family whose longest stage takes between ``low`` and ``high`` seconds a microbatch.

    ``mode`` says which: GPipe, 1F1B with fewer stages from the longest one on than microbatches, or with as many.
    """

    offers: Offers
    options: Options
    counts: Ints
    mode: Mode
    low: float
    high: float


def dual_value(span: Span, prices: Prices) -> tuple[float, Floats]:
    """A step that no chain of the span goes below, and in which direction better prices lie."""
    m, kinds = span.offers.num_microbatches, len(span.counts)
    usage, sums = np.zeros(kinds), np.zeros(3)
    path = np.zeros((span.offers.single.shape[1], 2), np.int64)
    behind, credit, fixed = 1.0, 0.0, (m - 1) * span.low
    longest = span.offers.forward[0] * span.high + span.offers.forward[1]
    if span.mode != "gpipe":
        behind = 2 * prices.turns + prices.turn
        credit = prices.turns * span.high + prices.turn * longest
    if span.mode == "short":
        credit, fixed = credit - prices.stage, fixed - prices.stage * (m - 2)
    elif span.mode == "long":
        credit, fixed = credit + prices.stage, fixed + prices.stage * (m - 1)
    cost = cheapest(span.offers, span.options, prices.kinds / span.counts, span.low, behind, credit, usage, sums, path)
    slope = np.zeros(kinds + 3)
    if cost == np.inf:
        return np.inf, slope
    slope[:kinds] = usage / span.counts - 1
    seconds, stages = float(sums[0]), float(sums[1])
    if span.mode != "gpipe":
        slope[kinds] = 2 * seconds - stages * span.high
        slope[kinds + 1] = seconds - stages * longest
        slope[kinds + 2] = stages - (m - 2) if span.mode == "short" else (m - 1) - stages
    return cost + fixed - float(prices.kinds.sum()), slope


class _Planes:
    """The linear program over what cutting planes leave of the dual function."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self.lower, self.upper, self.size = lower, upper, len(lower)
        self.solver = highspy.Highs.__mro__[1]()  # the class itself sets up callbacks, slowly and with a banner
        self.solver.setOptionValue("output_flag", False)
        for low, high in zip(lower, upper, strict=True):
            self.solver.addVar(low, high)
        self.solver.addVar(-highspy.kHighsInf, highspy.kHighsInf)
        self.solver.changeColCost(self.size, -1.0)
        self.columns = np.arange(self.size + 1, dtype=np.int32)
        self.solver.addRow(0.0, 1.0, 2, self.columns[self.size - 3 : self.size - 1], np.ones(2))

    def add(self, value: float, slope: Floats, at: Floats) -> None:
        row = np.append(-slope, 1.0)
        self.solver.addRow(-highspy.kHighsInf, value - float(slope @ at), self.size + 1, self.columns, row)

    def best(self, centre: Floats, radius: Floats) -> tuple[float, Floats]:
        lower, upper = np.maximum(self.lower, centre - radius), np.minimum(self.upper, centre + radius)
        self.solver.changeColsBounds(self.size, self.columns[:-1], lower, upper)
        self.solver.run()
        solution = np.array(self.solver.getSolution().col_value)
        return float(solution[-1]), np.clip(solution[:-1], lower, upper)


def raised(span: Span, start: Prices, target: float, steps: int) -> tuple[float, Prices, int]:
    """The largest bound found in so many steps, its prices, and the steps taken; it stops at ``target``."""
    kinds, m = len(span.counts), span.offers.num_microbatches
    lower, upper = np.zeros(kinds + 3), np.full(kinds + 3, 4 * target)
    upper[kinds : kinds + 2], upper[kinds + 2] = 1.0, 4 * target / m
    if span.mode == "gpipe":
        upper[kinds:] = 0.0
    elif span.mode == "long":
        upper[kinds] = 0.0
    elif span.offers.single.shape[1] - 1 < m:
        upper[kinds + 2] = 0.0
    scale = upper / 4
    scale[kinds : kinds + 2] = 1.0
    at = np.clip(start.vector(), lower, upper)
    value, slope = dual_value(span, prices_of(at))
    best, centre, taken, reach = value, at, 1, FAR
    if value == np.inf:
        return value, start, taken
    planes = _Planes(lower, upper)
    planes.add(value, slope, at)
    while taken < steps and best < target:
        hope, at = planes.best(centre, reach * scale)
        if hope - best < TOLERANCE * target:
            hope, at = planes.best(centre, 8 * scale)
            if hope - best < TOLERANCE * target:
                break
            reach = FAR
        value, slope = dual_value(span, prices_of(at))
        taken += 1
        if value == np.inf:
            return value, start, taken
        planes.add(value, slope, at)
        if value > best:
            reach = min(1.0, 2 * reach) if value - best > 0.5 * (hope - best) else reach
            best, centre = value, at
        else:
            reach = max(NEAR, reach / 2)
    return best, prices_of(centre), taken
