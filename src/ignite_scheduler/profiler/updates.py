"""Seconds that a layer takes at the end of a step, as the engine does it: the norm of its gradient, then its update."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from ignite_scheduler.engine.optimization import make_optimizer, squared_norm
from ignite_scheduler.model import Optimizer
from ignite_scheduler.profiler.passes import Clock

OPTIMIZERS: Final = ("sgd", "momentum", "adam", "adamw")
_REPEATS: Final = 15
_LONG: Final = 0.5
"""Seconds after which a layer's update is not repeated further: a large layer is measured well by a few."""


def update_seconds(parameters: Sequence[Tensor], name: str, clock: Clock) -> float:
    """Median seconds of the gradient norm and one update of these parameters; their values stay as they are."""
    held = [parameter for parameter in parameters if parameter.grad is not None]
    optimizer = make_optimizer(held, Optimizer(name=name, lr=0.0, options={"weight_decay": 0.0}))
    if optimizer is None:
        return 0.0
    optimizer.step()  # fills the state, which is not part of later updates
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < _REPEATS and (len(seconds) < 3 or time.perf_counter() - started < _LONG):
        start = clock()
        squared_norm(held)
        optimizer.step()
        seconds.append(clock() - start)
    return statistics.median(seconds)


def update_overhead(name: str, device: torch.device, clock: Clock) -> float:
    """Seconds of an update beside its parameters: that of 1 and of 9 single numbers, drawn back to none."""
    few, many = (update_seconds(_numbers(count, device), name, clock) for count in (1, 9))
    return max(0.0, few - (many - few) / 8)


def _numbers(count: int, device: torch.device) -> list[Tensor]:
    numbers: list[Tensor] = [nn.Parameter(torch.ones(1, device=device)) for _ in range(count)]
    for number in numbers:
        number.grad = torch.ones_like(number)
    return numbers
