"""One family in numbers: what every run of layers takes on every group, whether it fits, and what links take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.cost.replicas import last_shares
from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.costs import Costs, Groups, for_family, layer_order
from ignite_scheduler.planner.groups.layout import Layout
from ignite_scheduler.planner.groups.memory import Limit, held_matrix, lowest_of, status_of
from ignite_scheduler.planner.groups.reach import reachable
from ignite_scheduler.planner.groups.stage import share_out
from ignite_scheduler.planner.instance import Model
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.orders import orders
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.solve import Goal

FORWARD, BACKWARD, LAST_FORWARD, LAST_BACKWARD, EXTRA, RING, UPDATE = range(7)
"""What is known of a stage: seconds of a full and of the last microbatch, what its busy seconds add to the objective,
all-reduce over the replicas, and the slowest replica's update."""
NUM_FIGURES: Final = 7


class Field(NamedTuple):
    """A family over a layout, for the compiled functions.

    Parameters
    ----------
    members, size, usage
        By group, see :class:`.costs.Groups` and :class:`.layout.Layout`.
    shares
        [group, full or last, replica]: base shares; all 0 where the group is not used.
    pair_start, pair_group, pair_index, link
        See :class:`.layout.Pairs`.
    allowed, held
        [multiset]: whether a finished plan may hold it, and how many devices it has.
    ends
        [depth]: whether a pipeline may have that many stages; depths from 0, the last for all beyond.
    row
        [stages to the end]: row of ``status``, by microbatches in flight.
    figures
        [group, end, first, :data:`NUM_FIGURES`] with base shares.
    status
        [group, row, end, first]: 0 = fits with base shares and without actions, −1 = does not fit at all, else the
        entry of ``special`` [entry, figure] and ``special_shares`` [entry, full or last, replica].
    lowest
        [group, row, end]: first layer from which anything fits.
    hops
        [link, there or back or back of the last microbatch, cut]: seconds that transfers over the cut take at least.
    rate, extra
        [group]: the objective is (``base_rate`` + Σ rate) · step + Σ extra · all-reduces + Σ EXTRA.
    single_bytes … order_microbatch
        As in :class:`ignite_scheduler.planner.kernel.Numbers`, whose functions take a field too.
    """

    num_layers: int
    num_microbatches: int
    max_stages: int
    even: bool
    shrinking: bool
    gpipe: bool
    base_rate: float
    members: Ints
    size: Ints
    usage: Ints
    shares: Ints
    pair_start: Ints
    pair_group: Ints
    pair_index: Ints
    link: Ints
    allowed: npt.NDArray[np.bool_]
    held: Ints
    ends: npt.NDArray[np.bool_]
    row: Ints
    may_cut: npt.NDArray[np.bool_]
    figures: Floats
    status: npt.NDArray[np.int32]
    lowest: Ints
    special: Floats
    special_shares: Ints
    hops: Floats
    rate: Floats
    extra: Floats
    latency: Floats
    per_byte: Floats
    single_bytes: Floats
    tensors: Ints
    readers: Ints
    reader_bytes: Floats
    tied: Ints
    tied_bytes: Floats
    order_start: Ints
    order_stage: npt.NDArray[np.int32]
    order_kind: npt.NDArray[np.int8]
    order_microbatch: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A family's field, and the costs and groups with shares that it was made from."""

    family: Family
    field: Field
    costs: Costs
    groups: Groups


