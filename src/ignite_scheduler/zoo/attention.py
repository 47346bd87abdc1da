"""Parts that the transformers share: attention with one or several heads a key, rotary positions, ALiBi, fresh weights.

Vectors are ``[samples, length, dim]``, heads ``[samples, heads, length, dim ÷ heads]``. Tables that depend on positions
alone are buffers: they are not parameters, are not saved with a model, and need no gradient.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ignite_scheduler.errors import InputError

INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2, BERT and what followed them."""
_ROTARY_BASE = 10_000.0


def check_sizes(model: str, **sizes: int) -> None:
    """Refuse sizes below 1, and a ``dim`` that cannot be shared out among ``heads``."""
    if min(sizes.values()) < 1 or sizes["dim"] % sizes["heads"]:
        found = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise InputError(f"{model}: all sizes must be at least 1 and dim a multiple of heads, found {found}")


def start(chain: nn.Sequential) -> nn.Sequential:
    """Fresh weights, in place: small normal ones, and no bias."""
    for module in chain.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INIT_STD)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return chain


def assemble(
    embedding: nn.Module, blocks: Iterable[nn.Module], head: nn.Module, *, tied: bool = False
) -> nn.Sequential:
    """Chain ``embedding``, ``block0`` … , ``head`` with fresh weights.

    ``tied``: the head's ``logits`` read the weight of the embedding's ``token``.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(embedding=embedding)
    layers |= {f"block{index}": block for index, block in enumerate(blocks)}
    layers["head"] = head
    chain = start(nn.Sequential(layers))
    if tied:
        head.get_submodule("logits").weight = embedding.get_submodule("token").weight
    return chain


def in_heads(vectors: Tensor, heads: int) -> Tensor:
    """``[samples, length, heads · size]`` as ``[samples, heads, length, size]``."""
    samples, length, width = vectors.shape
    return vectors.reshape(samples, length, heads, width // heads).transpose(1, 2)


def out_of_heads(heads: Tensor) -> Tensor:
    """``[samples, heads, length, size]`` as ``[samples, length, heads · size]``."""
    samples, count, length, size = heads.shape
    return heads.transpose(1, 2).reshape(samples, length, count * size)


def attend_packed(packed: Tensor, heads: int, *, causal: bool) -> Tensor:
    """What each position reads, from query, key and value that stand side by side in ``[samples, length, 3 · dim]``."""
    query, key, value = (in_heads(part, heads) for part in packed.chunk(3, dim=-1))
    return out_of_heads(functional.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Rotary(nn.Module):
    """Rotary positions: each pair of a head's elements is turned by an angle that grows with the position.

    Su et al., "RoFormer" (2021), section 3.2.2. Deviation, as in most later code: element i is paired with element
    i + size ÷ 2 instead of its neighbour, which is the same but for the order of a head's elements.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, block: int, size: int) -> None:
        super().__init__()
        speeds = _ROTARY_BASE ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(block)[:, None] * speeds
        self.register_buffer("cosine", torch.cat((angles, angles), dim=-1).cos(), persistent=False)
        self.register_buffer("sine", torch.cat((angles, angles), dim=-1).sin(), persistent=False)

    def forward(self, heads: Tensor) -> Tensor:
        """The heads ``[samples, heads, length, size]``, turned."""
        length = heads.shape[-2]
        left, right = heads.chunk(2, dim=-1)
        return heads * self.cosine[:length] + torch.cat((-right, left), dim=-1) * self.sine[:length]


class RotaryAttention(nn.Module):
    """Causal attention without biases; each key and value is read by ``heads ÷ key_heads`` heads.

    One key for all heads is multi-query attention (Shazeer, "Fast transformer decoding", 2019), several are
    grouped-query attention (Ainslie et al., "GQA", 2023).
    """

    def __init__(self, block: int, dim: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        size = dim // heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, key_heads * size, bias=False)
        self.value = nn.Linear(dim, key_heads * size, bias=False)
        self.rotary = Rotary(block, size)
        self.projection = nn.Linear(dim, dim, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        query = self.rotary(in_heads(self.query(inputs), self.heads))
        key = self.rotary(in_heads(self.key(inputs), self.key_heads))
        value = in_heads(self.value(inputs), self.key_heads)
        read = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.key_heads < self.heads
        )
        return self.projection(out_of_heads(read))  # type: ignore[no-any-return]


def alibi_slopes(heads: int) -> list[float]:
    """How fast each head forgets: a geometric sequence that starts at its own ratio, 2^(−8 ÷ heads).

    For a number of heads that is no power of two, the sequence of the next lower power, then every other element of
    the sequence of twice that power. Press et al., "Train short, test long" (2022), section 3 and its code.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (index + 1) / power) for index in range(power)]
    between = [2.0 ** (-4 * (2 * index + 1) / power) for index in range(heads - power)]
    return own + between


class AlibiAttention(nn.Module):
    """Causal attention that knows positions by ALiBi alone: a score falls with the distance, faster in some heads.

    The scores are worked out in full and the weights made of them kept for the backward, as BLOOM's own code does;
    an added distance that depends on the head keeps the fused attention out.
    """

    distance: Tensor
    future: Tensor

    def __init__(self, block: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(dim, 3 * dim)
        self.projection = nn.Linear(dim, dim)
        # A row of scores may be shifted as a whole: −slope · (i − j) may be written slope · j.
        distance = torch.tensor(alibi_slopes(heads))[:, None, None] * torch.arange(block)
        self.register_buffer("distance", distance, persistent=False)
        future = torch.ones(block, block, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors ``[samples, length, dim]``, each having read those before it."""
        length = inputs.shape[1]
        query, key, value = (in_heads(part, self.heads) for part in self.packed(inputs).chunk(3, dim=-1))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + self.distance[..., :length]
        weights = scores.masked_fill(self.future[:length, :length], -math.inf).softmax(dim=-1)
        return self.projection(out_of_heads(weights @ value))  # type: ignore[no-any-return]
