"""Chains of groups over a wide cluster: first plans along lines of devices, a seeded walk, and a bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.large.alike import alike_chains
from ignite_scheduler.planner.large.bound import least_step
from ignite_scheduler.planner.large.counted import counted_chains
from ignite_scheduler.planner.large.ground import MOST_SAMPLES, Ground, ground_of
from ignite_scheduler.planner.large.improve import Walk
from ignite_scheduler.planner.large.judge import Chain, Judge
from ignite_scheduler.planner.large.start import EASED, MOST_UNITS, first_chains, lines
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request

SEED: Final = 20
WALKED: Final = 4
"""First plans that are improved."""
LINED: Final = 2
"""Families in which lines of devices are cut into stages, where groups of one kind tell which are best."""
FAMILIES: Final = 12
"""Families in which plans are looked for at most; those of equal microbatches come first."""
TRIAL: Final = 10_000
"""What a trial costs beside its actions, in actions."""
ACTIONS: Final = 16
"""Actions timed for each unit of the problem's work: half of them in walks from all starts, half from the best end."""
DEVICES_PER_BUDGET: Final = 80
"""The problem's work is for so many devices; more of them get as many times that."""
LOOKS: Final = 12
"""Options looked at for the bound for each unit of the work."""

UNITS: Final = (8, 4, 2, 1)


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """A first plan of one family; the best one is the least."""

    value: float
    number: int
    chain: Chain
    judge: Judge = field(compare=False)


def search(
    problem: Problem,
    request: Request,
    incumbent: Assignment | None = None,
    *,
    source: np.random.Generator | None = None,
) -> Found:
    """The best chain found over a wide cluster, and a bound on all of them.

    Parameters
    ----------
    source
        Where the walk's choices come from; by default seeded, so that a plan is repeatable.

    Notes
    -----
    The bound speaks of all chains whose stages are groups of the allowed devices with any shares, under both schedules
    and all memory actions, as far as the request leaves them open. ``best`` is None where no plan was found, which is
    no proof that there is none.
    """
    del incumbent
    source = np.random.default_rng(SEED) if source is None else source
    ground = ground_of(problem, request)
    starts = _starts(ground)
    best: list[Start] = []
    work = 0
    walked = starts[:WALKED]
    allowed = problem.work * max(1, len(ground.ids) // DEVICES_PER_BUDGET)
    budget = allowed * ACTIONS // 2
    for start in walked:
        ended, trials = _walked(ground, start, budget // len(walked), source)
        best.append(ended)
        work += trials
    best.sort()
    if best:
        best[0], trials = _walked(ground, best[0], budget, source)
        work += trials
    step = math.inf
    if best and problem.objective == "time":
        step = best[0].value
    bound, _ = least_step(ground, request.families, step, allowed * LOOKS)
    if problem.objective != "time":
        bound = bound * float(ground.net.rate.min()) if problem.objective == "cost" else 0.0
    method = "chains of priced stages by pace of the longest one; plan by a seeded walk on the exact step"
    if not best:
        return Found(best=None, bound=bound, method=method, work=work)
    assignments = [start.judge.assignment(start.chain, ground.ids) for start in best]
    return Found(
        best=assignments[0],
        value=best[0].value,
        bound=min(bound, best[0].value),
        method=method,
        others=tuple(assignments[1:]),
        work=work,
    )


def _walked(ground: Ground, start: Start, actions: int, source: np.random.Generator) -> tuple[Start, int]:
    """The best plan on a walk from the start that times so many actions, and the number of trials."""
    stages = len(start.chain.groups)
    trials = actions // (TRIAL + stages * (start.judge.kin.num_microbatches + stages))
    walk = Walk(ground, start.judge, start.chain, start.value, source)
    walk.run(trials)
    return replace(start, value=walk.best_value, chain=walk.best), trials


def _starts(ground: Ground) -> list[Start]:
    """The first plans of the families, best first, up to two of a family that come from unlike constructions.

    Groups of one kind are quick to find, and tell the families apart; lines are drawn where they promise most, or in
    all families where there are no such groups.
    """
    alike = []
    judges = [Judge(ground.costs, ground.net, family) for family in _searched(ground.request)]
    for number, judge in enumerate(judges):
        line, _ = next(lines(ground, judge, 1))
        found = [_better(ground, judge, number, chain, None) for chain in alike_chains(ground, line)]
        alike += sorted(_found(found))[:1]
    alike.sort()
    drawn = [start.number for start in alike[:LINED]] if alike else list(range(len(judges)))
    lined = _found([_best_start(ground, judges[n], n, _unit_sizes(ground, len(UNITS))) for n in drawn])
    promising = sorted(lined)[: 2 * WALKED]
    return sorted(alike + [_counted_start(ground, start) for start in promising])


def _found(starts: Iterable[Start | None]) -> list[Start]:
    return [start for start in starts if start is not None]


def _counted_start(ground: Ground, start: Start) -> Start:
    """The better one of a first plan and of those that tables over counts of devices find below its pace."""
    if ground.request.replicas != 1:
        return start
    judge = start.judge
    judge.value(start.chain)
    pace = float(judge.sheet.seconds[: len(start.chain.groups), :2].sum(axis=1).max())
    line, _ = next(lines(ground, judge, 1))
    for chain in counted_chains(ground, line, 0.75 * pace, pace):
        value = judge.value(chain) if ground.permits(chain.first, chain.groups) else math.inf
        if value < start.value:
            start = replace(start, value=value, chain=chain)
    return start


def _searched(request: Request) -> tuple[Family, ...]:
    """The families in which plans are looked for: under 1F1B where it is permitted, since it holds the least."""
    families = [family for family in request.families if family.samples <= MOST_SAMPLES]
    families = [family for family in families if family.schedule != "gpipe"] or families
    even = [family for family in families if family.last_samples == family.samples] or families
    return tuple(even[:: max(1, -(-len(even) // FAMILIES))])


def _unit_sizes(ground: Ground, count: int) -> list[int]:
    """Numbers of devices that stand together in a line, coarse ones first."""
    if ground.request.replicas == 1:
        return [1]
    most = int(ground.world.block_counts.max())
    fitting = [size for size in UNITS if size <= most and len(ground.ids) <= size * MOST_UNITS]
    return list(islice(fitting, count)) or [most]


def _best_start(ground: Ground, judge: Judge, number: int, unit_sizes: list[int]) -> Start | None:
    best: Start | None = None
    for unit_size in unit_sizes:
        for line, units in lines(ground, judge, unit_size):
            for chain in first_chains(ground, line, units, EASED):
                best = _better(ground, judge, number, chain, best)
    return best


def _better(ground: Ground, judge: Judge, number: int, chain: Chain, best: Start | None) -> Start | None:
    """The better one of a first plan and a chain of the same family."""
    if not ground.permits(chain.first, chain.groups):
        return best
    value = judge.value(chain)
    known = math.inf if best is None else best.value
    return Start(value, number, chain, judge) if value < known else best
