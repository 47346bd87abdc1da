"""BLOOM as a chain: positions by ALiBi alone, a norm behind the embedding, biases everywhere."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.zoo.attention import AlibiAttention, assemble, check_sizes
from ignite_scheduler.zoo.transformer import Head


class Embedding(nn.Module):
    """Tokens ``[samples, length]`` (int64) to normalised vectors ``[samples, length, dim]``."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens."""
        return self.norm(self.token(tokens))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Causal attention, then a two-layer perceptron, each on a normalised residual branch."""

    def __init__(self, block: int, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = AlibiAttention(block, dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 4 * dim)
        self.contract = nn.Linear(4 * dim, dim)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        middle = inputs + self.attention(self.norm1(inputs))
        written = self.contract(functional.gelu(self.expand(self.norm2(middle)), approximate="tanh"))
        return middle + written  # type: ignore[no-any-return]


def bloom(
    vocabulary: int = 256, block: int = 64, dim: int = 128, heads: int = 4, depth: int = 4, tied: bool = True
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head``.

    Input int64 ``[samples, length]`` with length at most ``block``; output ``[samples, length, vocabulary]``.
    ``tied``: the head reads the embedding's weight.

    References
    ----------
    BigScience, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model" (2022), section 3.2 and table 3.
    Parameters: 176,247,271,424, of which 3,596,615,680 in the embedding, and 7,069,016,064 for BLOOM-7B1, by their
    model cards.
    """
    check_sizes("bloom", vocabulary=vocabulary, block=block, dim=dim, heads=heads, depth=depth)
    blocks = (Block(block, dim, heads) for _ in range(depth))
    return assemble(Embedding(vocabulary, dim), blocks, Head(vocabulary, dim), tied=tied)
