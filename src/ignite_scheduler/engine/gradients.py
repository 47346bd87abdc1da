"""Gradients of one rank's layers: one place in memory for each, from the first step to the last."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Gradient(NamedTuple):
    """Where a parameter's gradient is added up; ``reached``: whether anything was added in this step."""

    parameter: Tensor
    sum: Tensor
    reached: bool


class Gradients:
    """Gradients have their memory from the beginning and keep it.

    What a step needs does so not depend on how far it is, as the cost model says, every microbatch's backward does the
    same, and the allocator is not asked twice a step. A parameter that no gradient reached in a step still has none
    when the optimizer looks (see :meth:`collect`).
    """

    def __init__(self, layers: nn.Module) -> None:
        self._sums = [(p, torch.zeros_like(p)) for p in layers.parameters() if p.requires_grad]
        self.clear()

    def clear(self) -> None:
        """Set all gradients back to zero."""
        self._versions = []
        for parameter, gradient in self._sums:
            parameter.grad = gradient.zero_()
            self._versions.append(gradient._version)

    def all(self) -> list[Gradient]:
        """All of them, as they stand."""
        return [
            Gradient(parameter, gradient, gradient._version != version)
            for (parameter, gradient), version in zip(self._sums, self._versions, strict=True)
        ]

    def collect(self) -> None:
        """Say that all gradients of a step have been added up: parameters that none has reached have none now."""
        for gradient in self.all():
            if not gradient.reached:
                gradient.parameter.grad = None
