"""Pipelines as chromosomes: how they are made, crossed, changed and repaired. Nothing is timed here.

A chromosome says, from the end of the pipeline, on which class of devices each stage stands and with which layer it
begins, and which family (schedule and microbatch) it belongs to. It may ask for more than there is, in devices or in
memory; :func:`repaired` takes that away by density: what goes is the stage that does least for what is over, and what
comes where memory is short is the device with most room for what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import Floats, Numbers, Room, make_room
from ignite_scheduler.planner.pareto.weights import Weights
from ignite_scheduler.planner.problem import Family

HALVINGS = 24
"""Steps of the search for the pace at which stages are level."""

LEVELLED = 0.4
"""Share of the changes of devices after which the stages are levelled."""


class Genes(NamedTuple):
    """A pipeline from the end."""

    classes: tuple[int, ...]
    first: tuple[int, ...]
    family: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One family of a problem, for chromosomes.

    ``busy[class, layer]`` are prefix sums of the seconds that layers take of a step; ``reach`` is how much more work a
    class does in a second than the slowest one.
    """

    family: Family
    numbers: Numbers
    weights: Weights
    busy: Floats
    reach: Floats
    room: Room = field(compare=False)

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return int(self.numbers.num_layers)


def make_ground(numbers: Numbers, weights: Weights, family: Family) -> Ground:
    """The family made ready."""
    busy = busy_seconds(numbers)
    whole = np.maximum(busy[:, -1], 1e-300)
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    return Ground(family=family, numbers=numbers, weights=weights, busy=busy, reach=whole.max() / whole, room=room)


def level(numbers: Numbers, busy: Floats, classes: tuple[int, ...]) -> tuple[int, ...] | None:
    """First layers with which these stages are as level as memory lets them be; None where they cannot hold the model.

    The least pace at which all layers are placed, by halving; every stage takes what it can within the pace. ``busy``
    [class, layer] are prefix sums of the seconds that layers take of a step.
    """
    if len(classes) > min(int(numbers.max_stages), int(numbers.num_layers)):
        return None
    first = np.zeros(len(classes), dtype=np.int64)
    found = _level(numbers.first_fit, numbers.may_cut, busy, np.array(classes, dtype=np.int64), first)
    return tuple(first.tolist()) if found else None


@compiled
def _level(first_fit: Any, may_cut: Any, busy: Any, classes: Any, first: Any) -> bool:
    high = 0.0
    for c in classes:
        high = max(high, busy[c, -1] * (1 + 1e-9))
    trial = np.zeros(len(classes), np.int64)
    if not _placed(first_fit, may_cut, busy, classes, high, first):
        return False
    low = 0.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _placed(first_fit, may_cut, busy, classes, middle, trial):
            high = middle
            first[:] = trial
        else:
            low = middle
    return True


@compiled
def _placed(first_fit: Any, may_cut: Any, busy: Any, classes: Any, pace: float, first: Any) -> bool:
    """Let every stage, from the end, take what it can within the pace; whether all layers are placed."""
    stages = len(classes)
    end = busy.shape[1] - 1
    for q in range(stages):
        c = classes[q]
        begin = max(first_fit[c, q + 1, end], stages - 1 - q)
        begin += np.searchsorted(busy[c, begin:end], busy[c, end] - pace * (1 + 1e-12))
        while begin < end and not may_cut[begin]:
            begin += 1
        if begin >= end:
            return False
        first[q] = begin
        end = begin
    return bool(end == 0)


def permitted_cut(numbers: Numbers, layer: int) -> int:
    """The next layer from this one on where a stage may begin; the end of the model where there is none."""
    size = int(numbers.num_layers)
    ahead = np.flatnonzero(numbers.may_cut[layer:size])
    return layer + int(ahead[0]) if len(ahead) else size


def busy_seconds(numbers: Numbers) -> Floats:
    """[class, layer]: prefix sums of the seconds that layers take of a step."""
    m = numbers.num_microbatches
    found: Floats = (m - 1) * (numbers.forward[:, 0] + numbers.backward[:, 0])
    return found + numbers.forward[:, 1] + numbers.backward[:, 1]


def crossed(one: Genes, other: Genes, stages: int) -> Genes:
    """The last ``stages`` of one pipeline behind what the other does with the layers in front of them."""
    boundary = one.first[stages - 1]
    kept = [q for q, begin in enumerate(other.first) if begin < boundary]
    return Genes(
        one.classes[:stages] + tuple(other.classes[q] for q in kept),
        one.first[:stages] + tuple(other.first[q] for q in kept),
        one.family,
    )


