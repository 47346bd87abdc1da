"""LLaMA as a chain: rotary positions, RMS norms, gated perceptrons, no biases."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.zoo.attention import RotaryAttention, assemble, check_sizes

_EPSILON = 1e-6


class Embedding(nn.Module):
    """Tokens ``[samples, length]`` (int64) to vectors ``[samples, length, dim]``."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens."""
        return self.token(tokens)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Causal attention, then a perceptron gated by SiLU (SwiGLU), each on a residual branch with an RMS norm."""

    def __init__(self, block: int, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(dim, eps=_EPSILON)
        self.attention = RotaryAttention(block, dim, heads, heads)
        self.norm2 = nn.RMSNorm(dim, eps=_EPSILON)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.expand = nn.Linear(dim, hidden, bias=False)
        self.contract = nn.Linear(hidden, dim, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        middle = inputs + self.attention(self.norm1(inputs))
        normed = self.norm2(middle)
        return middle + self.contract(functional.silu(self.gate(normed)) * self.expand(normed))  # type: ignore[no-any-return]


class Head(nn.Module):
    """Final norm and the map to logits ``[samples, length, vocabulary]``, with a weight of its own."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=_EPSILON)
        self.logits = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the next token at each position."""
        return self.logits(self.norm(inputs))  # type: ignore[no-any-return]


def llama(
    vocabulary: int = 256, block: int = 64, dim: int = 128, heads: int = 4, hidden: int = 344, depth: int = 4
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head``.

    Input int64 ``[samples, length]`` with length at most ``block``; output ``[samples, length, vocabulary]``.
    ``hidden`` is the width of the perceptrons.

    References
    ----------
    Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023), section 2.2 and table 2. Parameters:
    6,738,415,616 (7B), 13,015,864,320 (13B) and 65,285,660,672 (65B) in the released weights, as Keras Hub's presets
    and the tools that count a loaded checkpoint print them.
    """
    check_sizes("llama", vocabulary=vocabulary, block=block, dim=dim, heads=heads, hidden=hidden, depth=depth)
    blocks = (Block(block, dim, heads, hidden) for _ in range(depth))
    return assemble(Embedding(vocabulary, dim), blocks, Head(vocabulary, dim))
