"""Which runs of layers fit which groups: at once, only with shifted shares or memory actions, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.costs import Costs, Groups
from ignite_scheduler.planner.groups.stage import NO_FIT, cheapest, last_share
from ignite_scheduler.planner.kernel import Floats, Ints

MANY_RUNS: Final = 60_000
"""More runs of layers than these to be fitted into memory are looked through by tables before."""

Reachable = Callable[[npt.NDArray[np.int32]], npt.NDArray[np.bool_]]
Statuses = tuple[npt.NDArray[np.int32], Ints, Floats, Ints]


class Limit(NamedTuple):
    """What a chain whose step ends in time is not above: ``busy`` seconds a microbatch of each stage, ``step`` seconds.

    ``total`` are the samples of the step, ``counts`` [class] the devices.
    """

    busy: float
    step: float
    total: int
    counts: Ints


def status_of(
    costs: Costs, groups: Groups, may_cut: npt.NDArray[np.bool_], held: Ints, limit: Limit, reachable: Reachable
) -> Statuses:
    """Status, lowest layers that fit, and seconds and shares of what fits only with shifted shares or actions.

    Of a special entry the last three figures are its group, end and first layer until they are completed. Runs of
    layers with which no step ends within ``limit``, whatever the shares, are left out among these. Where many are left
    ``reachable`` says of which of them a step may end in time: it is given 0 for all that there are times for, else −1.
    """
    size, width = costs.num_layers, groups.members.shape[1]
    status = np.zeros((len(groups.size), len(held), size + 1, size + 1), dtype=np.int32)
    known = np.full((len(groups.size), 1, size + 1, size + 1), NO_FIT, dtype=np.int32)
    cuts = may_cut[:, None] & may_cut[None, :] & np.tri(size + 1, k=-1, dtype=bool)
    free = bool(costs.recompute[0] and costs.shard[0] and costs.offload[0])
    for g, count in enumerate(groups.size):
        timed = cuts & (groups.base[g, 0] > 0)
        for c in groups.members[g, :count]:
            timed = timed & (np.arange(size + 1)[None, :] >= costs.barrier[c][:, None])
        known[g, 0][timed] = 0
        useful = _useful(costs, groups.members[g, :count], limit) if limit.step < np.inf else timed
        for row, in_flight in enumerate(held):
            fits = timed & free & _fits(costs, groups, g, int(in_flight))
            status[g, row] = np.where(fits, 0, np.where(timed & useful, 1, NO_FIT))
    special, shares = np.zeros((1, 7)), np.zeros((1, 2, width), dtype=np.int64)
    if limit.step < np.inf and np.count_nonzero(status > 0) > MANY_RUNS:
        status[(status > 0) & ~reachable(known)[:, None]] = NO_FIT
    if (status > 0).any():
        special, shares = _act(costs, groups, held, int(limit.counts.sum()), status)
    return status, lowest_of(status), special, shares


def lowest_of(status: npt.NDArray[np.int32]) -> Ints:
    """[group, row, end]: first layer from which anything fits, the end itself where nothing does."""
    first = np.arange(status.shape[-1], dtype=np.int64)
    found = np.where(status >= 0, first, first[-1]).min(axis=-1)
    return np.asarray(np.minimum(found, first), dtype=np.int64)


def _useful(costs: Costs, members: Ints, limit: Limit) -> npt.NDArray[np.bool_]:
    """[end, first]: whether neither the run of layers takes the members too long, nor the rest all other devices.

    In a step of s seconds a device does at most its pace · s of the least work, see :func:`least_work`.
    """
    least, pace = least_work(costs)
    until = np.concatenate(([0.0], np.cumsum(least)))
    rest = (until[-1] - until[:, None] + until[None, :]) * limit.total
    room = max(0.0, float(pace @ limit.counts) - float(pace[members].sum())) * limit.step
    return np.asarray((_least_busy(costs, members) <= limit.busy) & (rest <= room + 1e-9 * (limit.step + rest)))


def least_work(costs: Costs) -> tuple[Floats, Floats]:
    """By layer the least seconds a sample on any class, and by class how much of these it does in a second at most.

    The seconds a sample are the least over all shares, forward and backward. A class's pace is the largest ratio, over
    layers, of the least seconds of all classes to its own.
    """
    u = costs.samples
    seconds = np.diff(costs.forward[:, 1 : u + 1] + costs.backward[:, 1 : u + 1], axis=2)
    each = (seconds / np.arange(1, u + 1)[None, :, None]).min(axis=1)
    each = np.where(np.diff(costs.barrier, axis=1) > 0, np.inf, each)
    least = each.min(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return least, np.where(least > 0, least / each, 0.0).max(axis=1)


def _least_busy(costs: Costs, members: Ints) -> Floats:
    """[end, first]: seconds of a forward and a backward that no shares go below.

    Each replica takes at least ρ a sample, its least seconds a sample over all shares; so the slowest takes at least
    the samples ÷ Σ 1/ρ.
    """
    speed = np.zeros((costs.num_layers + 1, costs.num_layers + 1))
    for c in members:
        with np.errstate(divide="ignore"):
            speed += 1.0 / per_sample(costs, costs.forward[c] + costs.backward[c])
    with np.errstate(divide="ignore"):
        return np.asarray(costs.samples / speed, dtype=np.float64)


def per_sample(costs: Costs, rows: Floats) -> Floats:
    """[end, first]: the least seconds a sample, over all shares, by prefix sums [samples, layer] of seconds."""
    each = rows[1 : costs.samples + 1] / np.arange(1, costs.samples + 1)[:, None]
    least = np.concatenate(([0.0], np.cumsum(np.diff(each, axis=1).min(axis=0))))
    return np.asarray(np.maximum(least[:, None] - least[None, :], 0.0))


def _fits(costs: Costs, groups: Groups, g: int, in_flight: int) -> npt.NDArray[np.bool_]:
    """[end, first]: whether the base shares fit every replica without actions."""
    limited = [r for r in range(groups.size[g]) if costs.memory[groups.members[g, r]] < np.inf]
    size = costs.num_layers + 1
    fits = np.ones((size, size), dtype=bool)
    if not limited:
        return fits
    held, kept, peak, space = run_bytes(costs)
    for r in limited:
        grown = groups.base[g, r] * (in_flight * kept + peak)
        need = (held * (costs.working + costs.state) + costs.scale * (grown + space)) * costs.factor
        fits &= need <= costs.memory[groups.members[g, r]]
    return fits


def run_bytes(costs: Costs) -> tuple[Floats, Floats, Floats, Floats]:
    """[end, first] of every run of layers: parameters, kept and momentary bytes a sample, workspace."""
    size = costs.num_layers + 1
    kept = costs.activations[:, None] - costs.activations[None, :] + costs.carried[:, None]
    peak = costs.peak.T if len(costs.peak) > 1 else np.zeros((size, size))
    space = costs.workspace.T if len(costs.workspace) > 1 else np.zeros((size, size))
    return held_matrix(costs), kept, peak, space


def held_matrix(costs: Costs) -> Floats:
    """[end, first]: parameter bytes of a run of layers in the profile's precision; tied ones within count once."""
    held = costs.parameters[:, None] - costs.parameters[None, :]
    size = costs.num_layers
    own = np.diff(costs.parameters)
    for group in costs.tied:
        indices = sorted(int(index) for index in group if index >= 0)
        for j in range(1, size + 1):
            for i in range(j):
                inside = [own[index] for index in indices if i <= index < j]
                if len(inside) > 1:
                    held[j, i] -= (len(inside) - 1) * min(inside)
    return np.asarray(held, dtype=np.float64)


