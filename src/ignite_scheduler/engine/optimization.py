"""Update rules, learning rates and the global gradient norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import LearningRateSchedule, Optimizer

_RULES: Final[Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, Any]]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
"""Name → torch's class and what differs from its defaults. All are asked for fused updates: AdamW takes a third of the
time that way on a CPU."""

LR_SCHEDULES: Final = ("constant", "linear", "cosine")

_CLIP_EPSILON: Final = 1e-6
"""As in ``torch.nn.utils.clip_grad_norm_``."""


def make_optimizer(parameters: Iterable[Tensor], rule: Optimizer) -> torch.optim.Optimizer | None:
    """The optimizer of these parameters; None where there are none.

    Raises
    ------
    InputError
        Unknown rule or option.
    """
    if rule.name not in _RULES:
        raise InputError(f"unknown optimizer {rule.name!r}; there are: {', '.join(_RULES)}")
    parameters = list(parameters)
    if not parameters:
        return None
    make, defaults = _RULES[rule.name]
    try:
        return make(parameters, lr=rule.lr, **{"fused": True, **defaults, **rule.options})
    except (TypeError, ValueError) as error:
        raise InputError(f"optimizer {rule.name!r} does not take these options: {error}") from error


def coming_state(optimizer: torch.optim.Optimizer | None, rule: Optimizer) -> Tensor | None:
    """Memory, filled, as large as the state that the optimizer makes at its first update; None where it makes none."""
    if optimizer is None or optimizer.state:
        return None
    probe = torch.zeros(2, requires_grad=True)
    probe.grad = torch.zeros(2)
    trial = make_optimizer([probe], rule)
    assert trial is not None
    trial.step()
    per_element = sum(isinstance(t, Tensor) and t.shape == probe.shape for t in trial.state[probe].values())
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
    num_bytes = per_element * sum(parameter.nbytes for parameter in moved)
    return torch.ones(num_bytes, dtype=torch.uint8, device=moved[0].device) if num_bytes else None


def learning_rate(schedule: LearningRateSchedule, base: float, step: int, total: int) -> float:
    """The learning rate of step ``step`` (from 0) of ``total``.

    It rises linearly over the warm-up's steps, then stays (``constant``) or falls to 0 at ``total`` along a line or
    half a cosine.

    Raises
    ------
    InputError
        Unknown schedule.

    >>> [learning_rate(LearningRateSchedule(name="linear", warmup=2), 1.0, t, 6) for t in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if schedule.name not in LR_SCHEDULES:
        raise InputError(f"unknown lr_schedule {schedule.name!r}; there are: {', '.join(LR_SCHEDULES)}")
    if step < schedule.warmup:
        return base * (step + 1) / schedule.warmup
    if schedule.name == "constant":
        return base
    done = (step - schedule.warmup) / max(1, total - schedule.warmup)
    if schedule.name == "linear":
        return base * max(0.0, 1.0 - done)
    return base * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def set_learning_rate(optimizer: torch.optim.Optimizer | None, rate: float) -> None:
    """Let the next update use ``rate``."""
    if optimizer is not None:
        for group in optimizer.param_groups:
            group["lr"] = rate


def squared_norm(parameters: Iterable[Tensor]) -> float:
    """Sum of squares of all gradients: each tensor's norm in its own precision (at least float32), added in float64.

    A tensor lies within one stage, so the sum does not depend on the split beyond the last bits of float64.
    """
    total = 0.0
    for parameter in parameters:
        if parameter.grad is not None:
            dtype = torch.promote_types(parameter.grad.dtype, torch.float32)
            total += float(torch.linalg.vector_norm(parameter.grad, dtype=dtype)) ** 2
    return total


def clip(parameters: Iterable[Tensor], norm: float, limit: float) -> None:
    """Scale gradients so that their global norm, which is ``norm``, does not exceed ``limit``."""
    factor = limit / (norm + _CLIP_EPSILON)
    if factor < 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
