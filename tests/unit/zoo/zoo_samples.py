"""A user's own models, data and losses, as references name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

NOT_CALLABLE = 3


def chain(width: int = 4) -> nn.Sequential:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(3, width), relu, nn.Linear(width, width), relu, nn.Linear(width, 2))


class InOrder(nn.Module):
    """Runs its children one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.first(inputs))


class Doubled(torch.autograd.Function):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2.0 * gradient


class WithOwnGradient(InOrder):
    """Uses a function with a gradient of its own between its children."""

    def forward(self, inputs: Tensor) -> Tensor:
        return Doubled.apply(super().forward(inputs))


class WithOwnWeight(InOrder):
    """Keeps a parameter outside of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


def reused() -> nn.Sequential:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def no_module() -> str:
    return "not a module"


def failing() -> nn.Module:
    raise KeyError("no weights here")


def attention(dropout: float = 0.1) -> nn.Sequential:
    return nn.Sequential(nn.TransformerEncoderLayer(8, 2, dropout=dropout))


class Widening(nn.Module):
    """Returns several tensors."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, inputs * 2


class Narrowing(nn.Module):
    """Takes several tensors."""

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        return inputs[0] + inputs[1]


def tuples() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), Widening(), Narrowing())


def open_ended() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), Widening())


def mixing() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.Flatten(0))


def with_batch_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


class Centred(nn.Module):
    """Takes the mean over the samples away: what each gives depends on the others."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


def centred() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), Centred(), nn.Linear(4, 2))


def rows(length: int = 4) -> Sequence[tuple[Tensor, int]]:
    return [(torch.arange(3.0) + i, i % 2) for i in range(length)]


def ragged() -> Sequence[tuple[Tensor, int]]:
    return [(torch.zeros(3 + i), 0) for i in range(2)]


def triples() -> Sequence[tuple[int, int, int]]:
    return [(1, 2, 3)] * 2


def words() -> Sequence[tuple[str, int]]:
    return [("a", 0), ("b", 1)]


def mappings() -> Sequence[dict[str, int]]:
    return [{"text": 1, "label": 0}] * 2


def named_inputs() -> Sequence[tuple[dict[str, Tensor], int]]:
    return [({"tokens": torch.zeros(3)}, 0)] * 2


def mean_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, target)


def sum_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, target, reduction="sum")


def each_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, target, reduction="none")


def detached_loss(output: Tensor, target: Tensor) -> Tensor:
    return sum_loss(output, target).detach()


def looks_at_its_weights() -> nn.Sequential:
    """A chain whose builder reads the value of a weight."""
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.Dropout(abs(layer.weight[0, 0].item()) * 0.0))
