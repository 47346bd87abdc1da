"""Chains of groups over a wide cluster: first plans along lines of devices, a seeded walk, and a bound."""

from __future__ import annotations

import math
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.large.bound import least_step
from ignite_scheduler.planner.large.counted import counted_chains
from ignite_scheduler.planner.large.ground import MOST_SAMPLES, Ground, ground_of
from ignite_scheduler.planner.large.improve import Walk
from ignite_scheduler.planner.large.judge import Chain, Judge
from ignite_scheduler.planner.large.start import EASED, MOST_UNITS, first_chains, lines
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request

SEED: Final = 20
WALKED: Final = 3
"""Families in which first plans are improved."""
FAMILIES: Final = 12
"""Families in which plans are looked for at most; those of equal microbatches come first."""
TRIAL: Final = 10_000
"""What a trial costs beside its actions, in actions."""
ACTIONS: Final = 8
"""Actions timed for each unit of the problem's work, and options looked at for the bound."""
LOOKS: Final = 12

UNITS: Final = (8, 4, 2, 1)


class Start(NamedTuple):
    """A first plan of one family."""

    value: float
    number: int
    chain: Chain
    judge: Judge


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
    budget = problem.work * ACTIONS // max(1, min(WALKED, len(starts)))
    work = 0
    for start in starts[:WALKED]:
        kin = start.judge.kin
        stages = len(start.chain.groups)
        trials = int(budget // (TRIAL + stages * (kin.num_microbatches + stages)))
        walk = Walk(ground, start.judge, start.chain, start.value, source)
        walk.run(trials)
        work += trials
        best.append(Start(walk.best_value, start.number, walk.best, start.judge))
    best.sort()
    step = math.inf
    if best and problem.objective == "time":
        step = best[0].value
    bound, _ = least_step(ground, request.families, step, problem.work * LOOKS)
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


def _starts(ground: Ground) -> list[Start]:
    """The first plans of the families, best first: all with coarse units, the best ones with finer ones too."""
    found = []
    for number, family in enumerate(_searched(ground.request)):
        judge = Judge(ground.costs, ground.net, family)
        start = _best_start(ground, judge, number, _unit_sizes(ground, 2))
        if start is not None:
            found.append(start)
    found.sort(key=lambda start: (start.value, start.number))
    finer = []
    for start in found[: 2 * WALKED]:
        other = _best_start(ground, start.judge, start.number, _unit_sizes(ground, len(UNITS)))
        better = start if other is None or start.value <= other.value else other
        finer.append(_counted_start(ground, better))
    return sorted(finer, key=lambda start: (start.value, start.number))


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
            start = start._replace(value=value, chain=chain)
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
                if not ground.permits(chain.first, chain.groups):
                    continue
                value = judge.value(chain)
                if value < math.inf and (best is None or value < best.value):
                    best = Start(value, number, chain, judge)
    return best
