"""One chain of groups timed and weighed, compiled: seconds of stages and links, the exact step, memory by position.

A chain is given by ``first`` (layers at which its stages begin, and the end), ``offset`` (where the devices of each
stage begin), ``devices`` (in the order in which samples are dealt out) and ``base`` (their shares where memory does
not matter).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.groups.stage import NO_FIT, cheapest, finish_seconds, last_share
from ignite_scheduler.planner.kernel import Floats, Ints

NEVER: Final = -1e30


class Net(NamedTuple):
    """Devices and links as arrays, and what crosses cuts.

    Parameters
    ----------
    kind, block
        [device].
    latency, per_byte
        [block, block].
    single_bytes, tensors, readers, reader_bytes
        Bytes a sample over cuts, as in :class:`ignite_scheduler.planner.kernel.Numbers`.
    order
        [kind, layer]: layers in the order in which they are recomputed to save bytes.
    tied_bytes
        [group of tied layers]: bytes that are reduced where several stages hold it.
    rate
        [device]: what a second of the step counts for in the objective, on top of ``base_rate`` for all.
    """

    kind: Ints
    block: Ints
    latency: Floats
    per_byte: Floats
    single_bytes: Floats
    tensors: Ints
    readers: Ints
    reader_bytes: Floats
    order: Ints
    tied_bytes: Floats
    base_rate: float
    rate: Floats


class Family(NamedTuple):
    """Number of microbatches and whether the schedule is GPipe, else 1F1B."""

    num_microbatches: int
    gpipe: bool


class Sheet(NamedTuple):
    """What :func:`chain_value` finds out about a chain, by stage: its scratch and its answer.

    ``seconds`` [stage, 4]: forward and backward of a full and of the last microbatch. ``links`` [stage, 4]: from the
    stage before, there and back, full and last. ``ring`` and ``update`` close the step. ``code`` are the memory
    actions, ``shares`` [device position] the samples, ``again`` [layer] marks what is recomputed.
    """

    seconds: Floats
    links: Floats
    ring: Floats
    update: Floats
    end: Floats
    wires: Floats
    code: Ints
    shares: Ints
    again: Any
    members: Ints


@compiled
def make_sheet(num_stages: int, num_devices: int, num_layers: int) -> Any:
    """Room for chains of so many stages, devices and layers."""
    return Sheet(
        np.zeros((num_stages + 1, 4)),
        np.zeros((num_stages + 1, 4)),
        np.zeros(num_stages + 1),
        np.zeros(num_stages + 1),
        np.zeros(num_stages + 1),
        np.zeros((num_stages + 1, 4)),
        np.zeros(num_stages + 1, np.int64),
        np.zeros(num_devices + 1, np.int64),
        np.zeros(num_layers, np.bool_),
        np.zeros(num_devices + 1, np.int64),
    )


@compiled
def chain_value(
    costs: Any,
    net: Any,
    family: Any,
    sheet: Any,
    first: Any,
    offset: Any,
    devices: Any,
    base: Any,
    num_stages: int,
    limit: float,
) -> float:
    """The objective of the chain; infinite where it does not fit, lacks a link or surely exceeds the limit.

    ``sheet`` is filled where the value is finite.
    """
    rate = net.base_rate
    for s in range(num_stages):
        i, j, begin, end = first[s], first[s + 1], offset[s], offset[s + 1]
        size = end - begin
        held = family.num_microbatches if family.gpipe else min(family.num_microbatches, num_stages - s)
        for p in range(begin, end):
            sheet.members[p] = net.kind[devices[p]]
            rate += net.rate[devices[p]]
        members = sheet.members[begin:end]
        order = net.order[members[0]]
        code = cheapest(
            costs, members, size, base[begin:end], order, i, j, held, sheet.again, sheet.shares[begin:end],
            sheet.seconds[s],
        )  # fmt: skip
        if code == NO_FIT:
            return np.inf
        sheet.code[s] = code
        per_byte, latency = _slowest(net, devices, begin, end)
        if latency == np.inf:
            return np.inf
        ring, update = finish_seconds(costs, members, size, per_byte, latency, i, j)
        sheet.ring[s], sheet.update[s] = ring, update
        if s > 0 and not _set_link(costs, net, sheet, first, offset, devices, num_stages, s):
            return np.inf
    if rate * _surely(sheet, num_stages, family.num_microbatches, family.gpipe) > limit:
        return np.inf
    if family.gpipe:
        gpipe_ends(sheet, num_stages, family.num_microbatches)
    else:
        one_f_one_b_ends(sheet, num_stages, family.num_microbatches)
    return float(rate) * _step(costs, net, sheet, first, offset, devices, num_stages)


@compiled
def _slowest(net: Any, devices: Any, begin: int, end: int) -> Any:
    """Seconds a byte of the slowest link between any two of the devices, and the largest latency; 0 for one."""
    per_byte, latency = 0.0, 0.0
    for p in range(begin, end):
        a = net.block[devices[p]]
        if p > begin and p + 1 < end and net.block[devices[p - 1]] == a and net.block[devices[p + 1]] == a:
            continue  # blocks stand together: its first and last two devices have all its links
        for q in range(begin, end):
            if p != q:
                b = net.block[devices[q]]
                per_byte = max(per_byte, net.per_byte[a, b], net.per_byte[b, a])
                latency = max(latency, net.latency[a, b], net.latency[b, a])
    return per_byte, latency


@compiled
def _cut_bytes(net: Any, first: Any, num_stages: int, s: int) -> float:
    """Bytes a sample over the cut in front of stage s; a tensor counts once for each stage that reads it."""
    cut = first[s]
    total = net.single_bytes[cut]
    for t in range(len(net.tensors)):
        if net.tensors[t, 0] < cut:
            for q in range(s, num_stages):
                most = 0.0
                for r in range(net.tensors[t, 1], net.tensors[t, 2]):
                    if first[q] <= net.readers[r] < first[q + 1]:
                        most = max(most, net.reader_bytes[r])
                total += most
    return float(total)


@compiled
def _set_link(costs: Any, net: Any, sheet: Any, first: Any, offset: Any, devices: Any, num_stages: int, s: int) -> bool:
    """Write the seconds of the busiest link between stages s − 1 and s; False where two that must talk have none."""
    num_bytes = _cut_bytes(net, first, num_stages, s)
    sheet.links[s] = 0.0
    a, b, c = offset[s - 1], offset[s], offset[s + 1]
    for e in range(2):
        if e == 1 and costs.last == costs.samples:
            sheet.links[s, 2], sheet.links[s, 3] = sheet.links[s, 0], sheet.links[s, 1]
            break
        p, q = a, b
        sent, got = _share(costs, sheet, a, b, p, e), _share(costs, sheet, b, c, q, e)
        while True:
            common = min(sent, got)
            if common > 0:
                x, y = net.block[devices[p]], net.block[devices[q]]
                there = net.latency[x, y] + common * num_bytes * net.per_byte[x, y]
                back = net.latency[y, x] + common * num_bytes * net.per_byte[y, x]
                if max(there, back) == np.inf:
                    return False
                sheet.links[s, 2 * e] = max(sheet.links[s, 2 * e], there)
                sheet.links[s, 2 * e + 1] = max(sheet.links[s, 2 * e + 1], back)
            sent -= common
            got -= common
            if sent == 0:
                p += 1
                if p == b:
                    break
                sent = _share(costs, sheet, a, b, p, e)
            if got == 0:
                q += 1
                if q == c:
                    break
                got = _share(costs, sheet, b, c, q, e)
    return True


@compiled
def _share(costs: Any, sheet: Any, begin: int, end: int, p: int, e: int) -> int:
    if e == 0:
        return int(sheet.shares[p])
    return int(last_share(costs, sheet.shares[begin:end], end - begin, p - begin))


@compiled
def _surely(sheet: Any, num_stages: int, num_microbatches: int, gpipe: bool) -> float:
    """A step that the chain does not go below; the theory stands in :mod:`.bound`, here with the figures at hand.

    *Work*: a stage waits for the first forward to reach it, works for all microbatches and reduces. *Both turns*, where
    all microbatches are as long as the last one at least: the fill, the part behind the stage once more, and what lies
    between; under GPipe without that part, but for one microbatch less.
    """
    most, front, fill = 0.0, 0.0, 0.0
    for s in range(num_stages):
        for e in range(2):
            fill += min(sheet.seconds[s, e], sheet.seconds[s, e + 2]) + min(sheet.links[s, e], sheet.links[s, e + 2])
    behind = fill
    for s in range(num_stages):
        busy, last = sheet.seconds[s, 0] + sheet.seconds[s, 1], sheet.seconds[s, 2] + sheet.seconds[s, 3]
        front += sheet.links[s, 0] if num_microbatches > 1 else sheet.links[s, 2]
        most = max(most, front + (num_microbatches - 1) * busy + last + sheet.ring[s] + sheet.update[s])
        front += sheet.seconds[s, 0] if num_microbatches > 1 else sheet.seconds[s, 2]
        least = min(sheet.seconds[s, 0], sheet.seconds[s, 2]) + min(sheet.seconds[s, 1], sheet.seconds[s, 3])
        behind -= least
        for e in range(2):
            behind -= min(sheet.links[s, e], sheet.links[s, e + 2])
        deep = num_stages - s
        if gpipe:
            most = max(most, fill + (num_microbatches - 1) * least)
        elif num_microbatches > deep:
            most = max(most, fill + behind + (num_microbatches - deep) * least)
    return most


@compiled
def one_f_one_b_ends(sheet: Any, num_stages: int, num_microbatches: int) -> None:
    """Write when each stage is done with its last action under 1F1B.

    In sweep k every stage, from the first on, does its forward of microbatch k and then its backward of microbatch
    k − depth + 1, depth being its place from the end: that is 1F1B's order, and everything that an action waits for is
    done in the same sweep by an earlier stage or in the sweep before by the next one.
    """
    busy, wires = sheet.end, sheet.wires
    busy[:num_stages] = 0.0
    wires[: num_stages + 1] = NEVER  # free from: there, back; here: gradients at hand
    last = num_microbatches - 1
    for k in range(num_microbatches + num_stages - 1):
        arrived = 0.0
        e = 2 if k == last else 0
        for s in range(num_stages):
            time = busy[s]
            if k <= last:
                if s > 0:
                    arrived = max(arrived, wires[s, 0]) + sheet.links[s, e]
                    wires[s, 0] = arrived
                time = max(time, arrived) + sheet.seconds[s, e]
                arrived = time
            back = k - (num_stages - s) + 1
            if 0 <= back <= last:
                d = 2 if back == last else 0
                if s + 1 < num_stages:
                    time = max(time, wires[s + 1, 2])
                time += sheet.seconds[s, d + 1]
                if s > 0:
                    wires[s, 1] = max(wires[s, 1], time) + sheet.links[s, d + 1]
                    wires[s, 2] = wires[s, 1]
            busy[s] = time


@compiled
def gpipe_ends(sheet: Any, num_stages: int, num_microbatches: int) -> None:
    """Write when each stage is done with its last action under GPipe."""
    busy, wires = sheet.end, sheet.wires
    busy[:num_stages] = 0.0
    wires[: num_stages + 1] = NEVER
    last = num_microbatches - 1
    for k in range(num_microbatches):
        arrived = 0.0
        e = 2 if k == last else 0
        for s in range(num_stages):
            if s > 0:
                arrived = max(arrived, wires[s, 0]) + sheet.links[s, e]
                wires[s, 0] = arrived
            busy[s] = max(busy[s], arrived) + sheet.seconds[s, e]
            arrived = busy[s]
    for k in range(num_microbatches):
        arrived = 0.0
        e = 2 if k == last else 0
        for s in range(num_stages - 1, -1, -1):
            if s + 1 < num_stages:
                arrived = max(arrived, wires[s + 1, 1]) + sheet.links[s + 1, e + 1]
                wires[s + 1, 1] = arrived
            busy[s] = max(busy[s], arrived) + sheet.seconds[s, e + 1]
            arrived = busy[s]


@compiled
def _step(costs: Any, net: Any, sheet: Any, first: Any, offset: Any, devices: Any, num_stages: int) -> float:
    """End of the step from the ends of the stages: all-reduces within stages, of tied weights, then updates."""
    end = sheet.end
    for s in range(num_stages):
        end[s] += sheet.ring[s]
    for group in range(len(costs.tied)):
        begin, per_byte, latency, stages, members = 0.0, 0.0, 0.0, 0, 0
        for s in range(num_stages):
            if _holds(costs, group, first[s], first[s + 1]):
                stages += 1
                begin = max(begin, end[s])
                members += offset[s + 1] - offset[s]
                for q in range(num_stages):
                    if _holds(costs, group, first[q], first[q + 1]):
                        slow, late = _between(net, devices, offset, s, q)
                        per_byte, latency = max(per_byte, slow), max(latency, late)
        if stages > 1:
            rounds = 2 * (members - 1)
            begin += rounds / members * net.tied_bytes[group] * per_byte + rounds * latency
            for s in range(num_stages):
                if _holds(costs, group, first[s], first[s + 1]):
                    end[s] = begin
    step = 0.0
    for s in range(num_stages):
        end[s] += sheet.update[s]
        step = max(step, end[s])
    return step


@compiled
def _holds(costs: Any, group: int, i: int, j: int) -> bool:
    held = False
    for index in costs.tied[group]:
        held = held or i <= index < j
    return held


@compiled
def _between(net: Any, devices: Any, offset: Any, s: int, q: int) -> Any:
    """Seconds a byte and latency of the slowest link from a device of stage s to another one of stage q."""
    per_byte, latency = 0.0, 0.0
    for a in range(offset[s], offset[s + 1]):
        for b in range(offset[q], offset[q + 1]):
            if a != b:
                x, y = net.block[devices[a]], net.block[devices[b]]
                per_byte, latency = max(per_byte, net.per_byte[x, y]), max(latency, net.latency[x, y])
    return per_byte, latency
