"""From what finished runs showed to a calibration.

Theory of operation
-------------------
Actions teach rate and launch: seconds at the reference's pace, measured against planned, lie on a line for each kind of
device. Ends of steps teach the factor on updates and the seconds beside them, saves a line over bytes, messages one
constant. All lines are those of least absolute relative deviations: up to half of the points may be anything, and what
lies on a line exactly gives that line back exactly. A few *pseudo-points* on a line that is known before (of all kinds
together for one kind, of an earlier calibration for all, nothing to charge for the first) carry a fit that has little
to stand on, and are outvoted by evidence.

Whole steps teach how sure a prediction is. Each run is predicted by constants that were fitted without any run of its
model, so the quantiles of measured ÷ predicted hold for models that nobody has run yet. Where these ratios lie beside 1
(a step waits for the slowest of several, which no single action shows), the rates take that over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median, quantiles
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.cost.calibration import (
    ANY_KIND,
    Calibration,
    CheckpointTime,
    KindCalibration,
    Quantiles,
)
from ignite_scheduler.cost.observation import Observation, StageObservation
from ignite_scheduler.errors import InputError
from ignite_scheduler.pipeline import Durations, Edge, Reduction, Schedule, Timeline, make_schedule, timeline

Floats = npt.NDArray[np.float64]

LEAST_PSEUDO: Final = 4
"""Pseudo-points on a line that is only assumed."""
MOST_PSEUDO: Final = 100
"""Pseudo-points on a line that an earlier calibration fitted: what is old gives way to so much that is new."""
SMALL: Final = 0.1
"""Deviations count relative to the value; below this share of the median value, relative to that."""
STARTS: Final = 16
"""Points from which a line is sought."""
CLOCK_DIGITS: Final = 9
"""Decimals of seconds that a clock can tell; less is rounding of differences."""
SHORT: Final = 0.1
"""Share of the longest action of all kinds below which an action tells of launches."""
LONG: Final = 0.3
"""Share from which it tells of rates."""
LEAST_RATE: Final = 1e-3
"""A rate is above 0, whatever was measured."""
TELLING: Final = 0.03
"""A run tells of overlap if hiding all transfers or none makes so much of a difference to its step."""
WIDENING: Final = 0.2
"""Of few values a range is wider than they are: by this share ÷ their number, at each end."""
FEW: Final = 9
"""Values from which 10 % and 90 % quantiles lie within them."""


class Point(NamedTuple):
    """One point of a line; any unit."""

    x: float
    y: float


class Line(NamedTuple):
    """``y = slope · x + base``."""

    slope: float
    base: float

    def at(self, x: float) -> float:
        """The value at x."""
        return self.slope * x + self.base


def fit(observations: Iterable[Observation], before: Calibration | None = None) -> Calibration:
    """The calibration that the runs teach. The same runs, in any order, give the same one.

    Parameters
    ----------
    before
        An earlier calibration that is refined: it counts as much as it rests on, and what the runs do not show is kept
        from it.

    Raises
    ------
    InputError
        There is no run.
    """
    runs = sorted(observations, key=repr)
    if not runs:
        raise InputError("expected at least one observed run to calibrate with, found none")
    fitted = _constants(runs, before)
    ratios, how = _held_out_ratios(runs, before)
    residual = _range(ratios)
    fitted = _centred(fitted, _middle(runs, fitted, before))
    return replace(
        fitted,
        overlap=_overlap(runs, fitted, before),
        residual=Quantiles(low=residual.low / residual.middle, middle=1.0, high=residual.high / residual.middle),
        num_runs=len(runs) + (0 if before is None else before.num_runs),
        provenance={"residual": how, "models": len({run.model for run in runs})},
    )


def predicted_timeline(run: Observation, calibration: Calibration, *, overlap: bool = True) -> Timeline:
    """One step of the observed run, timed with the calibration charged."""
    return timeline(*_charged(run, calibration), overlap=overlap)


def _charged(run: Observation, calibration: Calibration) -> tuple[Schedule, Durations]:
    there = {(edge.source, edge.target): edge for edge in run.edges if edge.kind == "F"}
    back = {(edge.target, edge.source): edge for edge in run.edges if edge.kind == "B"}
    edges = tuple(
        Edge(
            source=source,
            target=target,
            forward=tuple(seconds + calibration.message for seconds in edge.planned),
            backward=tuple(seconds + calibration.message for seconds in back[source, target].planned),
            forward_wire=edge.wire,
            backward_wire=back[source, target].wire,
        )
        for (source, target), edge in sorted(there.items())
    )
    durations = Durations(
        forward=tuple(_actions(stage, stage.forward, calibration) for stage in run.stages),
        backward=tuple(_actions(stage, stage.backward, calibration) for stage in run.stages),
        edges=edges,
        finish=tuple(stage.update * calibration.update + calibration.step / _pace(stage) for stage in run.stages),
        reductions=tuple(
            Reduction(stages=each.stages, seconds=each.planned + 2 * (len(each.stages) - 1) * calibration.message)
            for each in run.reductions
        ),
    )
    return make_schedule(run.schedule, len(run.stages), len(run.microbatches)), durations


def _actions(stage: StageObservation, planned: Sequence[float], calibration: Calibration) -> tuple[float, ...]:
    kind = calibration.of(stage.kind)
    return tuple(max(0.0, kind.rate * seconds + kind.launch / _pace(stage)) for seconds in planned)


# -- constants ---------------------------------------------------------------------------------------------------------


def _constants(runs: Sequence[Observation], before: Calibration | None) -> Calibration:
    """Everything but ranges, from actions, ends of steps, messages and saves."""
    known = before or Calibration()
    stages = [stage for run in runs for stage in (*run.stages, *run.others)]
    longest = max((x for stage in stages for x, _ in _actions_of(stage)), default=0.0)
    pooled = _kind(stages, known.of(ANY_KIND), longest)
    kinds = {
        name: _kind(
            [stage for stage in stages if stage.kind == name],
            known.kinds.get(name, replace(pooled, num_stages=0)),
            longest,
        )
        for name in sorted({stage.kind for stage in stages})
    }
    ends = [
        Point(stage.update * _pace(stage), stage.measured_update.median * _pace(stage))
        for stage in stages
        if stage.measured_update is not None
    ]
    assumed = LEAST_PSEUDO if before is None else MOST_PSEUDO
    end = line(ends, Line(known.update, known.step), num_pseudo=assumed)
    late = [edge.measured.median - edge.planned[0] for run in runs for edge in run.edges if edge.measured is not None]
    return replace(
        known,
        kinds={**known.kinds, ANY_KIND: pooled, **kinds},
        message=max(0.0, round(median(late), CLOCK_DIGITS)) if late else known.message,
        update=end.slope,
        step=max(0.0, end.base),
        startup=_startup(runs) or known.startup,
        checkpoint=_checkpoint(runs) or known.checkpoint,
    )


def _pace(stage: StageObservation) -> float:
    return stage.speed or 1.0


def _actions_of(stage: StageObservation) -> list[Point]:
    """Planned and measured seconds of the stage's actions, at the reference's pace."""
    both = (stage.forward, stage.measured_forward), (stage.backward, stage.measured_backward)
    return [
        Point(planned[0] * _pace(stage), measured.median * _pace(stage))
        for planned, measured in both
        if measured is not None and planned[0] > 0
    ]


def _kind(stages: Sequence[StageObservation], known: KindCalibration, longest: float) -> KindCalibration:
    """The constants of a kind. Its actions must be both short and long against the ``longest`` of all kinds to tell
    both constants: of short ones alone the rate is the known one, of others alone the launch.
    """
    found = [_actions_of(stage) for stage in stages]
    points = [point for of_stage in found for point in of_stage]
    if not points:
        return known
    pseudo = min(MOST_PSEUDO, max(LEAST_PSEUDO, 2 * known.num_stages))
    action = Line(known.rate, known.launch)
    short, long = min(x for x, _ in points) <= SHORT * longest, max(x for x, _ in points) >= LONG * longest
    if short and long:
        action = line(points, action, num_pseudo=pseudo)
    elif short:
        beside = [y - known.rate * x for x, y in points]
        action = Line(known.rate, median([*beside, *[known.launch] * pseudo]))
    if action.slope <= 0 or not short:
        rates = [(y - known.launch) / x for x, y in points]
        action = Line(max(median([*rates, *[known.rate] * pseudo]), LEAST_RATE), known.launch)
    ratios = [y / action.at(x) for x, y in points if action.at(x) > 0]
    return replace(
        known,
        rate=action.slope,
        launch=action.base,
        contention=_contention(stages, action, known),
        num_stages=known.num_stages + sum(bool(of_stage) for of_stage in found),
        spread=_interquartile(ratios) if len(ratios) > 1 else known.spread,
    )


def _contention(stages: Sequence[StageObservation], action: Line, known: KindCalibration) -> float:
    """By what share a kind's actions grow with each further stage on the same host; the known share where every stage
    had as many beside it.
    """
    ratios = [
        Point(float(stage.num_sharing - 1), y / action.at(x))
        for stage in stages
        for x, y in _actions_of(stage)
        if action.at(x) > 0
    ]
    if len({beside for beside, _ in ratios}) < 2:
        return known.contention
    grown = line(ratios, Line(known.contention, 1.0), num_pseudo=LEAST_PSEUDO)
    return grown.slope / grown.base if grown.base > 0 else known.contention


def line(points: Sequence[Point], known: Line, *, num_pseudo: int) -> Line:
    """The line of least absolute relative deviations; ``known`` itself where there is no point.

    Parameters
    ----------
    known
        The line on which ``num_pseudo`` further points are put, from half the least x to twice the largest.

    References
    ----------
    P. Bloomfield, W. Steiger, "Least Absolute Deviations", 1983. We add the pseudo-points.
    """
    if not points:
        return known
    least, most = min(x for x, _ in points), max(x for x, _ in points)
    pseudo = np.linspace(least / 2, 2 * most, num_pseudo).tolist()
    every = np.array([*points, *((x, known.at(x)) for x in pseudo)])
    x, y = every[:, 0], every[:, 1]
    size = np.abs(y)
    scale = np.maximum(size, SMALL * np.median(size))
    scale[scale <= 0] = 1.0
    return _least_deviations(x, y, 1.0 / scale)


def _least_deviations(x: Floats, y: Floats, weight: Floats) -> Line:
    """The line, not falling, of least Σ weight · |y − line|.

    Such a line runs through two of the points. Through a given one the best slope is a weighted median of slopes to
    the others; the point at that median is given next, until nothing gets better. From :data:`STARTS` points.

    References
    ----------
    O. J. Karst, "Linear curve fitting using least deviations", JASA 53(281), 1958; several starts are ours.
    """
    flat = _weighted_median(y, weight)
    best, least = Line(0.0, float(y[flat])), float(np.sum(weight * np.abs(y - y[flat])))
    order = np.lexsort((y, x))
    for place in np.unique(np.linspace(0, len(x) - 1, STARTS).round().astype(int)):
        at, reached = int(order[place]), math.inf
        while True:
            apart = x != x[at]
            if not apart.any():
                break
            slopes = (y[apart] - y[at]) / (x[apart] - x[at])
            chosen = _weighted_median(slopes, weight[apart] * np.abs(x[apart] - x[at]))
            slope = float(slopes[chosen])
            base = float(y[at] - slope * x[at])
            total = float(np.sum(weight * np.abs(y - slope * x - base)))
            if total >= reached:
                break
            if slope >= 0 and total < least:
                best, least = Line(slope, base), total
            at, reached = int(np.flatnonzero(apart)[chosen]), total
    return best


def _weighted_median(values: Floats, weights: Floats) -> int:
    """Index of a weighted median."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return int(order[np.searchsorted(sums, sums[-1] / 2)])


