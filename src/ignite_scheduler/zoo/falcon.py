"""Falcon as a chain: attention and perceptron side by side, keys that many heads share, rotary positions."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.attention import RotaryAttention, assemble, check_sizes
from ignite_scheduler.zoo.llama import Embedding
from ignite_scheduler.zoo.transformer import Head


class Block(nn.Module):
    """Causal attention and a perceptron that read the same vectors, through one norm or through one each."""

    def __init__(self, block: int, dim: int, heads: int, key_heads: int, norms: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim) if norms == 2 else None
        self.attention = RotaryAttention(block, dim, heads, key_heads)
        self.expand = nn.Linear(dim, 4 * dim, bias=False)
        self.contract = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        normed = self.norm1(inputs)
        other = normed if self.norm2 is None else self.norm2(inputs)
        return inputs + self.attention(normed) + self.contract(functional.gelu(self.expand(other)))  # type: ignore[no-any-return]


def falcon(
    vocabulary: int = 256,
    block: int = 64,
    dim: int = 128,
    heads: int = 4,
    key_heads: int = 2,
    norms: int = 2,
    depth: int = 4,
    tied: bool = True,
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head``.

    Input int64 ``[samples, length]`` with length at most ``block``; output ``[samples, length, vocabulary]``. ``norms``
    is 1 (as in 7B) or 2 (40B) a block; ``tied``: the head reads the embedding's weight.

    References
    ----------
    Almazrouei et al., "The Falcon Series of Open Language Models" (2023); shapes from the released ``config.json``.
    Parameters: the released files of 7B and 40B hold 7,217,189,760 and 41,835,970,560, which count the head's copy of
    the embedding too (``tied=False``); head and embedding are one weight (vLLM's ``falcon.py``: only the 11B has two),
    so a tied model has 6,921,720,704 and 41,303,293,952. Deviation: query, key and value are three maps, not one; a
    value that stood in one tensor with query and key would keep those in memory as well.
    """
    check_sizes("falcon", vocabulary=vocabulary, block=block, dim=dim, heads=heads, key_heads=key_heads, depth=depth)
    if norms not in {1, 2} or heads % key_heads:
        raise InputError(
            f"falcon: norms is 1 or 2 and heads a multiple of key_heads, found norms={norms}, heads={heads}, "
            f"key_heads={key_heads}"
        )
    blocks = (Block(block, dim, heads, key_heads, norms) for _ in range(depth))
    return assemble(Embedding(vocabulary, dim), blocks, Head(vocabulary, dim), tied=tied)
