"""Tiny models, data and losses that the tests name as ``field_models:…``, small enough to check by hand."""

import os

import torch
from torch import Tensor, nn


class Scale(nn.Module):
    """One weight w, output w·x: the gradient of Σ output with respect to w is Σ x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def one_weight() -> nn.Sequential:
    """A chain of two layers with a single weight in the first."""
    return nn.Sequential(Scale(), nn.Identity())


def one_to_eight() -> list[tuple[Tensor, Tensor]]:
    """Eight samples whose gradients for :func:`one_weight` are 1, 2, … 8."""
    return [(torch.tensor([float(i)]), torch.tensor([0.0])) for i in range(1, 9)]


def output_sum(output: Tensor, target: Tensor) -> Tensor:
    """The sum of the outputs; the target plays no part."""
    return output.sum() + 0.0 * target.sum()


def perceptron(width: int = 16, depth: int = 4, dropout: float = 0.0) -> nn.Sequential:
    """``depth`` tanh layers and a head of 4 outputs."""
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout)) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(width, 4))


class _Rows:
    def __init__(self, rows: int, width: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, width, generator=generator)
        self.y = torch.randint(0, 4, (rows,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def rows(rows: int = 40, width: int = 16, seed: int = 0) -> _Rows:
    """Rows of normal numbers with one of 4 classes each."""
    return _Rows(rows, width, seed)


class Raises(nn.Module):
    """Raises at the n-th call in training."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.training and self.calls == self.at:
            raise ValueError("this layer is made to fail")
        return x


def failing(at: int = 3, width: int = 16) -> nn.Sequential:
    """A chain whose layer ``bad`` raises."""
    model = nn.Sequential()
    model.add_module("good", nn.Linear(width, width))
    model.add_module("bad", Raises(at))
    model.add_module("head", nn.Linear(width, 4))
    return model


class Shrinks(nn.Module):
    """Passes one column less from the n-th call on."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x[:, :-1] if self.training and self.calls >= self.at else x


def shrinking(at: int = 3, width: int = 16) -> nn.Sequential:
    """A chain whose layer ``narrow`` changes the shape of its output in the middle of training."""
    model = nn.Sequential()
    model.add_module("good", nn.Linear(width, width))
    model.add_module("narrow", Shrinks(at))
    model.add_module("head", nn.Linear(width, 4))
    return model


class Leaves(nn.Module):
    """Ends its process without a word, as if all were well."""

    def forward(self, x: Tensor) -> Tensor:
        os._exit(0)


def leaving(width: int = 16) -> nn.Sequential:
    """A chain whose second layer ends its process."""
    return nn.Sequential(nn.Linear(width, 4), Leaves())


class Split(nn.Module):
    """x → (transposed halves, whole numbers that need no gradient): boundary tensors of several kinds."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right = x.chunk(2, dim=1)
        return torch.stack([left, right], dim=2).transpose(1, 2), x, (x > 0).to(torch.int64)


class Join(nn.Module):
    """(pair, whole, sign) → one tensor; the gradient of ``pair`` that it sends back is not contiguous."""

    def forward(self, parts: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        pair, whole, sign = parts
        return torch.cat([pair[:, 0], pair[:, 1]], dim=1) * sign + whole.sum(dim=1, keepdim=True)


def branching(width: int = 16) -> nn.Sequential:
    """A chain that carries a tuple over its middle."""
    return nn.Sequential(nn.Linear(width, width), Split(), Join(), nn.Linear(width, 4))


class Embed(nn.Module):
    """Tokens to vectors."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)


class Logits(nn.Module):
    """Vectors to logits by a weight of its own, or a shared one."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def tied(size: int = 11, width: int = 8) -> nn.Sequential:
    """An embedding and a head that share one weight, with a layer between."""
    embed = Embed(size, width)
    return nn.Sequential(embed, nn.Sequential(nn.Linear(width, width), nn.Tanh()), Logits(embed.table.weight))


def tokens(rows: int = 40, length: int = 6, size: int = 11) -> list[tuple[Tensor, Tensor]]:
    """Sequences of tokens; the target of each token is the next one."""
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, size, (rows, length + 1), generator=generator)
    return [(row[:-1], row[1:]) for row in text]


def normalised(width: int = 16) -> nn.Sequential:
    """A chain with batch statistics."""
    return nn.Sequential(
        nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)),
        nn.ReLU(inplace=True),
        nn.Linear(width, 4),
    )


class _Distorted:
    """Rows with noise drawn at each reading, and a target that follows from the noisy row."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = torch.full((16,), index / 24) + torch.randn(16)
        return row, (row[0] > 0).to(torch.int64)


def distorted() -> _Distorted:
    """Samples that differ at each reading by torch's random numbers."""
    return _Distorted()


def bare_ends(width: int = 16) -> nn.Sequential:
    """A chain whose first and last layers have no weights; nothing needs a gradient before the second."""
    return nn.Sequential(nn.Flatten(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4), nn.Identity())
