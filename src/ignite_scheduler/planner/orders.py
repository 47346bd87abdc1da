"""Orders of actions as arrays, for all numbers of stages at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ignite_scheduler.pipeline import make_schedule
from ignite_scheduler.planner.compiled import compiled


class Orders(NamedTuple):
    """Actions of all pipelines of 1…S stages in an order in which each can be timed at once.

    Actions ``start[n] … start[n + 1]`` belong to the pipeline of n stages. ``kind`` is 0 for a forward, 1 for a
    backward.
    """

    start: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    microbatch: npt.NDArray[np.int32]


@lru_cache(maxsize=64)
def orders(name: str, num_stages: int, num_microbatches: int) -> Orders:
    """Orders of the schedule ``name`` for every number of stages up to ``num_stages``."""
    schedule = make_schedule(name, num_stages, num_microbatches)
    kinds = np.zeros((num_stages, 2 * num_microbatches), dtype=np.int8)
    microbatches = np.zeros((num_stages, 2 * num_microbatches), dtype=np.int32)
    for row in schedule.rows:
        q = num_stages - 1 - row[0].stage_index
        kinds[q] = [action.kind != "F" for action in row]
        microbatches[q] = [action.microbatch_index for action in row]
    stage, kind, microbatch = _merge(kinds, microbatches)
    parts = [np.flatnonzero(stage < n) for n in range(num_stages + 1)]
    start = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    chosen = np.concatenate(parts)
    return Orders(start, stage[chosen], kind[chosen], microbatch[chosen])


@compiled
def _merge(kinds: Any, microbatches: Any) -> Any:
    """One order of all rows in which every action comes after what it waits for."""
    num_stages, length = kinds.shape
    stage = np.empty(num_stages * length, np.int32)
    kind = np.empty(num_stages * length, np.int8)
    microbatch = np.empty(num_stages * length, np.int32)
    position = np.zeros(num_stages, np.int64)
    forwards = np.zeros(num_stages, np.int64)
    backwards = np.zeros(num_stages, np.int64)
    done = 0
    while done < num_stages * length:
        before = done
        for q in range(num_stages - 1, -1, -1):
            while position[q] < length:
                k = microbatches[q, position[q]]
                if kinds[q, position[q]] == 0:
                    if q < num_stages - 1 and forwards[q + 1] <= k:
                        break
                    forwards[q] += 1
                else:
                    if q > 0 and backwards[q - 1] <= k:
                        break
                    backwards[q] += 1
                stage[done], kind[done], microbatch[done] = q, kinds[q, position[q]], k
                position[q] += 1
                done += 1
        if done == before:
            raise ValueError("blocked order")
    return stage, kind, microbatch
