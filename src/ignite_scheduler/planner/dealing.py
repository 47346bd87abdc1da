"""Ways to deal devices, and the samples of a microbatch, to virtual workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from ignite_scheduler.model import Device

Worker = tuple[Device, ...]
"""Devices of one worker, by id."""


def divisions(devices: Sequence[Device], speeds: Mapping[str, float], count: int) -> list[tuple[Worker, ...]]:
    """Ways to deal the devices to ``count`` workers; each worker by id, each way once.

    By node and by kind where there are as many, or whole nodes put together; across nodes; by speed to and fro, or
    like with like; each device, the fastest first, to the slowest worker so far.
    """
    by_speed = sorted(devices, key=lambda device: (-speeds[device.id], device.id))
    ways: list[list[list[Device]]] = []
    for name in ("node", "kind"):
        parts: dict[str, list[Device]] = {}
        for device in devices:
            parts.setdefault(getattr(device, name), []).append(device)
        if len(parts) >= count:
            whole = sorted(parts.values(), key=lambda part: (-sum(speeds[d.id] for d in part), part[0].id))
            ways.append(_dealt(whole, speeds, count))
    nodes = sorted(devices, key=lambda device: (device.node, -speeds[device.id], device.id))
    ways.append([nodes[place::count] for place in range(count)])
    there_and_back = [*range(count), *reversed(range(count))]
    ways.append(
        [[d for i, d in enumerate(by_speed) if there_and_back[i % len(there_and_back)] == w] for w in range(count)]
    )
    cuts = [w * len(by_speed) // count for w in range(count + 1)]
    ways.append([by_speed[a:b] for a, b in pairwise(cuts)])
    ways.append(_dealt([[device] for device in by_speed], speeds, count))
    return list(dict.fromkeys(_in_order(way) for way in ways if all(way)))


def shares_by(weights: Sequence[float], samples: int) -> tuple[int, ...]:
    """Whole shares proportional to the weights, each at least 1, by largest remainder; ties to the first.

    >>> shares_by((3.0, 1.0), 8)
    (6, 2)
    """
    exact = [weight / sum(weights) * (samples - len(weights)) for weight in weights]
    shares = [int(value) for value in exact]
    order = sorted(range(len(shares)), key=lambda w: (shares[w] - exact[w], w))
    for w in order[: samples - len(weights) - sum(shares)]:
        shares[w] += 1
    return tuple(share + 1 for share in shares)


def neighbours(workers: tuple[Worker, ...]) -> Iterator[tuple[Worker, ...]]:
    """Yield divisions with one device moved or two exchanged; of equal devices of a worker only the first is taken."""
    for a, b in combinations(range(len(workers)), 2):
        firsts = [_distinct(workers[w]) for w in (a, b)]
        for device in firsts[0]:
            if len(workers[a]) > 1:
                yield _changed(workers, {a: (device,)}, {b: (device,)})
            for other in firsts[1]:
                if _alike(device) != _alike(other):
                    yield _changed(workers, {a: (device,), b: (other,)}, {a: (other,), b: (device,)})
        for device in firsts[1]:
            if len(workers[b]) > 1:
                yield _changed(workers, {b: (device,)}, {a: (device,)})


def _changed(workers: tuple[Worker, ...], less: dict[int, Worker], more: dict[int, Worker]) -> tuple[Worker, ...]:
    return _in_order(
        [[*(d for d in worker if d not in less.get(w, ())), *more.get(w, ())] for w, worker in enumerate(workers)]
    )


def _alike(device: Device) -> Device:
    return replace(device, id="")


def _distinct(worker: Worker) -> list[Device]:
    found: dict[Device, Device] = {}
    for device in worker:
        found.setdefault(_alike(device), device)
    return list(found.values())


def _dealt(parts: Sequence[Sequence[Device]], speeds: Mapping[str, float], count: int) -> list[list[Device]]:
    workers: list[list[Device]] = [[] for _ in range(count)]
    for part in parts:
        slowest = min(range(count), key=lambda w: (sum(speeds[device.id] for device in workers[w]), w))
        workers[slowest] += part
    return workers


def _in_order(way: Sequence[Sequence[Device]]) -> tuple[Worker, ...]:
    return tuple(sorted((tuple(sorted(part, key=lambda d: d.id)) for part in way), key=lambda part: part[0].id))