@compiled
def _act(costs: Any, groups: Any, held: Any, num_devices: int, status: Any) -> Any:
    """Exchange every 1 in ``status`` for the number of a special entry, or NO_FIT; the entries' seconds and shares."""
    count = 1
    for value in status.flat:
        count += value > 0
    special = np.zeros((count, 7))
    shares = np.zeros((count, 2, groups.members.shape[1]), np.int64)
    chosen = np.zeros(costs.num_layers, np.bool_)
    found = 1
    for g in range(len(groups.size)):
        for row in range(len(held)):
            for j in range(1, costs.num_layers + 1):
                for i in range(j - 1, -1, -1):
                    if status[g, row, j, i] <= 0:
                        continue
                    # with fewer in flight it did not fit, or behind it there are not devices for so many stages
                    if row > 0 and (status[g, row - 1, j, i] < 0 or row > num_devices - groups.size[g]):
                        status[g, row, j, i] = NO_FIT
                        continue
                    code = cheapest(costs, groups.members[g], groups.size[g], groups.base[g], groups.order[g], i, j,
                                    held[row], chosen, shares[found, 0], special[found])  # fmt: skip
                    if code == NO_FIT:
                        status[g, row, j, i] = NO_FIT
                        continue
                    for r in range(groups.size[g]):
                        shares[found, 1, r] = last_share(costs, shares[found, 0], groups.size[g], r)
                    special[found, 4], special[found, 5], special[found, 6] = g, j, i
                    status[g, row, j, i] = found
                    found += 1
    return special[:found].copy(), shares[:found].copy()