def _startup(runs: Sequence[Observation]) -> Quantiles | None:
    found = [run.startup for run in runs if run.startup is not None and run.startup > 0]
    return _range(found) if found else None


def _checkpoint(runs: Sequence[Observation]) -> CheckpointTime | None:
    points = [Point(num_bytes, seconds) for run in runs for num_bytes, seconds in run.checkpoints]
    if not points:
        return None
    flat = Line(0.0, median(y for _, y in points))
    found = line(points, flat, num_pseudo=min(LEAST_PSEUDO, len(points) - 1))
    base = max(0.0, found.base)
    return CheckpointTime(base=base, bandwidth=1.0 / found.slope if found.slope > 0 else math.inf)


# -- how sure ----------------------------------------------------------------------------------------------------------


def _ratio(run: Observation, calibration: Calibration) -> float:
    """Measured ÷ predicted step."""
    return run.step.median / float(predicted_timeline(run, calibration).step)


def _held_out_ratios(runs: Sequence[Observation], before: Calibration | None) -> tuple[list[float], str]:
    """Measured ÷ predicted step of every run, by constants that were fitted without its model; and how, in words."""
    models = {run.model for run in runs}
    if len(models) > 1:
        groups = [[run for run in runs if run.model == model] for model in sorted(models)]
        how = "runs of each model predicted by what runs of other models teach"
    else:
        groups = [[run] for run in runs]
        how = "one model only: each of its runs predicted by what the others teach"
    ratios = []
    for held in groups:
        others = [run for run in runs if run not in held] or runs
        constants = _constants(others, before)
        ratios += [_ratio(run, constants) for run in held]
    return ratios, how


