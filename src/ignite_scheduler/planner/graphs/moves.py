"""Local search over graphs of stages on the exact step time, and every graph of stages of a tiny model; compiled.

A graph of stages is ``stage_of`` [atom] and ``device_of`` [stage]. A move makes a changed copy; what it breaks (a
circle, too little memory, a device twice) is found when the copy is timed. Worse copies are kept for a while, the less
the longer the search goes on, so that a branch can leave a stage atom by atom.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.graphs.timing import graph_value


@compiled
def draw(state: Any, count: int) -> int:
    """The next number below ``count`` of a fixed sequence, so that plans are repeatable."""
    state[0] = (state[0] * 1103515245 + 12345) % 2147483648
    return int((state[0] >> 8) % count)


@compiled
def improved(
    field: Any, graph: Any, n: int, stage_of: Any, device_of: Any, value: float, rounds: int, heat: float, state: Any
) -> Any:
    """Improve a graph of stages in place by ``rounds`` moves.

    At first copies that are worse by up to the share ``heat`` are kept, at last none.

    Returns
    -------
    number of stages, value
    """
    now_stage, now_device, now_n, now = stage_of.copy(), device_of.copy(), n, value
    new_stage, new_device = stage_of.copy(), device_of.copy()
    for turn in range(rounds):
        new_stage[:] = now_stage
        new_device[:] = now_device
        new_n = neat(_move(field, now_n, new_stage, new_device, state), new_stage, new_device)
        if new_n == 0:
            continue
        found = graph_value(field, graph, new_n, new_stage, new_device)
        if found <= now + heat * (1.0 - turn / rounds) ** 2 * value * draw(state, 1024) / 1024 and found < np.inf:
            now, now_n = found, new_n
            now_stage[:] = new_stage
            now_device[:] = new_device
            if found < value - 1e-12 or (found < value + 1e-12 and new_n < n):
                value, n = min(found, value), new_n
                stage_of[:] = new_stage
                device_of[:] = new_device
    return n, value


@compiled
def neat(n: int, stage_of: Any, device_of: Any) -> int:
    """Number the stages anew without empty ones; how many are left."""
    last = 0
    for s in range(n):
        held = False
        for a in range(len(stage_of)):
            held = held or stage_of[a] == s
        if held:
            for a in range(len(stage_of)):
                if stage_of[a] == s:
                    stage_of[a] = last
            device_of[last] = device_of[s]
            last += 1
    return last


@compiled
def _move(field: Any, n: int, stage_of: Any, device_of: Any, state: Any) -> int:
    """Change the graph of stages by one random move; the number of stages, empty ones included, 0 for no move."""
    kind = draw(state, 100)
    if kind < 45 and len(field.tensor_atom) > 0:
        return _shift(field, n, stage_of, state, kind < 12)
    if kind < 58 and len(field.parts) > 0:
        part = draw(state, len(field.parts))
        target = draw(state, n + 1)
        for a in range(len(stage_of)):
            if field.parts[part, a]:
                stage_of[a] = target
        return n if target < n else _opened(field, n, device_of, state)
    if kind < 70:
        one, other = draw(state, n), draw(state, n)
        device_of[one], device_of[other] = device_of[other], device_of[one]
        return n
    if kind < 80:
        s = draw(state, n)
        device_of[s] = draw(state, len(field.memory))
        return n
    if kind < 92:
        return _split(field, n, stage_of, device_of, state)
    one, other = draw(state, n), draw(state, n)
    for a in range(len(stage_of)):
        if stage_of[a] == one:
            stage_of[a] = other
    return n


@compiled
def _opened(field: Any, n: int, device_of: Any, state: Any) -> int:
    """Give stage n a device that no other stage has; n + 1, or 0 where there is none."""
    if n >= field.max_stages:
        return 0
    count = len(field.memory)
    start = draw(state, count)
    for offset in range(count):
        d = (start + offset) % count
        held = False
        for s in range(n):
            held = held or device_of[s] == d
        if not held:
            device_of[n] = d
            return n + 1
    return 0


@compiled
def _shift(field: Any, n: int, stage_of: Any, state: Any, alone: bool) -> int:
    """Move an atom that reads from another stage there, or one that is read to its reader's stage.

    Unless ``alone``, with all that stands between it and that stage within its own: the cut moves past the atom.
    """
    t = draw(state, len(field.tensor_atom))
    maker = field.tensor_atom[t]
    span = field.tensor_start[t + 1] - field.tensor_start[t]
    reader = field.reader_atom[field.tensor_start[t] + draw(state, span)]
    source, target = stage_of[maker], stage_of[reader]
    if source == target:
        return 0
    forwards = draw(state, 2) == 0
    for a in range(len(stage_of)):
        if forwards and stage_of[a] == source and (a == maker or (not alone and field.reach[maker, a])):
            stage_of[a] = target
        if not forwards and stage_of[a] == target and (a == reader or (not alone and field.reach[a, reader])):
            stage_of[a] = source
    return n


@compiled
def _split(field: Any, n: int, stage_of: Any, device_of: Any, state: Any) -> int:
    """Part a stage at an atom: it and what it leads to, or what leads to it, on a device of their own."""
    pivot = draw(state, len(stage_of))
    s = stage_of[pivot]
    onwards = draw(state, 2) == 0
    opened = _opened(field, n, device_of, state)
    if opened == 0:
        return 0
    for a in range(len(stage_of)):
        joined = field.reach[pivot, a] if onwards else field.reach[a, pivot]
        if a == pivot or (stage_of[a] == s and joined):
            stage_of[a] = n
    return opened


@compiled
def every_graph(field: Any, graph: Any, stage_of: Any, device_of: Any) -> Any:
    """Write the best of all graphs of stages into ``stage_of`` and ``device_of``: number of stages and value.

    Every partition of the atoms (each stage numbered by its first atom) on every choice of devices.
    """
    num_atoms, num_devices = len(stage_of), len(field.memory)
    stages = np.zeros(num_atoms, np.int64)
    highest = np.zeros(num_atoms + 1, np.int64)  # stages among the atoms before each
    devices = np.zeros(len(device_of), np.int64)
    best, best_n = np.inf, 0
    at = 0
    stages[0] = -1
    while at >= 0:
        stages[at] += 1
        if stages[at] > highest[at] or stages[at] >= field.max_stages:
            at -= 1
            continue
        highest[at + 1] = max(highest[at], stages[at] + 1)
        if at + 1 < num_atoms:
            at += 1
            stages[at] = -1
            continue
        n = highest[num_atoms]
        devices[:n] = 0
        while True:
            found = graph_value(field, graph, n, stages, devices)
            if found < best - 1e-12:
                best, best_n = found, n
                stage_of[:] = stages
                device_of[:n] = devices[:n]
            s = n - 1
            while s >= 0 and devices[s] == num_devices - 1:
                devices[s] = 0
                s -= 1
            if s < 0:
                break
            devices[s] += 1
    return best_n, best
