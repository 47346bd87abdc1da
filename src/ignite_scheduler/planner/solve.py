"""One family solved: tables, first plans from them, local search, then branch and bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ignite_scheduler.planner.climb import climb, shake
from ignite_scheduler.planner.extents import extent_tables
from ignite_scheduler.planner.instance import Arrays, Classes, Model
from ignite_scheduler.planner.kernel import Floats, Ints, Numbers, make_room, value_of
from ignite_scheduler.planner.narrowing import everything, narrow, refuted
from ignite_scheduler.planner.orders import orders
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.tables import behind_tables, front_tables, least_fill_plan
from ignite_scheduler.planner.tree import TIE, make_memory, search

SWEEP = 24
"""First plans come from this many caps on the busiest stage at most."""

SWEEP_WORK = 600_000
"""Work on the tables of these caps at most."""

STATES_PER_WORK = 16
"""States of a table that cost as much as timing one pipeline."""

CLIMBED = 4
"""The best of them that local search starts from."""

SHORT_WORK = 20_000
"""Work of the plain search that comes first, and of the one that settles ties after a proof."""

SLACK, SLACK_WORK = 1.05, 600_000
"""Near-equal suffixes are dropped within this factor when better plans are looked for, with that much work at most."""

SHAKES, SHAKE_WORK = 40, 400_000
"""Rounds of disturbed local search, and the pipelines timed in them at most."""

SHAKE_FROM = 1_000
"""Tables of less work are searched well enough without."""

TARGETS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)
"""Shares of the best value that nothing is proven to go below, where no narrowed tables tell where to begin."""

MANY_SETS = 200
"""Over more multisets a proof seldom ends at once: there tables are narrowed, and the bound rises rung by rung."""

LITTLE_WORK = 1_500_000
"""With less the last proof will hardly end."""

RUNG = 0.3
"""Share of what is between bound and plan that the first search for a better plan looks at."""

LEAST_RUNG = 0.05
"""Less of it is not worth another search."""

SWEEPS_PER_TABLE = 8
"""Sweeps that narrow tables cost as much as a table counts: their loops are short."""

CLIMB_WORK = 20_000
"""Pipelines that one local search times at most."""


LEVEL_WORK = 4_000
"""A search gets one more table for each that much budget: making one must not cost more than it saves."""

MAX_LEVELS = 16
"""Tables for different fills behind, at most."""

MAX_TABLE = 8_000_000
"""Entries of all these tables together."""

MAX_EXTENTS = 24_000_000
"""Entries of the table by extents at most."""

ENTRIES_PER_WORK = 64
"""Entries of that table that cost as much as timing one pipeline."""

NO_EXTENTS = np.zeros((0, 0, 0, 0))

UNKNOWN = np.zeros((0, 0, 0))
"""Nothing is known of what lies behind a stage."""


class Goal(NamedTuple):
    """The objective ``(base_rate + Σ rate[class]) · step + Σ extra[class] · busy``; ``price`` decides ties."""

    base_rate: float
    rate: Floats
    extra: Floats
    price: Floats


class Permit(NamedTuple):
    """What a plan may look like: which multisets of devices, where cuts may be, how many stages at most."""

    allowed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    may_cut: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    max_stages: int


class Choice(NamedTuple):
    """A pipeline from the end: class and first layer of each stage, and what it is worth."""

    value: float
    classes: tuple[int, ...]
    first: tuple[int, ...]


class Outcome(NamedTuple):
    """The best choice, a value that no choice goes below, and the work spent."""

    choice: Choice
    bound: float
    work: int


NOTHING = Choice(np.inf, (), ())


def make_numbers(classes: Classes, model: Model, arrays: Arrays, family: Family, permit: Permit, goal: Goal) -> Numbers:
    """The family as one record for the compiled functions."""
    order = orders(family.schedule, permit.max_stages, family.num_microbatches)
    busy = (family.num_microbatches - 1) * (arrays.forward[:, 0] + arrays.backward[:, 0])
    busy = busy + arrays.forward[:, 1] + arrays.backward[:, 1]
    by_layer = (goal.extra[:, None] * np.diff(busy, axis=1)).min(axis=0)
    numbers = Numbers(
        num_layers=model.num_layers,
        num_microbatches=family.num_microbatches,
        max_stages=permit.max_stages,
        counts=classes.counts,
        strides=classes.strides,
        member_rank=classes.member_rank,
        allowed=permit.allowed,
        num_used=np.zeros(0, np.int64) if classes.wide else classes.counts_of().sum(axis=1),
        may_cut=permit.may_cut,
        forward=arrays.forward,
        backward=arrays.backward,
        overhead=arrays.overhead,
        update=arrays.update,
        closing=arrays.closing,
        latency=classes.latency,
        per_byte=classes.per_byte,
        sizes=arrays.sizes,
        single_bytes=model.single_bytes,
        once_bytes=model.once_bytes,
        tensors=model.tensors,
        readers=model.readers,
        reader_bytes=model.reader_bytes,
        tied=model.tied,
        tied_bytes=model.tied_bytes,
        first_fit=arrays.first_fit,
        order_start=order.start,
        order_stage=order.stage,
        order_kind=order.kind,
        order_microbatch=order.microbatch,
        base_rate=goal.base_rate,
        rate=goal.rate,
        extra=goal.extra,
        extra_front=np.concatenate(([0.0], np.cumsum(by_layer))),
        price=goal.price,
        even=family.samples == family.last_samples,
        shrinking=bool(
            (np.diff(arrays.forward[:, 1] - arrays.forward[:, 0], axis=1) <= 0).all()
            and (np.diff(arrays.backward[:, 1] - arrays.backward[:, 0], axis=1) <= 0).all()
        ),
        gpipe=family.schedule == "gpipe",
    )
    # one memory layout for all: another would be compiled anew
    return Numbers._make(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in numbers)


def table_work(numbers: Numbers) -> int:
    """Work of one table, in timed pipelines."""
    return 1 + len(numbers.num_used) * len(numbers.counts) * (numbers.num_layers + 1) // STATES_PER_WORK


def extent_work(numbers: Numbers) -> float:
    """Work of the table by extents, in timed pipelines; infinite where it would be too large."""
    entries = len(numbers.num_used) * len(numbers.counts) * numbers.num_layers * (numbers.num_layers + 1)
    return 1 + entries // ENTRIES_PER_WORK if entries <= MAX_EXTENTS else np.inf


def first_plan(numbers: Numbers, *, sweep: int = SWEEP) -> tuple[Choice, float]:
    """A good plan, and a step time that no permitted plan goes below.

    Least fill under ever lower caps on the busiest stage; the best of these improved by local search. ``NOTHING`` and
    an infinite bound where no permitted plan exists: the tables know memory and links exactly.
    """
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    candidates: set[Choice] = set()
    classes, first = _buffers(numbers)
    cap, fill, bound = np.inf, np.inf, np.inf
    for _ in range(max(2, min(sweep, SWEEP_WORK // table_work(numbers)))):
        stage, total = front_tables(numbers, UNKNOWN, 0.0, cap, np.inf)
        n = least_fill_plan(numbers, stage, total, cap, classes, first)
        if n == 0:
            bound = max(fill, cap if cap < np.inf else 0.0) if candidates else np.inf
            break
        value = value_of(numbers, room, n, classes, first)
        candidates.add(_choice(value, n, classes, first))
        if cap == np.inf:
            fill = _fill(numbers, stage)
            bound = fill
        cap = 0.95 * _busiest(numbers, n, classes, first)
    best = NOTHING
    for candidate in sorted(candidates)[:CLIMBED]:
        n = len(candidate.classes)
        classes[:n], first[:n] = candidate.classes, candidate.first
        n, value, _ = climb(numbers, room, n, classes, first, candidate.value, CLIMB_WORK)
        if value < best.value - TIE:
            best = _choice(value, n, classes, first)
    return best, float(bound)


def shaken(numbers: Numbers, choice: Choice) -> Choice:
    """A first plan improved by disturbed local search, where tables are large enough for that to be worth it."""
    if not choice.classes or table_work(numbers) <= SHAKE_FROM:
        return choice
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = _buffers(numbers)
    n = len(choice.classes)
    classes[:n], first[:n] = choice.classes, choice.first
    n, value, _ = shake(numbers, room, n, classes, first, choice.value, SHAKES, SHAKE_WORK)
    return _choice(value, n, classes, first)


def improve(
    numbers: Numbers,
    incumbent: Choice,
    target: float,
    budget: int,
    *,
    slack: float = 1.0,
    remember: bool = True,
    ties: bool = False,
) -> tuple[Choice, int, bool]:
    """Look for a plan below ``target``.

    ``slack`` above 1 drops suffixes that are better than another by a smaller factor: quick, and proves nothing. With
    ``ties`` plans as good as the incumbent with fewer devices, a lower price or smaller ids are looked for too, which
    can take far longer where layers take no time.

    Returns
    -------
    the better of incumbent and what was found, work spent, and whether it is proven that no plan is below
    min(``target``, its value).
    """
    classes, first = _buffers(numbers)
    limit = _step_limit(numbers, target)
    behind, narrowing = _behind(numbers, limit, narrowed=remember and _many_sets(numbers))
    spent = extent_work(numbers)
    if remember and not numbers.gpipe and limit < np.inf and spent <= budget // 4:
        extents = extent_tables(numbers, behind, limit)
        floors, totals = np.zeros(1), np.pad(extents.min(axis=3), ((0, 0), (0, 0), (0, 1)))[None]
    else:
        extents = NO_EXTENTS
        floors, totals = levels(numbers, limit, 1 + budget // (LEVEL_WORK + 4 * table_work(numbers)), behind)
        spent = len(totals) * table_work(numbers)
    n = 0
    if ties:
        n = len(incumbent.classes)
        classes[:n], first[:n] = incumbent.classes, incumbent.first
    memory = make_memory(numbers, wanted=remember)
    value, n, work, complete = search(
        numbers, floors, totals, extents, memory, target, n, classes, first, slack, budget
    )
    found = _choice(value, n, classes, first) if n > 0 else incumbent
    return found, int(work) + int(spent) + narrowing, bool(complete) and slack == 1.0


def _behind(numbers: Numbers, limit: float, *, narrowed: bool) -> tuple[Floats, int]:
    """Least fill of everything behind under the step limit, and the work spent beyond the table."""
    if not narrowed or limit == np.inf:
        return behind_tables(numbers, limit), 0
    tables = everything(numbers, limit)
    _, sweeps = narrow(numbers, tables, limit)
    return tables.behind, sweeps * table_work(numbers) // SWEEPS_PER_TABLE


def levels(numbers: Numbers, limit: float, wanted: int, behind: Floats | None = None) -> tuple[Floats, Floats]:
    """Tables of the least fill in front for ever larger fills behind, under the step limit.

    Returns
    -------
    floors, totals
        ``totals[l]`` holds for suffixes whose fill is at least ``floors[l]``.
    """
    states = len(numbers.num_used) * len(numbers.counts) * (numbers.num_layers + 1)
    count = max(1, min(wanted, MAX_LEVELS, MAX_TABLE // states)) if limit < np.inf else 1
    behind = behind_tables(numbers, limit) if behind is None else behind
    floors = np.linspace(0.0, limit, count, endpoint=False) if count > 1 else np.zeros(1)
    totals = np.stack([front_tables(numbers, behind, float(floor), limit, limit)[1] for floor in floors])
    return floors, totals


def solve(numbers: Numbers, incumbent: Choice, bound: float, budget: int) -> Outcome:
    """Improve the incumbent and raise the bound until they meet or the budget is spent.

    Small problems end with a short plain search that also settles ties. Otherwise a search that drops near-equal
    suffixes looks for better plans, and exact ones that remember suffixes prove what is left: at once over few
    multisets of devices, rung by rung over many.
    """
    incumbent, spent, complete = improve(
        numbers, incumbent, incumbent.value, min(budget, SHORT_WORK), remember=False, ties=True
    )
    if complete:
        return Outcome(incumbent, incumbent.value, spent)
    if spent < budget:
        prove = _by_rungs if _many_sets(numbers) else _at_once
        incumbent, bound, spent = prove(numbers, incumbent, bound, spent, budget)
    if bound >= incumbent.value:
        incumbent, work = _settle_ties(numbers, incumbent, max(SHORT_WORK, min(budget - spent, spent)))
        return Outcome(incumbent, incumbent.value, spent + work)
    return Outcome(incumbent, bound, spent)


def _many_sets(numbers: Numbers) -> bool:
    return len(numbers.num_used) > MANY_SETS


def _at_once(numbers: Numbers, incumbent: Choice, bound: float, spent: int, budget: int) -> tuple[Choice, float, int]:
    """The last proof first; where its share of the budget does not suffice, a gap by the shares of TARGETS."""
    incumbent, work, _ = improve(numbers, incumbent, incumbent.value, min(budget // 10, SLACK_WORK), slack=SLACK)
    spent += work
    if budget < LITTLE_WORK:
        incumbent, bound, spent = _by_targets(numbers, incumbent, bound, spent, budget)
    incumbent, work, complete = improve(numbers, incumbent, incumbent.value, max(0, budget - spent) * 4 // 5)
    spent += work
    if complete:
        return incumbent, incumbent.value, spent
    return _by_targets(numbers, incumbent, bound, spent, budget)


def _by_targets(
    numbers: Numbers, incumbent: Choice, bound: float, spent: int, budget: int
) -> tuple[Choice, float, int]:
    """Prove that nothing is better by the shares of TARGETS, as far as the budget goes; also the work spent so far."""
    for share_of_value in TARGETS:
        target = incumbent.value * share_of_value
        if spent >= budget:
            break
        if target <= bound:
            continue
        incumbent, work, complete = improve(numbers, incumbent, target, (budget - spent) // 2)
        spent += work
        if not complete:
            break
        bound = max(bound, min(target, incumbent.value))
    return incumbent, min(bound, incumbent.value), spent


def _by_rungs(numbers: Numbers, incumbent: Choice, bound: float, spent: int, budget: int) -> tuple[Choice, float, int]:
    """Tables narrowed under ever closer limits first, then exact searches, each of which costs far more than the last.

    The tables raise the bound and give better plans to begin with.
    """
    incumbent, bound, work = _narrowed_bound(numbers, incumbent, bound)
    spent += work
    incumbent, work, _ = improve(numbers, incumbent, incumbent.value, min(budget // 10, SLACK_WORK), slack=SLACK)
    return _raise_bound(numbers, incumbent, bound, spent + work, budget)


def _narrowed_bound(numbers: Numbers, incumbent: Choice, bound: float) -> tuple[Choice, float, int]:
    """The bound of narrowed tables, the best plan that chains met on the way lead to, and the work spent."""
    bound, chains, sweeps = refuted(
        numbers, min(bound, incumbent.value), incumbent.value, lambda value: _step_limit(numbers, value)
    )
    room = make_room(numbers.max_stages, numbers.num_microbatches)
    classes, first = _buffers(numbers)
    work = sweeps * table_work(numbers) // SWEEPS_PER_TABLE
    for chain in dict.fromkeys(chains):
        n = len(chain[0])
        classes[:n], first[:n] = chain
        n, value, timed = climb(
            numbers, room, n, classes, first, value_of(numbers, room, n, classes, first), CLIMB_WORK
        )
        work += int(timed)
        if value < incumbent.value - TIE:
            incumbent = _choice(value, n, classes, first)
    return incumbent, bound, work


def _raise_bound(
    numbers: Numbers, incumbent: Choice, bound: float, spent: int, budget: int
) -> tuple[Choice, float, int]:
    """Prove rung by rung that nothing is better, as far as the budget goes; also the work spent so far."""
    rung = RUNG
    while bound < incumbent.value and spent < budget and rung >= LEAST_RUNG:
        target = bound + rung * (incumbent.value - bound) if rung < 1 else incumbent.value
        incumbent, work, complete = improve(numbers, incumbent, target, budget - spent)
        spent += work
        if complete:
            bound = min(target, incumbent.value)
        rung = min(1.0, 1.7 * rung) if complete else rung / 2
    return incumbent, bound, spent


def _settle_ties(numbers: Numbers, best: Choice, budget: int) -> tuple[Choice, int]:
    """An equally good plan with fewer devices, then a lower price or smaller ids, as far as the budget goes."""
    spent = 0
    while spent < budget and len(best.classes) > 1:
        fewer = numbers._replace(allowed=numbers.allowed & (numbers.num_used < len(best.classes)))
        found, work, _ = improve(fewer, NOTHING, best.value + 2 * TIE, budget - spent)
        spent += work
        if not found.classes:
            break
        best = found._replace(value=min(found.value, best.value))
    best, work, _ = improve(numbers, best, best.value, SHORT_WORK, remember=False, ties=True)
    return best, spent + work


def _buffers(numbers: Numbers) -> tuple[Ints, Ints]:
    return np.zeros(numbers.max_stages + 2, np.int64), np.zeros(numbers.max_stages + 2, np.int64)


def _choice(value: float, n: int, classes: Ints, first: Ints) -> Choice:
    return Choice(float(value), tuple(int(c) for c in classes[:n]), tuple(int(i) for i in first[:n]))


def _fill(numbers: Numbers, stage: Floats) -> float:
    return min(float(stage[numbers.strides[c], c, numbers.num_layers]) for c in range(len(numbers.counts)))


def _busiest(numbers: Numbers, n: int, classes: Ints, first: Ints) -> float:
    """Busy seconds a step of the busiest stage."""
    end, most = numbers.num_layers, 0.0
    for c, i in zip(classes[:n], first[:n], strict=True):
        seconds = numbers.forward[c, :, end] + numbers.backward[c, :, end]
        seconds = seconds - numbers.forward[c, :, i] - numbers.backward[c, :, i] + 2 * numbers.overhead[c]
        most = max(most, float((numbers.num_microbatches - 1) * seconds[0] + seconds[1]))
        end = int(i)
    return most


def _step_limit(numbers: Numbers, value: float) -> float:
    """No plan at least as good takes longer than this."""
    rate = numbers.base_rate + float(numbers.rate.min())
    slack = value - min(0.0, float(numbers.extra_front[-1]))
    return float((slack + 2 * TIE) / rate) if rate > 0 else np.inf