def _middle(runs: Sequence[Observation], fitted: Calibration, before: Calibration | None) -> float:
    """Typical measured ÷ predicted step by the constants of all runs; runs of an earlier calibration lay at 1."""
    ratios = [_ratio(run, fitted) for run in runs]
    return median(ratios + [1.0] * (0 if before is None else before.num_runs))


def _centred(calibration: Calibration, middle: float) -> Calibration:
    """The calibration with whole steps on average as long as measured: the factor ``middle`` on all that stages do."""
    kinds = {
        name: replace(kind, rate=kind.rate * middle, launch=kind.launch * middle)
        for name, kind in calibration.kinds.items()
    }
    return replace(calibration, kinds=kinds, update=calibration.update * middle, step=calibration.step * middle)


def _overlap(runs: Sequence[Observation], calibration: Calibration, before: Calibration | None) -> float | None:
    """Typical share of transfers that runs hid behind compute, from where steps lie between all and none hidden."""
    shares = []
    for run in runs:
        hidden = float(predicted_timeline(run, calibration).step)
        shown = float(predicted_timeline(run, calibration, overlap=False).step)
        if shown - hidden > TELLING * hidden:
            shares.append(min(1.0, max(0.0, (shown - run.step.median) / (shown - hidden))))
    if shares:
        return median(shares)
    return None if before is None else before.overlap


def _range(values: Sequence[float]) -> Quantiles:
    """10 %, 50 % and 90 % quantiles of what further values will be; fewer than :data:`FEW` are widened.

    Of n values the i-th smallest lies on average at the quantile i ÷ (n + 1).
    """
    if len(values) >= FEW:
        tenths = quantiles(values, n=10)
        return Quantiles(low=tenths[0], middle=median(values), high=tenths[-1])
    wider = 1.0 + WIDENING / len(values)
    return Quantiles(low=min(values) / wider, middle=median(values), high=max(values) * wider)


def _interquartile(values: Sequence[float]) -> float:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low
