"""Local search on the exact step time, compiled: a good first plan for the branch and bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import value_of


@compiled
def _keep_better(
    numbers: Any, room: Any, n: int, try_c: Any, try_f: Any, classes: Any, first: Any, value: float
) -> float:
    """Time the tried pipeline of as many stages and, if it is better, put it in place; the better value of the two."""
    found = value_of(numbers, room, n, try_c, try_f)
    if found < value - 1e-12:
        classes[:n], first[:n] = try_c[:n], try_f[:n]
        return found
    return value


@compiled
def climb(numbers: Any, room: Any, n: int, classes: Any, first: Any, value: float, budget: int) -> Any:  # noqa: PLR0912, PLR0915
    """Improve a pipeline (given from the end, changed in place) until no single move helps.

    Moves: shift a cut by up to four layers, or several cuts together by one; exchange the classes of two stages; put
    another class on a stage; give a stage's layers to a neighbour; cut a stage in two with another device.

    Returns
    -------
    number of stages, value, pipelines timed
    """
    num_classes = len(numbers.counts)
    try_c = np.zeros(numbers.max_stages + 2, np.int64)
    try_f = np.zeros(numbers.max_stages + 2, np.int64)
    timed = 0
    improved = True
    while improved and timed < budget:
        improved = False
        # shift cuts
        for q in range(n - 1):
            for delta in (1, -1, 2, -2, 3, -3, 4, -4):
                try_f[:n] = first[:n]
                try_f[q] += delta
                if try_f[q] <= 0 or try_f[q] >= numbers.num_layers:
                    continue
                timed += 1
                found = _keep_better(numbers, room, n, classes, try_f, classes, first, value)
                improved |= found < value
                value = found
        # shift several cuts together: a layer's worth of work moves from one stage to a distant one
        for q in range(n - 1):
            for p in range(q + 1, n - 1):
                for delta in (1, -1):
                    try_f[:n] = first[:n]
                    for k in range(q, p + 1):
                        try_f[k] += delta
                    if try_f[p] <= 0 or try_f[q] >= numbers.num_layers:
                        continue
                    timed += 1
                    found = _keep_better(numbers, room, n, classes, try_f, classes, first, value)
                    improved |= found < value
                    value = found
        # exchange two classes
        for q in range(n):
            for p in range(q):
                if classes[p] == classes[q]:
                    continue
                try_c[:n] = classes[:n]
                try_c[p], try_c[q] = classes[q], classes[p]
                timed += 1
                found = _keep_better(numbers, room, n, try_c, first, classes, first, value)
                improved |= found < value
                value = found
        # another class on a stage
        for q in range(n):
            for c in range(num_classes):
                if c == classes[q]:
                    continue
                try_c[:n] = classes[:n]
                try_c[q] = c
                timed += 1
                found = _keep_better(numbers, room, n, try_c, first, classes, first, value)
                improved |= found < value
                value = found
        if improved:
            continue
        # give a stage's layers to the stage before or behind
        for q in range(n):
            if n == 1 or improved:
                break
            for onto in range(2):
                if (onto == 0 and q == 0) or (onto == 1 and q == n - 1):
                    continue
                m = 0
                for p in range(n):
                    if p != q:
                        try_c[m], try_f[m] = classes[p], first[p]
                        m += 1
                if onto == 0:
                    try_f[q - 1] = first[q]
                timed += 1
                found = value_of(numbers, room, n - 1, try_c, try_f)
                if found < value - 1e-12:
                    n -= 1
                    classes[:n], first[:n] = try_c[:n], try_f[:n]
                    value = found
                    improved = True
                    break
        # cut a stage in two
        if n < numbers.max_stages:
            for q in range(n):
                if improved:
                    break
                end = first[q - 1] if q > 0 else numbers.num_layers
                for cut in range(first[q] + 1, end):
                    if improved:
                        break
                    for c in range(num_classes):
                        for side in range(2):
                            for p in range(q):
                                try_c[p], try_f[p] = classes[p], first[p]
                            try_c[q], try_f[q] = (c, cut) if side == 0 else (classes[q], cut)
                            try_c[q + 1], try_f[q + 1] = (classes[q], first[q]) if side == 0 else (c, first[q])
                            for p in range(q + 1, n):
                                try_c[p + 1], try_f[p + 1] = classes[p], first[p]
                            timed += 1
                            found = value_of(numbers, room, n + 1, try_c, try_f)
                            if found < value - 1e-12:
                                n += 1
                                classes[:n], first[:n] = try_c[:n], try_f[:n]
                                value = found
                                improved = True
                                break
                        if improved:
                            break
    return n, value, timed


@compiled
def shake(numbers: Any, room: Any, n: int, classes: Any, first: Any, value: float, rounds: int, budget: int) -> Any:
    """Local search again and again from a disturbed copy of the best pipeline (from the end, changed in place).

    Each round exchanges the devices of two stages and shifts three cuts at random, then climbs. The random numbers come
    from a fixed sequence, so that plans are repeatable.

    Returns
    -------
    number of stages, value, pipelines timed
    """
    try_c = np.zeros(numbers.max_stages + 2, np.int64)
    try_f = np.zeros(numbers.max_stages + 2, np.int64)
    state = np.int64(12345)
    timed = 0
    for _ in range(rounds):
        if n < 2 or timed >= budget:
            break
        try_c[:n], try_f[:n] = classes[:n], first[:n]
        for kick in range(4):
            state = (state * 1103515245 + 12345) % 2147483648
            one = (state >> 8) % n
            state = (state * 1103515245 + 12345) % 2147483648
            other = (state >> 8) % n
            if kick == 0:
                try_c[one], try_c[other] = try_c[other], try_c[one]
            elif one < n - 1:
                moved = try_f[one] + (other % 7) - 3
                low = try_f[one + 1] + 1
                high = (try_f[one - 1] if one > 0 else numbers.num_layers) - 1
                try_f[one] = min(max(moved, low), high)
        start = value_of(numbers, room, n, try_c, try_f)
        if start == np.inf:
            continue
        m, found, spent = climb(numbers, room, n, try_c, try_f, start, budget - timed)
        timed += spent
        if found < value - 1e-12:
            n, value = m, found
            classes[:n], first[:n] = try_c[:n], try_f[:n]
    return n, value, timed
