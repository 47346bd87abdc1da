"""Seconds that layers take at the end of a step, as the engine does it: the norm of the gradient, then the update.

Each repeat takes place after a real backward pass over the whole chain, so gradients are where a pass leaves them and
not in a cache that only this layer has used.
"""

from __future__ import annotations

import time
from typing import Final

import torch
from torch import nn

from ignite_scheduler.engine.optimization import squared_norm
from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.model import Optimizer
from ignite_scheduler.profiler.passes import Bench, Clock, Stopwatch, run_pass
from ignite_scheduler.profiler.summary import typical

OPTIMIZERS: Final = ("sgd", "momentum", "adam", "adamw")
_REPEATS: Final = 9
_LEAST_REPEATS: Final = 3


def update_seconds(bench: Bench, name: str, clock: Clock, time_limit: float) -> list[float]:
    """Typical seconds of each layer's gradient norm and update by one optimizer; weights stay as they are.

    ``time_limit`` in seconds: after it no further repeat is begun once there are three.
    """
    rules = [Rule(stage.layers, _still(name)) for stage in bench.stages]
    rows: list[list[float]] = []
    watch = Stopwatch(clock)
    started = time.perf_counter()
    for repeat in range(_REPEATS + 1):
        if repeat > _LEAST_REPEATS and time.perf_counter() - started > time_limit:
            break
        run_pass(bench, bench.stages, min(bench.batches), watch)
        rows.append([_timed(stage.layers, rule, clock) for stage, rule in zip(bench.stages, rules, strict=True)])
    counted = rows[1:]  # the first one also made the optimizer's state
    return [typical(column) for column in zip(*counted, strict=True)]


def update_overhead(name: str, device: torch.device, clock: Clock) -> float:
    """Seconds of an update beside its parameters: that of 1 and of 9 single numbers, drawn back to none."""
    few, many = (_numbers_seconds(count, name, device, clock) for count in (1, 9))
    return max(0.0, few - (many - few) / 8)


def _numbers_seconds(count: int, name: str, device: torch.device, clock: Clock) -> float:
    layers = nn.ParameterList(torch.ones(1, device=device) for _ in range(count))
    rule = Rule(layers, _still(name))
    seconds = []
    for _ in range(_REPEATS + 1):
        for number in layers.parameters():
            number.grad = torch.ones_like(number)
        seconds.append(_timed(layers, rule, clock))
    return typical(seconds[1:])


def _timed(layers: nn.Module, rule: Rule, clock: Clock) -> float:
    start = clock()
    squared_norm(layers.parameters())
    rule.apply(0.0)
    return clock() - start


def _still(name: str) -> Optimizer:
    """The optimizer in a form that moves nothing."""
    return Optimizer(name=name, lr=0.0, options={"weight_decay": 0.0})