def make_field(
    request: Request, layout: Layout, model: Model, costs: Costs, family: Family, goal: Goal, most: float = np.inf
) -> Made:
    """The family's field, for chains whose step is below ``most``."""
    microbatches = family.num_microbatches
    limit = Limit(  # a stage is busy for all microbatches but the last, smaller one at least
        busy=most / max(1, microbatches - (family.samples != family.last_samples)),
        step=most,
        total=(microbatches - 1) * family.samples + family.last_samples,
        counts=layout.classes.counts,
    )
    costs = for_family(costs, family.samples, family.last_samples)
    groups = dealt(layout, costs)
    shares = np.stack([groups.base, _last(groups, family.last_samples)], axis=1)
    may_cut = np.zeros(model.num_layers + 1, dtype=np.bool_)
    may_cut[[0, *request.cuts, model.num_layers]] = True
    held = [in_flight(family, n) for n in range(1, request.max_stages + 1)]
    rows = np.unique(held)
    figures = figures_of(costs, groups, shares, goal, microbatches)
    order = orders(family.schedule, request.max_stages, family.num_microbatches)
    u = costs.samples
    growing = [np.diff(np.diff(part[:, : u + 1], axis=1), axis=2) >= -1e-15 for part in (costs.forward, costs.backward)]
    classes = layout.classes
    field = Field(
        num_layers=model.num_layers,
        num_microbatches=microbatches,
        max_stages=request.max_stages,
        even=family.samples == family.last_samples,
        shrinking=all(bool(part.all()) for part in growing),
        gpipe=family.schedule == "gpipe",
        base_rate=goal.base_rate,
        members=groups.members,
        size=groups.size,
        usage=layout.usage,
        shares=shares,
        pair_start=layout.pairs.start,
        pair_group=layout.pairs.group,
        pair_index=layout.pairs.number,
        link=layout.pairs.link,
        allowed=layout.allowed,
        held=layout.held,
        ends=np.ones(1, dtype=np.bool_),
        row=np.searchsorted(rows, [rows[0], *held]) if len(rows) > 1 else np.zeros(len(held) + 1, dtype=np.int64),
        may_cut=may_cut,
        figures=figures,
        status=np.zeros((0, 0, 0, 0), dtype=np.int32),
        lowest=np.zeros((0, 0, 0), dtype=np.int64),
        special=np.zeros((1, NUM_FIGURES)),
        special_shares=np.zeros((1, *shares.shape[1:]), dtype=np.int64),
        hops=np.zeros((0, 3, 0)),
        rate=_summed(groups, goal.rate),
        extra=_summed(groups, goal.extra),
        latency=classes.latency,
        per_byte=classes.per_byte,
        single_bytes=model.single_bytes,
        tensors=model.tensors,
        readers=model.readers,
        reader_bytes=model.reader_bytes,
        tied=model.tied,
        tied_bytes=model.tied_bytes,
        order_start=order.start,
        order_stage=order.stage,
        order_kind=order.kind,
        order_microbatch=order.microbatch,
    )
    field = Field._make(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in field)

    def in_time(known: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        every = np.ones(len(groups.size), dtype=np.bool_)
        hops = _hops(layout, model, groups, shares, every, family)
        return reachable(field._replace(status=known, lowest=lowest_of(known), hops=hops), costs, groups, most)

    status, lowest, special, special_shares = status_of(costs, groups, may_cut, rows, limit, in_time)
    _complete(costs, groups, goal, family, special, special_shares, figures)
    counted = request.min_stages > 1 or request.max_stages < min(model.num_layers, int(layout.held.max()))
    depths = request.max_stages if counted else len(rows) if len(special) > 1 or (status < 0).any() else 1
    field = field._replace(
        ends=np.array([not counted or t + 1 >= request.min_stages for t in range(depths)]),
        status=status,
        lowest=lowest,
        special=special,
        special_shares=special_shares,
        hops=_hops(layout, model, groups, shares, _shifting(status), family),
    )
    return Made(family=family, field=field, costs=costs, groups=groups)


def in_flight(family: Family, n: int) -> int:
    """Microbatches that the n-th stage from the end holds at once."""
    return family.num_microbatches if family.schedule == "gpipe" else min(family.num_microbatches, n)


def _summed(groups: Groups, by_class: Floats) -> Floats:
    padded = np.append(by_class, 0.0)  # −1 stands behind the last member
    return np.asarray(padded[groups.members].sum(axis=1), dtype=np.float64)


def dealt(layout: Layout, costs: Costs) -> Groups:
    """The groups with base shares for the family, all 0 where there are more members than samples.

    With them comes the order in which layers are recomputed to save bytes.
    """
    groups = layout.groups
    base = np.zeros_like(groups.base)
    limits = np.full(base.shape[1], costs.samples)
    for g, size in enumerate(groups.size):
        if size <= costs.samples:
            share_out(costs, groups.members[g], size, limits, 1, base[g])
    order = np.zeros_like(groups.order)
    if costs.recompute[1]:
        for g, size in enumerate(groups.size):
            order[g] = layer_order(costs, groups.members[g, :size], base[g, :size])
    return groups._replace(base=base, order=order)


def _last(groups: Groups, samples: int) -> Ints:
    found = np.zeros_like(groups.base)
    for g, size in enumerate(groups.size):
        if groups.base[g, 0]:
            found[g, :size] = last_shares(groups.base[g, :size].tolist(), samples)
    return found


def figures_of(costs: Costs, groups: Groups, shares: Ints, goal: Goal, microbatches: int) -> Floats:
    """[group, end, first, figure] with base shares. O(groups · replicas · layers²)."""
    size = costs.num_layers + 1
    held = held_matrix(costs)
    found = np.zeros((len(groups.size), size, size, NUM_FIGURES))
    for g, count in enumerate(groups.size):
        if groups.base[g, 0] == 0:
            continue
        own = found[g]
        for r in range(count):
            c = groups.members[g, r]
            update = costs.update[c][:, None] - costs.update[c][None, :] + costs.closing[c]
            np.maximum(own[..., UPDATE], update, out=own[..., UPDATE])
            for e, times in ((0, microbatches - 1), (1, 1)):
                s = shares[g, e, r]
                if s == 0:
                    continue
                for part, rows in ((0, costs.forward), (1, costs.backward)):
                    seconds = rows[c, s][:, None] - rows[c, s][None, :] + costs.overhead[c]
                    np.maximum(own[..., 2 * e + part], seconds, out=own[..., 2 * e + part])
                    if goal.extra[c] != 0:
                        own[..., EXTRA] += goal.extra[c] * times * seconds
        own[..., EXTRA] += _spared(costs, groups, g, goal, own[..., UPDATE])
        if count > 1:
            rounds = 2 * (count - 1)
            ring = rounds / count * (held * costs.scale) * groups.ring_per_byte[g] + rounds * groups.ring_latency[g]
            own[..., RING] = ring
    return found


def _spared(costs: Costs, groups: Groups, g: int, goal: Goal, slowest: Any) -> Any:
    """What replicas whose update is shorter than the slowest one's add less to the objective."""
    total = np.zeros_like(slowest)
    for c in groups.members[g, : groups.size[g]]:
        if goal.extra[c] != 0:
            own = costs.update[c][:, None] - costs.update[c][None, :] + costs.closing[c]
            total += goal.extra[c] * (own - slowest)
    return total


def _complete(
    costs: Costs, groups: Groups, goal: Goal, family: Family, special: Floats, shares: Ints, figures: Floats
) -> None:
    """Fill in what special entries have in common with base shares, and what they add to the objective."""
    g, j, i = special[:, [EXTRA, RING, UPDATE]].astype(np.int64).T
    special[:, RING], special[:, UPDATE] = figures[g, j, i, RING], figures[g, j, i, UPDATE]
    special[:, EXTRA] = 0.0
    if not goal.extra.any():
        return
    for r in range(groups.members.shape[1]):
        c = groups.members[g, r]
        weight = np.where(c >= 0, goal.extra[c], 0.0)
        own = costs.update[c, j] - costs.update[c, i] + costs.closing[c]
        special[:, EXTRA] += weight * (own - special[:, UPDATE])
        for e, times in ((0, family.num_microbatches - 1), (1, 1)):
            s = shares[:, e, r]
            for rows in (costs.forward, costs.backward):
                seconds = rows[c, s, j] - rows[c, s, i] + costs.overhead[c]
                special[:, EXTRA] += weight * times * np.where(s > 0, seconds, 0.0)


def _shifting(status: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """[group]: whether some stage on it may have other than base shares."""
    return np.ascontiguousarray((status > 0).any(axis=(1, 2, 3)))


def _hops(
    layout: Layout, model: Model, groups: Groups, shares: Ints, shifting: npt.NDArray[np.bool_], family: Family
) -> Floats:
    classes = layout.classes
    sizes = np.array([family.samples, family.last_samples], dtype=np.int64)
    link = layout.pairs.link
    found: Floats = _fill_hops(
        classes.latency, classes.per_byte, int(link.max()) + 1, link, groups.members, groups.size, shares, shifting,
        sizes, model.once_bytes,
    )  # fmt: skip
    return found


@compiled
def transfer(latency: Any, per_byte: Any, senders: Any, receivers: Any, sent: Any, received: Any, size: float) -> Any:
    """Seconds until every receiver has its samples of a microbatch, and until every sender has its gradients.

    ``senders`` and ``receivers`` are classes of replicas (−1 behind the last), ``sent`` and ``received`` their shares,
    ``size`` bytes a sample. As :func:`ignite_scheduler.cost.group_transfer_seconds`.
    """
    p, q, there, back = 0, 0, 0.0, 0.0
    left, wanted = sent[0], received[0]
    while True:
        common = min(left, wanted)
        if common > 0:
            a, b = senders[p], receivers[q]
            there = max(there, latency[a, b] + common * size * per_byte[a, b])
            back = max(back, latency[b, a] + common * size * per_byte[b, a])
            left -= common
            wanted -= common
        if left == 0:
            p += 1
            if p == len(senders) or senders[p] < 0:
                return there, back
            left = sent[p]
        if wanted == 0:
            q += 1
            if q == len(receivers) or receivers[q] < 0:
                return there, back
            wanted = received[q]


@compiled
def _fill_hops(latency: Any, per_byte: Any, count: int, link: Any, members: Any, size: Any, shares: Any,
               shifting: Any, sizes: Any, once: Any) -> Any:  # fmt: skip
    """Seconds over every cut from group to group: with base shares, and at least so much where shares may shift."""
    hops = np.zeros((count, 3, len(once)))
    for e in range(len(size)):
        for d in range(len(size)):
            k = link[e, d]
            if k < 0 or shares[e, 0, 0] == 0 or shares[d, 0, 0] == 0:
                continue
            if not shifting[e] and not shifting[d]:
                for cut in range(1, len(once)):
                    for last in range(2):
                        there, back = transfer(latency, per_byte, members[e], members[d], shares[e, last],
                                               shares[d, last], once[cut])  # fmt: skip
                        hops[k, 1 + last, cut] = back
                        if last == 0:
                            hops[k, 0, cut] = there
                continue
            pieces = size[e] + size[d] - 1  # so many pairs of replicas talk at most
            for cut in range(1, len(once)):
                least_there, least_back, least_last = np.inf, np.inf, np.inf
                full, rest = -(-sizes[0] // pieces) * once[cut], -(-sizes[1] // pieces) * once[cut]
                for p in range(size[e]):
                    for q in range(size[d]):
                        a, b = members[e, p], members[d, q]
                        least_there = min(least_there, latency[a, b] + full * per_byte[a, b])
                        least_back = min(least_back, latency[b, a] + full * per_byte[b, a])
                        least_last = min(least_last, latency[b, a] + rest * per_byte[b, a])
                hops[k, 0, cut], hops[k, 1, cut], hops[k, 2, cut] = least_there, least_back, least_last
    return hops
