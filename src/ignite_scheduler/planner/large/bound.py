"""A step time that no chain over a wide cluster goes below: priced stages, by family and by pace of the longest stage.

Theory
------
Let a chain have stages s = 1 … S, w_s = f_s + b_s the seconds of a forward and a backward, c_s those of the link behind
stage s in one direction, and F = Σ w + 2 Σ c the fill. Of any stage s let P be the part of F in front of it (stages and
links), D the part behind it, so that F = P + w_s + D, and K = S − s + 1 its place from the end. All M microbatches are
alike. Under 1F1B stage s does min(M, K) forwards before its first backward, and as many backwards after its last
forward. Its first forward begins no earlier than the forward part of P, and after its last backward comes the backward
part of P. Between the two it is busy for M·w_s; the first backward begins no earlier than f_s + D after the first
forward began, and the last backward ends no earlier than D + b_s after the last forward ended. Hence

1. *work*: T ≥ P + M·w_s = F − D + (M − 1)·w_s;
2. *first turn*: T ≥ P + f_s + D + (M − min(M, K))·f_s + M·b_s ≥ F + (M − 1)·w_s − (K − 1)·f_s, since after the first
   backward has begun all backwards and the forwards that were not yet done are still to do;
3. *both turns*, where M > K: T ≥ P + (f_s + D) + (M − K)·w_s + (D + b_s) = F + D + (M − K)·w_s, since the first
   backward begins before the last forward ends and M − K forwards and M − K backwards lie in between.

Under GPipe T ≥ F + (M − 1)·w_s: the forwards of all microbatches pass s before the last one goes on, and so do the
backwards. A smaller last microbatch is left out (what is done less takes no longer), or all are taken as small as it.

Take s to be the longest stage, with v ≤ w_s ≤ V. A mixture of 1–3 with weights that sum to 1 is linear in the stages
once w_s is replaced by v where it counts for the chain and by V where it counts against it: a sum over the stages in
front, s itself and the stages behind. Prices π ≥ 0 per device of each kind are added and Σ N·π taken off, which is
valid because a chain holds at most N devices of each kind (Lagrangian relaxation: Everett, "Generalized Lagrange
multiplier method", Operations Research 11, 1963). What is left is a shortest path over the layers
(:func:`.route.cheapest`), with the cheapest group for each run of layers and the links of :mod:`.hops` between them.
Where K may reach M two cases are told apart by a price per stage: K ≤ M − 1 and K ≥ M, in which only 1 and 2 are used.

The cheapest group. Let all devices d of a group with shares u_d be done within w; kind k holds at most n_k(w) samples
in that time. Σ n_k(d)(w) ≥ u, so that for the device with the least price per such sample Σ π_d ≥ u · π_k ÷ n_k(w), and
w is at least what it takes for n_k(w) samples. So it is enough to look at one kind and number of samples n at a time:
seconds of n samples, u ÷ n devices, fractions allowed. The group has at least u ÷ max_k n_k(w) devices, and as
T ≥ M·w_s + its all-reduce, groups whose sum exceeds a known step may be left out. Above a few samples, n is real.

Spans of v … V are halved, lowest bound first, until the work is spent or nothing below the known step is left.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.large.dual import Mode, Prices, Span, raised
from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.offers import offers_of
from ignite_scheduler.planner.large.priced import Offers, Options, options_of
from ignite_scheduler.planner.problem import Family

FIRST_STEPS: Final = 8
"""Steps towards better prices when all paces of a family are looked at together."""
STEPS: Final = 32
"""Steps towards better prices when a part of them is looked at: with fewer the prices of eight kinds are far off."""
PROGRAM: Final = 20_000
"""What the linear program of one step takes beside, in options."""
NARROW: Final = 1.002
"""Spans of paces as narrow as this are not halved."""
ROUNDING: Final = 1e-9
"""Share by which sums of seconds may be off, which the bound gives away."""
MOST_LAYERS: Final = 600
"""Models of more layers get the bound by work alone."""


_NOTHING: Final = np.zeros(0)
_NONE: Final = np.zeros(0, np.int64)
NOT_LISTED: Final = Options(_NONE.reshape(0, 0), _NONE, _NONE, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
"""Of a span that was not looked at yet."""


class Open(NamedTuple):
    """A span that may hold a better chain, lowest bound first; ``number`` decides between equal ones."""

    bound: float
    number: int
    span: Span
    prices: Prices


def least_step(ground: Ground, families: tuple[Family, ...], known: float, work: int) -> tuple[float, int]:
    """A step that no chain of the families goes below, ``known`` at most, and the work spent on it.

    Parameters
    ----------
    known
        The step of a plan; infinite where none is known.
    work
        Options of stages to look at.
    """
    spans: list[Open] = []
    offers: dict[tuple[int, int], Offers] = {}
    lowest, spent = known, 0
    for family in families:
        for start in _first_spans(ground, family, known, offers):
            if ground.rows.num_layers > MOST_LAYERS or not math.isfinite(known):
                lowest = min(lowest, start.low * start.offers.num_microbatches)
            else:
                spans.append(Open(start.low * start.offers.num_microbatches, len(spans), start, _guess(start, known)))
    heapq.heapify(spans)
    number = len(spans)
    while spans and spent < work and spans[0].bound < lowest:
        entry = heapq.heappop(spans)
        if entry.span.high / entry.span.low < NARROW and entry.number >= number:
            heapq.heappush(spans, entry)
            break
        whole = entry.span.options is NOT_LISTED
        for low, high in _parts(entry, whole=whole):
            options = options_of(entry.span.offers, high, known)
            spent += len(options.kind)
            span = replace(entry.span, options=options, low=low, high=high)
            value, prices, steps = raised(span, entry.prices, known, FIRST_STEPS if whole else STEPS)
            spent += steps * (PROGRAM + len(options.kind) + ground.rows.num_layers**2)
            value = max(value, entry.bound, low * span.offers.num_microbatches)
            if value < known:
                number += 1
                heapq.heappush(spans, Open(value, number, span, prices))
    bound = min(lowest, spans[0].bound) if spans else lowest
    return bound * (1 - ROUNDING), spent


def _parts(entry: Open, *, whole: bool) -> Iterator[tuple[float, float]]:
    low, high = entry.span.low, entry.span.high
    if whole:
        yield low, high
        return
    middle = math.sqrt(low * high)
    yield low, middle
    yield middle, high


def _first_spans(ground: Ground, family: Family, known: float, offers: dict[tuple[int, int], Offers]) -> Iterator[Span]:
    """All paces of a family, in one span for each mode; none where the work alone takes longer than the known step."""
    keys = [(family.samples, family.num_microbatches)]
    if family.last_samples != family.samples:
        keys = [(family.samples, family.num_microbatches - 1)]
        if _rising(ground, family.samples):
            keys.append((family.last_samples, family.num_microbatches))
    for key in keys:
        if key not in offers:
            offers[key] = offers_of(ground, *key)
    key = max(keys, key=lambda key: (key[1] * _pace(ground, offers[key]), key))
    pace, microbatches = _pace(ground, offers[key]), key[1]
    high = known / microbatches if math.isfinite(known) else math.inf
    if not pace < high:
        return
    modes: tuple[Mode, ...] = ("gpipe",)
    if family.schedule != "gpipe":
        longest = min(ground.request.max_stages, ground.rows.num_layers)
        modes = ("short", "long") if longest >= microbatches else ("short",)
    for mode in modes:
        yield Span(
            offers=offers[key], options=NOT_LISTED, counts=ground.world.kind_counts, mode=mode, low=pace, high=high
        )


def _rising(ground: Ground, samples: int) -> bool:
    """Whether no layer takes less time for more samples."""
    if samples >= ground.costs.forward.shape[1]:
        return False
    parts = (np.diff(ground.costs.forward[:, 1 : samples + 1]), np.diff(ground.costs.backward[:, 1 : samples + 1]))
    return all(bool((np.diff(part, axis=1) >= -1e-12 * part.max(initial=0.0)).all()) for part in parts)


def _pace(ground: Ground, offers: Offers) -> float:
    """Seconds a microbatch that the longest stage takes at least: all devices share all work, cut anywhere."""
    whole = offers.rate[:, -1]
    speed = 1 / np.where(whole > 0, whole, np.inf)
    prices = speed / max(float(ground.world.kind_counts @ speed), 1e-300)
    each = np.where(np.isfinite(prices)[:, None], prices[:, None] * np.diff(offers.rate, axis=1), np.inf)
    return max(float(offers.samples * each.min(axis=0).sum()), 1e-12)


def _guess(span: Span, known: float) -> Prices:
    """Prices to begin with: in proportion to speed."""
    whole = span.offers.rate[:, -1]
    speed = span.counts / np.where(whole > 0, whole, np.inf)
    turn = 0.0 if span.mode == "gpipe" else 0.7
    return Prices(kinds=0.3 * known * speed / max(float(speed.sum()), 1e-300), turns=0.0, turn=turn, stage=0.0)
