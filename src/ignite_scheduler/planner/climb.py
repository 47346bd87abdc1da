"""Local search on the exact step time, compiled: a good first plan for the branch and bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from ignite_scheduler.planner.compiled import compiled
from ignite_scheduler.planner.kernel import value_of


@compiled
def climb(numbers: Any, room: Any, n: int, classes: Any, first: Any, value: float, budget: int) -> Any:  # noqa: PLR0912, PLR0915
    """Improve a pipeline (given from the end, changed in place) until no single move helps.

    Moves: shift a cut by up to four layers; exchange the classes of two stages; put another class on a stage; give a
    stage's layers to a neighbour; cut a stage in two with another device.

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
                found = value_of(numbers, room, n, classes, try_f)
                if found < value - 1e-12:
                    first[:n] = try_f[:n]
                    value = found
                    improved = True
        # exchange two classes
        for q in range(n):
            for p in range(q):
                if classes[p] == classes[q]:
                    continue
                try_c[:n] = classes[:n]
                try_c[p], try_c[q] = classes[q], classes[p]
                timed += 1
                found = value_of(numbers, room, n, try_c, first)
                if found < value - 1e-12:
                    classes[:n] = try_c[:n]
                    value = found
                    improved = True
        # another class on a stage
        for q in range(n):
            for c in range(num_classes):
                if c == classes[q]:
                    continue
                try_c[:n] = classes[:n]
                try_c[q] = c
                timed += 1
                found = value_of(numbers, room, n, try_c, first)
                if found < value - 1e-12:
                    classes[:n] = try_c[:n]
                    value = found
                    improved = True
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
