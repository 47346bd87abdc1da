"""The tables of vTrain's points: what was fitted on what, and errors by parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from published.vtrain import Machine, Node, Point, fit, predict
from tables import Summary, by_group, summary, table

UNITS = {
    "rate": "FLOP/s",
    "head_rate": "FLOP/s",
    "elementwise": "bytes/s",
    "fixed": "s a layer",
    "launch": "s a layer",
    "head": "s a microbatch",
    "collective": "bytes/s",
    "latency": "s an all-reduce",
    "gradients": "bytes/s",
    "update": "s a parameter",
    "step": "s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A point and what was predicted for it."""

    point: Point
    predicted: float

    @property
    def error(self) -> float:
        """Predicted ÷ measured − 1."""
        return self.predicted / self.point.seconds - 1


def guesses(points: Iterable[Point], machine: Machine, node: Node) -> list[Guess]:
    """Each point, predicted."""
    return [Guess(point=point, predicted=predict(point, machine, node)) for point in points]


def without_own_size(points: Sequence[Point], node: Node) -> list[Guess]:
    """Each point, predicted by a machine that was fitted on the points of the other hidden sizes."""
    found = []
    for hidden in sorted({point.hidden for point in points}):
        machine = fit([point for point in points if point.hidden != hidden])
        found += guesses([point for point in points if point.hidden == hidden], machine, node)
    return found


def straight(points: Sequence[Point]) -> tuple[int, int]:
    """Of groups that differ in layers alone (three or more of them): how many lie on a straight line to 1e-6."""
    groups: dict[tuple[int, ...], list[tuple[int, float]]] = defaultdict(list)
    for p in points:
        key = (p.gpus, p.batch, p.micro, p.hidden, p.heads, p.sequence, p.tensor, p.data, p.pipeline)
        groups[key].append((p.layers, p.seconds))
    several = [np.array(sorted(group)).T for group in groups.values() if len(group) > 2]
    on_line = 0
    for layers, seconds in several:
        off = seconds - np.polyval(np.polyfit(layers, seconds, 1), layers)
        on_line += bool(np.abs(off).max() < 1e-6 * seconds.mean())
    return on_line, len(several)


def shrinking(points: Sequence[Point]) -> tuple[int, int, float]:
    """Of pairs in which each microbatch has twice the samples, and nothing else differs: how many take *less* time.

    Returns the number of those, of all pairs, and the largest saving as a part of the smaller one's time. More work in
    less time is noise of the measurement, or of what the figures were made from.
    """
    known = {_without_micro(p, p.micro, p.batch): p.seconds for p in points}
    pairs = [
        (p.seconds, known[twice]) for p in points if (twice := _without_micro(p, 2 * p.micro, 2 * p.batch)) in known
    ]
    less = [1 - large / small for small, large in pairs if large < small]
    return len(less), len(pairs), max(less, default=0.0)


def _without_micro(p: Point, micro: int, batch: int) -> tuple[int, ...]:
    return (p.gpus, batch, micro, p.hidden, p.heads, p.layers, p.sequence, p.tensor, p.data, p.pipeline)


def parallelism(point: Point) -> str:
    """The degrees as text."""
    return f"t{point.tensor} d{point.data} p{point.pipeline}"


def tables(found: Sequence[Guess]) -> str:
    """Errors by parallelism and by samples in a microbatch."""
    ordered = sorted(found, key=lambda g: (g.point.pipeline, g.point.tensor, g.point.data, g.point.micro))
    by_micro = sorted(found, key=lambda g: g.point.micro)
    return "\n\n".join(
        [
            by_group(((parallelism(g.point), g.error) for g in ordered), "degrees"),
            by_group(((f"{g.point.micro}", g.error) for g in by_micro), "samples in a microbatch"),
            _worst(found),
        ]
    )


def _worst(found: Sequence[Guess], count: int = 5) -> str:
    rows = []
    for g in sorted(found, key=lambda g: -abs(g.error))[:count]:
        p = g.point
        rows.append(
            [
                parallelism(p),
                f"h {p.hidden}, {p.layers} layers, {p.batch} in microbatches of {p.micro}",
                f"{p.seconds:.3f}",
                f"{g.predicted:.3f}",
                f"{g.error:+.1%}",
            ]
        )
    return table(["worst", "model and batch", "measured s", "predicted s", "error"], rows)


def pipelined(found: Sequence[Guess]) -> Summary:
    """Errors of the points with a pipeline."""
    return summary(g.error for g in found if g.point.pipeline > 1)


def constants(machine: Machine) -> str:
    """The fitted constants as a table."""
    return table(
        ["constant", "value"], [[name, f"{value:.4g} {UNITS[name]}"] for name, value in asdict(machine).items()]
    )


def report(points: Sequence[Point], fitted_on: Sequence[Point] | None, node: Node) -> str:
    """All tables. With points to fit on those are used and the others predicted; else sizes take turns."""
    on_line, groups = straight(points)
    less, pairs, saving = shrinking(points)
    notes = (
        f"About the figures: of {groups} groups of points that differ in layers alone, {on_line} lie on a straight "
        f"line to 1e-6. Of {pairs} pairs in which each microbatch has twice the samples, {less} take less time for "
        f"them, up to {saving:.0%} less: what no model whose time grows with work can follow."
    )
    if fitted_on is not None:
        machine = fit(fitted_on)
        found = guesses(points, machine, node)
        head = f"Fitted on other points, {summary(g.error for g in found)}."
        return "\n\n".join([head, notes, constants(machine), tables(found)])
    machine = fit(points)
    inside = guesses(points, machine, node)
    one = summary(g.error for g in inside if g.point.pipeline == 1)
    lines = [f"Machine fitted on the points with one stage. Those: {one}."]
    if any(point.pipeline > 1 for point in points):
        lines.append(f"Points with a pipeline, never fitted: {pipelined(inside)}.")
    parts = ["\n".join(lines), notes, constants(machine), tables(inside)]
    if len({point.hidden for point in points}) > 1:
        outside = without_own_size(points, node)
        parts += [
            f"Fitted on the one-stage points of the *other* hidden sizes only: {summary(g.error for g in outside)}.",
            by_group(((f"{g.point.hidden}", g.error) for g in outside), "hidden size predicted"),
            tables(outside),
        ]
    return "\n\n".join(parts)
