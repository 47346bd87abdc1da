"""All plans of one job that are worth offering to a scheduler of many jobs.

Theory of operation
-------------------
Devices are counted by class of interchangeable ones, since a scheduler takes devices from pools. A multiset of devices
is worth offering if its best plan is faster than the best plan on every part of it: then no other plan holds no more
devices of any class, costs no more an hour and is as fast. (Comparing only numbers of devices would leave a second job
nothing to run on when the fastest device is taken.)

Multisets are visited by their number of devices; where there are too many, those of a geometric ladder
(:mod:`ignite_scheduler.planner.pareto.ladder`). Each is solved as a small problem of its own that only looks for plans
below what its parts already reach (:mod:`ignite_scheduler.planner.pareto.offers`). Both the number of multisets and the
work on each are bounded, by counts and never by seconds.

Where the request permits stages of several devices or memory actions, the best chain of groups on each multiset that is
offered so far, and on a ladder up to all devices, joins them.

*What was solved is kept.* The answer for a multiset depends on the job's figures, on the figures and links of its
devices and on what its parts reach, and on nothing else: not on their ids, nor on what else the cluster holds. So a
catalogue that is handed back in is reused entry by entry when devices come or go, and the new one is the same as if it
had been made from nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from ignite_scheduler.cost import Assignment
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.iteration import UNBOUNDED
from ignite_scheduler.model import Infeasible, Job, Plan
from ignite_scheduler.planner.answers import no_chain, no_plan, not_found
from ignite_scheduler.planner.build import bound_of, built
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.pareto.canonical import Key, keyed, looks_of, renamed, slots
from ignite_scheduler.planner.pareto.grouped import allowed_groups
from ignite_scheduler.planner.pareto.ladder import multisets
from ignite_scheduler.planner.pareto.multisets import Counts
from ignite_scheduler.planner.pareto.offers import Asked, Solved, Solver
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.tree import TIE

MAX_SETS: Final = 512
"""Multisets looked at."""

MAX_PLANS: Final = 64
"""Plans returned at most: the fastest, then those with the fewest devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Plans on different multisets of devices, none of them dominated, the fastest first; and what was solved for them.

    A plan is left out if a plan on a part of its devices is as fast. Each is complete, on the devices of its classes
    with the smallest ids; its bound speaks of plans on exactly the same classes of devices. Reasons for unused
    devices and alternatives are left out.

    Parameters
    ----------
    job, calibration
        What the plans were made for.
    asked
        What the solved multisets are answers to.
    solved, grouped
        Multiset → its answer among straight pipelines and among chains of groups, to be reused by :func:`catalogued`.
    made
        The plans by multiset and choice, to be taken over by :func:`catalogued` for the same job.
    work
        Pipelines timed for this one, what was reused not counted.
    """

    plans: tuple[Plan, ...]
    job: Job
    calibration: Calibration | None
    asked: Asked
    solved: Mapping[Key, Solved] = field(repr=False)
    grouped: Mapping[Key, Solved] = field(repr=False)
    made: Mapping[Choice, Plan] = field(repr=False)
    work: int


class Choice(NamedTuple):
    """A choice on devices: the figures and links of its multiset, the assignment, and what is proven of it."""

    key: Key
    assignment: Assignment
    bound: float


class Offer(NamedTuple):
    """A multiset, its classes in the order of its key, and its answer."""

    counts: Counts
    key: Key
    order: tuple[int, ...]
    solved: Solved


def catalogue(problem: Problem) -> tuple[Plan, ...] | Infeasible:
    """The plans of :func:`catalogued`.

    Raises
    ------
    InputError, NotFoundError
        As :func:`ignite_scheduler.planner.plan`.
    """
    found = catalogued(problem)
    return found if isinstance(found, Infeasible) else found.plans


def catalogued(problem: Problem, known: Catalogue | None = None) -> Catalogue | Infeasible:
    """The catalogue of a job, or why it has no plan.

    Parameters
    ----------
    known
        A catalogue of the same job on other devices: what was solved for it is reused. One of another job is no use
        and does no harm.

    Raises
    ------
    InputError, NotFoundError
        As :func:`ignite_scheduler.planner.plan`.
    """
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return setup
    asked = Asked.of(problem)
    earlier = known if known is not None and known.asked == asked else None
    book = _Book(setup, earlier.solved if earlier else {}, earlier.grouped if earlier else {})
    offers = _straight(book) if setup.request.straight else []
    if not setup.request.only_straight:
        offers = _grouped(book, offers)
    if not offers and setup.classes.wide:
        return not_found(setup.classes)
    if not offers and not setup.request.only_straight:
        return no_chain(setup.request)
    if not offers:
        return no_plan(problem, setup.classes, setup.model, setup.permit, setup.families)
    made = _plans(setup, _kept(offers), earlier.made if earlier and _may_take_over(setup, earlier) else {})
    order = sorted(made.values(), key=lambda plan: (plan.predicted.step, len(plan.device_ids), plan.device_ids))
    return Catalogue(
        plans=tuple(order),
        job=problem.job,
        calibration=problem.calibration,
        asked=asked,
        solved=MappingProxyType(book.solved),
        grouped=MappingProxyType(book.grouped),
        made=MappingProxyType(made),
        work=book.solver.work,
    )


class _Book:
    """Answers by multiset, those of an earlier catalogue first."""

    def __init__(self, setup: Setup, solved: Mapping[Key, Solved], grouped: Mapping[Key, Solved]) -> None:
        self.setup, self.solver = setup, Solver(setup)
        self.looks = looks_of(setup.classes)
        self.solved, self.grouped = dict(solved), dict(grouped)

    def straight(self, counts: Counts, to_beat: float) -> Offer:
        """The best straight pipeline on these devices below ``to_beat``."""
        key, order = keyed(self.setup.classes, self.looks, counts)
        answer = self.solved.get(key)
        if answer is None or answer.to_beat != to_beat:
            answer = self.solved[key] = self.solver.solve(counts, order, to_beat)
        return Offer(counts, key, order, answer)

    def groups(self, counts: Counts) -> Offer:
        """The best chain of groups on these devices."""
        key, order = keyed(self.setup.classes, self.looks, counts)
        if key not in self.grouped:
            self.grouped[key] = self.solver.solve_groups(counts, order)
        return Offer(counts, key, order, self.grouped[key])


def _straight(book: _Book) -> list[Offer]:
    """The best straight pipeline of every multiset that is faster than those of all its parts."""
    offers: list[Offer] = []
    for counts in multisets(book.setup, book.looks, MAX_SETS):
        parts = [offer.solved.value for offer in offers if _within(offer.counts, counts)]
        offer = book.straight(counts, min(parts, default=math.inf))
        if offer.solved.assignment is not None:
            offers.append(offer)
    return offers


def _grouped(book: _Book, straight: list[Offer]) -> list[Offer]:
    """The best chains of groups on the multisets that are offered, and on those of a ladder up to all devices."""
    whole = replace(book.setup, permit=book.setup.permit._replace(allowed=allowed_groups(book.setup)))
    wanted = {offer.counts for offer in _kept(straight)} | set(multisets(whole, book.looks, MAX_PLANS))
    known = {offer.counts: offer for offer in straight}
    found = []
    for counts in sorted(wanted, key=lambda counts: (sum(counts), counts)):
        offer = book.groups(counts)
        plain = known.get(counts)
        if plain is not None and plain.solved.value < offer.solved.value - TIE:  # its bound is of straight plans only
            offer = plain._replace(solved=plain.solved._replace(bound=offer.solved.bound))
        if offer.solved.assignment is not None:
            found.append(offer)
    return found


def _within(part: Counts, whole: Counts) -> bool:
    return all(a <= b for a, b in zip(part, whole, strict=True))


def _kept(offers: list[Offer]) -> list[Offer]:
    """The fastest and then the smallest of the offers that none of their parts reaches."""
    best: list[Offer] = []
    for offer in sorted(offers, key=lambda offer: (sum(offer.counts), offer.counts)):  # parts come before the whole
        reach = [other.solved.value for other in best if _within(other.counts, offer.counts)]
        if offer.solved.value < min(reach, default=math.inf) - TIE:
            best.append(offer)
    best.sort(key=lambda offer: (offer.solved.value, sum(offer.counts), offer.counts))
    return best[:1] + sorted(best[1:], key=lambda offer: sum(offer.counts))[: MAX_PLANS - 1]


def _may_take_over(setup: Setup, known: Catalogue) -> bool:
    """Whether plans of the earlier catalogue are what would be made again: nothing outside their devices is in them."""
    problem = setup.problem
    same = (problem.job, problem.calibration) == (known.job, known.calibration)
    return same and problem.objective == "time" and not setup.classes.contended


def _plans(setup: Setup, offers: list[Offer], earlier: Mapping[Choice, Plan]) -> dict[Choice, Plan]:
    """The plans of the offers, those that were made earlier as they are."""
    made = {}
    for offer in offers:
        solved = offer.solved
        assert solved.assignment is not None
        assignment = renamed(solved.assignment, slots(setup.classes, offer.order, offer.counts))
        choice = Choice(offer.key, assignment, 0.0 if setup.narrowed else solved.bound)
        if choice in earlier:
            made[choice] = earlier[choice]
            continue
        bare = built(setup.problem, assignment, UNBOUNDED)
        found = Found(best=assignment, value=solved.value, bound=choice.bound, method=solved.method)
        made[choice] = replace(bare, bound=bound_of(setup.request, found, bare.predicted.step))
    return made
