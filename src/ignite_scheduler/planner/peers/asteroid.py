"""Asteroid's planner: unlike devices sorted by memory, cut into groups that share each microbatch by speed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment, balanced_shares
from ignite_scheduler.model import Device
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import run_costs
from ignite_scheduler.planner.peers.placing import chain
from ignite_scheduler.planner.peers.view import View

MOST_STAGES: Final = 16
"""Stages of a plan at most."""

MOST_GROUP: Final = 16
"""Devices of a stage at most."""

SHIFTS: Final = 6
"""Steps on the way from shares by speed to shares by memory that are tried for every run of blocks."""


class Group(NamedTuple):
    """Neighbours in the line of devices, the ways to share a microbatch among them, and their ring."""

    devices: tuple[Device, ...]
    shares: tuple[tuple[int, ...], ...]
    reduce: Floats


def asteroid(view: View) -> tuple[Assignment, ...]:
    """The pipeline of groups of least round latency, built from the last stage to the first.

    Devices stand in a line, the largest memory first, since the first stages hold the most microbatches. With p stages
    behind it, a stage of blocks i…j on a group gives

        Q(i, n, p + 1) = max(M · w + all-reduce, w + 2c + max(Q(j, n', p), M · 2c)),   w = forward + backward

    the warm-up of all stages before the dominant one, its M microbatches, and its all-reduce. Shares are proportional
    to speed, then shifted off devices that would run out of memory.

    References
    ----------
    S. Ye et al., "Asteroid: Resource-Efficient Hybrid Pipeline Parallelism for Collaborative DNN Training on
    Heterogeneous Edge Devices", MobiCom 2024, sections 3.2 and 3.3. Deviations: a stage with p stages behind it holds
    min(M, p + 1) microbatches, those of the 1F1B by which it is judged, instead of up to 2p + 1; the shift goes from
    shares by speed towards shares by memory in a few steps and is settled exactly for the stages chosen; links are
    those of the slowest pair of the two groups; where nothing fits, the plan without memory limits is handed on.
    """
    line = tuple(sorted(view.devices, key=lambda device: (-device.memory, *_place(view, device))))
    found = _search(view, line, limited=True) or _search(view, line, limited=False)
    if found is None:
        return ()
    bounds, groups = found
    shares = [
        _settled(view, group, first, end, len(groups) - at)
        for at, (group, first, end) in enumerate(zip(groups, bounds, bounds[1:], strict=False))
    ]
    return (chain(view, bounds, groups, shares),)


def _place(view: View, device: Device) -> tuple[float, str]:
    return (float(view.seconds(device).total[-1]), device.id)


def _search(
    view: View, line: tuple[Device, ...], *, limited: bool
) -> tuple[tuple[int, ...], list[tuple[Device, ...]]] | None:
    size, total = view.num_blocks + 1, len(line)
    stages = min(total, MOST_STAGES, view.num_blocks, view.request.max_stages)
    value = np.full((stages + 1, total + 1, size), np.inf)  # [stages, devices from the end, first block]
    value[0, 0, -1] = 0.0
    came = np.zeros((*value.shape, 2), dtype=np.int64)
    groups = {
        (at, count): _group(view, line[at : at + count])
        for at in range(total)
        for count in range(1, min(total - at, view.most_replicas, MOST_GROUP) + 1)
    }
    for (at, count), group in sorted(groups.items(), key=lambda entry: -entry[0][0]):
        used = total - at
        behind_it = total - at - count
        for p in range(stages):
            behind = value[p, behind_it]
            if not np.isfinite(behind).any():
                continue
            work = _work(view, group, p + 1, limited=limited)
            own = view.num_microbatches * work + group.reduce
            link = _link(view, group, line[at + count]) if behind_it else np.zeros(size)
            rest = np.maximum(behind, view.num_microbatches * 2 * link) + 2 * link
            joined = np.maximum(own, work + np.where(np.isfinite(behind), rest, np.inf)[None, :])
            least = joined.min(axis=1)
            better = least < value[p + 1, used]
            value[p + 1, used, better] = least[better]
            came[p + 1, used, better, 0] = joined.argmin(axis=1)[better]
            came[p + 1, used, better, 1] = count
    ends = value[1:, 1:, 0]  # trailing devices may be all that is used
    if not np.isfinite(ends).any():
        return None
    p, used = (int(place) + 1 for place in np.unravel_index(int(ends.argmin()), ends.shape))
    first, bounds, chosen = 0, [0], []
    while p > 0:
        end, count = (int(entry) for entry in came[p, used, first])
        chosen.append(line[total - used : total - used + count])
        bounds.append(end)
        first, used, p = end, used - count, p - 1
    return tuple(bounds), chosen


def _link(view: View, group: Group, behind: Device) -> Floats:
    """Seconds one way over each cut from the group to the device behind it in the line, over the slowest link."""
    return view.between(group.devices, (behind,)).seconds(view.cuts / len(group.devices))


def _group(view: View, devices: tuple[Device, ...]) -> Group:
    return Group(devices, _ways(view, devices), view.reduce(devices))


def _ways(view: View, devices: tuple[Device, ...]) -> tuple[tuple[int, ...], ...]:
    """Shares from those by speed to those by memory, at least one sample each."""
    work = [float(view.seconds(device).total[-1]) for device in devices]
    speed = np.array([1.0 / seconds if seconds > 0 else 1.0 for seconds in work])
    memory = np.array([device.memory for device in devices])
    if not np.isfinite(memory).all():
        return (_dealt(view.samples, speed),)
    ways = np.linspace(0.0, 1.0, SHIFTS)
    mixed = [(1 - way) * speed / speed.sum() + way * memory / memory.sum() for way in ways]
    return tuple(dict.fromkeys(_dealt(view.samples, weight) for weight in mixed))


def _dealt(samples: int, weight: Floats) -> tuple[int, ...]:
    """Whole shares proportional to ``weight``, each at least 1, by largest remainder."""
    exact = (samples - len(weight)) * weight / weight.sum()
    shares = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - shares), kind="stable")
    shares[order[: samples - len(weight) - int(shares.sum())]] += 1
    return tuple(int(share) + 1 for share in shares)


def _work(view: View, group: Group, from_end: int, *, limited: bool) -> Floats:
    """Forward and backward of every run on the group by the first shares that fit; infinite where none do."""
    found = np.full((view.num_blocks + 1, view.num_blocks + 1), np.inf)
    for shares in group.shares:
        dealt = list(zip(group.devices, shares, strict=True))
        slowest = np.max([run_costs(view.seconds(device, share).total) for device, share in dealt], axis=0)
        if limited:
            for device, share in dealt:
                if device.memory < math.inf:
                    slowest = np.where(view.need(from_end, share) <= device.memory, slowest, np.inf)
        found = np.where(np.isfinite(found), found, slowest)
    return found


def _settled(view: View, group: tuple[Device, ...], first: int, end: int, from_end: int) -> tuple[int, ...]:
    """Shares of a chosen stage: the slowest replica as early as memory allows, each at least one sample."""

    def seconds(device: Device) -> Callable[[int], float]:
        def of(share: int) -> float:
            total = view.seconds(device, share).total
            return float(total[end] - total[first])

        return of

    def most(device: Device) -> int:
        return sum(1 for share in range(1, view.samples + 1) if _fits(view, device, first, end, from_end, share))

    limits = None
    if any(device.memory < math.inf for device in group):
        limits = [most(device) for device in group]
    shares = balanced_shares(view.samples, [seconds(device) for device in group], limits)
    if shares is None or 0 in shares:
        return _ways(view, group)[0]
    return shares


def _fits(view: View, device: Device, first: int, end: int, from_end: int, share: int) -> bool:
    return bool(view.need(from_end, share)[first, end] <= device.memory)