def changed(ground: Ground, genes: Genes, num_families: int, source: np.random.Generator) -> Genes:
    """The pipeline with one thing changed at random, and often levelled after that."""
    classes, first, family = list(genes.classes), list(genes.first), genes.family
    stages, num_classes = len(classes), len(ground.numbers.counts)
    q = int(source.integers(stages))
    kind = int(source.integers(7))
    if kind == 0 and stages > 1:  # a cut
        q = int(source.integers(stages - 1))
        first[q] += int(source.integers(1, 5)) * (1 if source.random() < 0.5 else -1)
    elif kind == 1:  # another class of devices
        classes[q] = int(source.integers(num_classes))
    elif kind == 2:  # two stages change places
        p = int(source.integers(stages))
        classes[p], classes[q] = classes[q], classes[p]
    elif kind == 3 and stages > 1:  # a stage less
        del classes[q], first[q if q < stages - 1 else q - 1]
        first[-1] = 0
    elif kind == 4 and stages < ground.numbers.max_stages:  # a stage more
        end = first[q - 1] if q > 0 else ground.num_layers
        if end - first[q] > 1:
            classes.insert(q, int(source.integers(num_classes)))
            first.insert(q, int(source.integers(first[q] + 1, end)))
    elif kind == 5:
        family = int(source.integers(num_families))
    if kind == 6 or (kind in (1, 2, 3, 4) and source.random() < LEVELLED):
        first = list(level(ground.numbers, ground.busy, tuple(classes)) or first)
    return Genes(tuple(classes), tuple(first), family)


def repaired(ground: Ground, genes: Genes, unit: Floats) -> Genes | None:
    """The pipeline within the devices there are, the stages permitted and the memory; None where that fails.

    ``unit[class]`` is what a device of the class takes up of what the asker has little of (1, or its price).
    """
    classes, first = _ordered(ground, genes)
    numbers = ground.numbers
    while classes:
        over = _over(ground, classes)
        if not over:
            break
        q = min(over, key=lambda place: (_density(ground, classes, first, place, unit), place))
        del classes[q], first[q if q < len(first) - 1 else max(0, q - 1)]
    if not classes:
        return None
    first[-1] = 0
    end = ground.num_layers
    for q, c in enumerate(classes):  # what a stage cannot hold goes to the stage in front of it
        begin = permitted_cut(numbers, max(first[q], int(numbers.first_fit[c, q + 1, end])))
        first[q] = min(begin, end - 1)
        if begin >= end:
            return None
        end = begin
        if end == 0:
            return Genes(tuple(classes[: q + 1]), tuple(first[: q + 1]), genes.family)
    return _with_more(ground, classes, first, end, unit, genes.family)


def _ordered(ground: Ground, genes: Genes) -> tuple[list[int], list[int]]:
    """The stages with cuts in falling order and no stage empty."""
    classes, first = [], []
    end = ground.num_layers
    for c, begin in zip(genes.classes, genes.first, strict=True):
        end = min(max(begin, 0), end - 1)
        classes.append(c)
        first.append(end)
        if end == 0:
            break
    return classes, first


def _over(ground: Ground, classes: list[int]) -> list[int]:
    """Stages of which some must go: those of a class that is used too often, or all where there are too many."""
    numbers = ground.numbers
    for c in sorted(set(classes)):
        if classes.count(c) > numbers.counts[c]:
            return [q for q, other in enumerate(classes) if other == c]
    return list(range(len(classes))) if len(classes) > numbers.max_stages else []


def _density(ground: Ground, classes: list[int], first: list[int], q: int, unit: Floats) -> float:
    """What a stage does, in seconds of the slowest class, for each unit that it takes up."""
    end = first[q - 1] if q > 0 else ground.num_layers
    c = classes[q]
    done = float(ground.busy[c, end] - ground.busy[c, first[q]]) * float(ground.reach[c])
    return done / float(unit[c]) if unit[c] > 0 else np.inf


def _with_more(
    ground: Ground, classes: list[int], first: list[int], end: int, unit: Floats, family: int
) -> Genes | None:
    """Devices put in front until all layers are placed, those with most room for what they take up first."""
    numbers = ground.numbers
    while end > 0 and len(classes) < numbers.max_stages:
        free = [c for c in range(len(numbers.counts)) if classes.count(c) < numbers.counts[c]]
        n = len(classes) + 1
        begins = {c: permitted_cut(numbers, int(numbers.first_fit[c, n, end])) for c in free}
        useful = [c for c in free if begins[c] < end]
        if not useful:
            return None
        chosen = max(useful, key=lambda c: ((end - begins[c]) / unit[c] if unit[c] > 0 else np.inf, -c))
        classes.append(chosen)
        first.append(begins[chosen])
        end = begins[chosen]
    return Genes(tuple(classes), tuple(first), family) if end == 0 else None
