"""BERT with its masked-language-model head, as a chain."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.zoo.attention import assemble, attend_packed, check_sizes

_EPSILON = 1e-12
_NUM_SEGMENTS = 2


class Embedding(nn.Module):
    """Tokens ``[samples, length]`` (int64) to vectors ``[samples, length, dim]``: token, position and segment."""

    def __init__(self, vocabulary: int, block: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Embedding(block, dim)
        self.segment = nn.Embedding(_NUM_SEGMENTS, dim)
        self.norm = nn.LayerNorm(dim, eps=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens, all of which belong to the first segment."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        vectors = self.token(tokens) + self.position(positions) + self.segment(torch.zeros_like(positions))
        return self.dropout(self.norm(vectors))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Self-attention in both directions, then a two-layer perceptron; the sum with its input is normalised."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.Linear(dim, 3 * dim)
        self.projection = nn.Linear(dim, dim)
        self.norm1 = nn.LayerNorm(dim, eps=_EPSILON)
        self.expand = nn.Linear(dim, 4 * dim)
        self.contract = nn.Linear(4 * dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=_EPSILON)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read all others."""
        read = attend_packed(self.attention(inputs), self.heads, causal=False)
        middle = self.norm1(inputs + self.dropout1(self.projection(read)))
        written = self.contract(functional.gelu(self.expand(middle)))
        return self.norm2(middle + self.dropout2(written))  # type: ignore[no-any-return]


class Head(nn.Module):
    """What stood at each position: logits ``[samples, length, vocabulary]``."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=_EPSILON)
        self.logits = nn.Linear(dim, vocabulary)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the token at each position."""
        return self.logits(self.norm(functional.gelu(self.transform(inputs))))  # type: ignore[no-any-return]


def bert(
    vocabulary: int = 256,
    block: int = 64,
    dim: int = 128,
    heads: int = 4,
    depth: int = 4,
    dropout: float = 0.1,
    tied: bool = True,
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head``.

    Input int64 ``[samples, length]`` with length at most ``block``; output ``[samples, length, vocabulary]``: of the
    token that stood at each position, some of which the input hides. ``tied``: the head reads the embedding's weight.

    References
    ----------
    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), section 3: 110M (base) and 340M
    (large) parameters. Exactly 109,514,298 and 335,174,458 with this head, as Hugging Face's ``BertForMaskedLM`` of
    ``bert-base-uncased`` and ``bert-large-uncased`` counts them. Deviations: neither the pooler nor the prediction of
    the next sentence; samples have one segment and no padding; attention weights are not dropped out.
    """
    check_sizes("bert", vocabulary=vocabulary, block=block, dim=dim, heads=heads, depth=depth)
    blocks = (Block(dim, heads, dropout) for _ in range(depth))
    return assemble(Embedding(vocabulary, block, dim, dropout), blocks, Head(vocabulary, dim), tied=tied)
