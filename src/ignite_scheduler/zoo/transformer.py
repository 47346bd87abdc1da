"""The model for sequences of tokens: a small decoder of the GPT-2 kind.

Deviations from Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): attention weights are not
dropped out (only embeddings and residual branches are), and the head has its own weight unless ``tied``.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.errors import InputError

_INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2."""


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
        middle: Tensor = inputs + self.dropout1(self._attend(self.norm1(inputs)))
        written: Tensor = self.dropout2(self.contract(functional.gelu(self.expand(self.norm2(middle)))))
        return middle + written

    def _attend(self, inputs: Tensor) -> Tensor:
        samples, length, dim = inputs.shape
        parts = self.attention(inputs).reshape(samples, length, 3, self.heads, dim // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        read = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(read.transpose(1, 2).reshape(samples, length, dim))  # type: ignore[no-any-return]


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
    ``tied``: the head reads the embedding's weight, so both must stand in one stage.
    """
    if min(vocabulary, block, dim, heads, depth) < 1 or dim % heads:
        raise InputError(
            f"gpt: all sizes must be at least 1 and dim a multiple of heads, found vocabulary={vocabulary}, "
            f"block={block}, dim={dim}, heads={heads}, depth={depth}"
        )
    embedding, head = Embedding(vocabulary, block, dim, dropout), Head(vocabulary, dim)
    layers: OrderedDict[str, nn.Module] = OrderedDict(embedding=embedding)
    for index in range(depth):
        layers[f"block{index}"] = Block(dim, heads, dropout)
    layers["head"] = head
    chain = nn.Sequential(layers)
    for module in chain.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_INIT_STD)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    if tied:
        head.logits.weight = embedding.token.weight
    return chain
