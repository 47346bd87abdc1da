"""GPT as a chain: a decoder of the GPT-2 and GPT-3 kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.zoo.attention import assemble, attend_packed, check_sizes


class Embedding(nn.Module):
    """Tokens ``[samples, length]`` (int64) to vectors ``[samples, length, dim]``: token plus learnt position."""

    def __init__(self, vocabulary: int, block: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Embedding(block, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.token(tokens) + self.position(positions))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Causal self-attention and a two-layer perceptron, each on a normalised residual branch."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.Linear(dim, 3 * dim)
        self.projection = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 4 * dim)
        self.contract = nn.Linear(4 * dim, dim)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        read = attend_packed(self.attention(self.norm1(inputs)), self.heads, causal=True)
        middle: Tensor = inputs + self.dropout1(self.projection(read))
        written: Tensor = self.dropout2(self.contract(functional.gelu(self.expand(self.norm2(middle)))))
        return middle + written


class Head(nn.Module):
    """Final norm and the map to logits ``[samples, length, vocabulary]``."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.logits = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the next token at each position."""
        return self.logits(self.norm(inputs))  # type: ignore[no-any-return]


def gpt(
    vocabulary: int = 256,
    block: int = 64,
    dim: int = 128,
    heads: int = 4,
    depth: int = 4,
    dropout: float = 0.1,
    tied: bool = False,
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head``.

    Input int64 ``[samples, length]`` with length at most ``block``; output ``[samples, length, vocabulary]``.
    ``tied``: the head reads the embedding's weight.

    References
    ----------
    Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 2.3 and table 2, whose figures
    OpenAI corrected later: the released models have 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200 parameters
    (Keras Hub's presets state them), tied. Brown et al., "Language Models are Few-Shot Learners" (2020), table 2.1:
    0.125 to 175.0 billion. Deviations: attention weights are not dropped out (only embeddings and residual branches
    are), GELU is exact, the attention of GPT-3 is dense in every block.
    """
    check_sizes("gpt", vocabulary=vocabulary, block=block, dim=dim, heads=heads, depth=depth)
    blocks = (Block(dim, heads, dropout) for _ in range(depth))
    return assemble(Embedding(vocabulary, block, dim, dropout), blocks, Head(vocabulary, dim), tied=tied)
