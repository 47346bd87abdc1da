"""Models that are no chain, as users write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LENGTH = 6, 12


def rows(count: int = 12) -> list[tuple[Tensor, int]]:
    """Rows of numbers with a class."""
    values = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(1))
    return [(row, index % 3) for index, row in enumerate(values)]


def tokens(count: int, seed: int = 0) -> Tensor:
    """Sequences of tokens."""
    return torch.randint(0, 9, (count, LENGTH), generator=torch.Generator().manual_seed(seed))


class Skip(nn.Module):
    """A value that passes over the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.first(inputs)
        return self.last(self.middle(first.tanh()) + first)


class Block(nn.Module):
    """Attention over what a mask lets it see, with weights dropped by a function."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.queries, self.values, self.drop = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), drop

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        query = self.queries(inputs)
        read = functional.scaled_dot_product_attention(
            query, query, self.values(inputs), attn_mask=mask, dropout_p=self.drop if self.training else 0.0
        )
        return inputs + functional.dropout(read, self.drop, self.training)


class Decoder(nn.Module):
    """Tied embeddings; a mask, made from the tokens and from positions, that each block reads."""

    def __init__(self, depth: int = 3, drop: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, WIDTH)
        self.register_buffer("positions", torch.arange(LENGTH), persistent=False)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block(drop) for _ in range(depth))
        self.head = nn.Linear(WIDTH, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: Tensor) -> dict[str, Tensor]:
        there = (words > 0)[:, None, :] | torch.eye(LENGTH, dtype=torch.bool, device=words.device)
        mask = there & (self.positions[None, :] <= self.positions[:, None])
        values = self.embed(words) + self.places
        for block in self.blocks:
            values = block(values, mask)
        return {"hidden": values, "logits": self.head(values)}


class Last(Decoder):
    """Reads the place of the last word, which is small to send, at its end."""

    def forward(self, words: Tensor) -> Tensor:
        values = super().forward(words)["hidden"]
        last = (words > 0).long().sum(1).clamp(1) - 1
        return self.head(values[torch.arange(len(words)), last])


class Looped(nn.Module):
    """One block, run three times."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5))
        self.block = _Normed(self.inner) if norm else _Plain(self.inner)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        for _ in range(3):
            inputs = self.block(inputs)
        return self.head(inputs)


class _Plain(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.part = inner

    def forward(self, inputs: Tensor) -> Tensor:
        return self.part(inputs)


class _Normed(_Plain):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(super().forward(inputs))


class Staged(nn.Module):
    """Stages of blocks: the first passes one tensor on from block to block, the second two."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([_Stage(both=False), _Stage(both=True)])
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        for stage in self.stages:
            inputs = stage(inputs)
        return self.head(inputs)


class _Stage(nn.Module):
    def __init__(self, both: bool) -> None:
        super().__init__()
        self.both = both
        self.parts = nn.ModuleList(_Plain(nn.Linear(WIDTH, WIDTH)) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        first, second = self.parts
        return second(first(inputs)) + (inputs if self.both else 0.0)


class InPlace(Skip):
    """Adds to a tensor that is read before and after."""

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.first(inputs)
        middle = self.middle(first.tanh())
        middle += first
        first *= 2.0
        return self.last(middle + first)


class Stochastic(Skip):
    """Drops whole samples of its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = _Depth()  # type: ignore[assignment]


class _Depth(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        read = super().forward(inputs)
        return read * read.new_empty((len(read), 1)).bernoulli_(0.5) if self.training else read


class Fixed(Skip):
    """Trains its head only: one block's weights are frozen, another runs without a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        with torch.no_grad():
            middle = self.middle(hidden)
        return self.last(middle + hidden)


class Counting(Skip):
    """Counts its runs between its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.first(inputs)
        self.runs += 1
        return self.last(self.middle(first))


class Single(nn.Module):
    """Nothing but operations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


# -- models that cannot be cut --------------------------------------------------------------------------------------


class Looks(Skip):
    """Chooses by the values of the samples."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.first(inputs).sum() > 0:  # the line that is told
            return self.middle(inputs)
        return self.last(inputs)


class Routes(Skip):
    """Sends only some rows through a block; which, the samples decide."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        rows = (hidden[:, 0] > 0).nonzero().squeeze(-1)  # the line that is told
        return self.last(hidden.index_add(0, rows, self.middle(hidden[rows])))


class Picks(Skip):
    """As :class:`Routes`, with a mask."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        chosen = hidden[:, 0] > 0
        hidden = hidden.clone()
        hidden[chosen] = self.middle(hidden[chosen])  # the line that is told
        return self.last(hidden)


class Casts(Skip):
    """Computes a part in other elements."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.first(inputs)  # the line that is told
        return self.last(hidden.float())


class Averages(Skip):
    """Divides by the number of samples."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs) / len(inputs))


class Squares(Skip):
    """Makes a table of samples by samples."""

    def forward(self, inputs: Tensor) -> Tensor:
        table = torch.zeros(len(inputs) ** 2, device=inputs.device)
        return self.last(self.first(inputs)) + table.sum()


class Chance(Skip):
    """Draws noise between its blocks."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs) + torch.randn(WIDTH))


class Fails(Skip):
    """Its middle does not take what its first returns."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(WIDTH + 1, WIDTH)


@dataclass
class Box:
    """An object with a tensor in it."""

    held: Tensor


class _Unpack(nn.Linear):
    def forward(self, box: Any) -> Tensor:
        return super().forward(box.held)


class Boxed(Skip):
    """Passes an object between its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = _Unpack(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.middle(Box(self.first(inputs))))


class NoTensor(Skip):
    """Returns no tensor."""

    def forward(self, inputs: Tensor) -> str:
        return f"{self.first(inputs).shape}"
