"""Gradients of a stage's replicas, added up over all of them at the end of a step.

Each replica has the gradient of its samples' losses divided by the samples of the whole batch, so that the sum over
replicas is the batch's gradient, whatever their shares are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ignite_scheduler.cost.communication import ring_seconds
from ignite_scheduler.engine.gradients import Gradient
from ignite_scheduler.engine.packing import pass_on
from ignite_scheduler.model import Link


def exchange_seconds(num_bytes: float, ranks: Sequence[int], links: Mapping[tuple[int, int], Link]) -> float:
    """Seconds of an emulated all-reduce among these ranks; 0 where the links are real."""
    between = [links[pair] for pair in permutations(ranks, 2) if pair in links]
    if not between:
        return 0.0
    bandwidth, latency = min(link.bandwidth for link in between), max(link.latency for link in between)
    return ring_seconds(num_bytes, bandwidth, latency, len(ranks))


class ReplicaSum:
    """The sums of one stage, for one of its replicas.

    Parameters
    ----------
    group
        The process group of all replicas.
    seconds
        What the exchange takes at least, from when the last replica is there: emulated links.
    wire
        Where messages lie while they travel.
    """

    def __init__(self, group: Any, *, seconds: float, wire: torch.device) -> None:
        self._group, self._seconds, self._wire = group, seconds, wire

    def reduce(self, gradients: Callable[[], Sequence[Gradient]]) -> float:
        """Let each replica have the sum of all replicas' gradients.

        A parameter that a gradient reached on any replica is reached on all.

        Returns
        -------
        float
            When the sums are there, on the monotonic clock.
        """
        own = gradients()
        facts = torch.tensor(
            [time.monotonic(), *(float(gradient.reached) for gradient in own)], dtype=torch.float64, device=self._wire
        )
        dist.all_reduce(facts, dist.ReduceOp.MAX, self._group)
        start, *reached = facts.tolist()
        added = [gradient for gradient, by_any in zip(own, reached, strict=True) if by_any]
        pass_on([gradient.sum for gradient in added], self._add, self._wire)
        for gradient in added:
            if not gradient.reached:
                gradient.sum.add_(0.0)  # says that it is reached now
        now = time.monotonic()
        done: float = max(start + self._seconds, now)
        time.sleep(done - now)
        return done

    def _add(self, flat: Tensor) -> None:
        dist.all_reduce(flat, dist.ReduceOp.SUM, self._group)
