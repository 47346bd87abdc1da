"""Counting FLOPs: PyTorch's own counter, and the one attention that it has no formula for."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

_Shape = tuple[int, ...]


def count_flops() -> FlopCounterMode:
    """A context in which matrix products, convolutions and attention are counted, two FLOPs a multiply-add.

    Notes
    -----
    Attention on a CPU is counted as PyTorch counts that on a GPU: both products in full (a causal mask halves neither),
    and in the backward four, and the first one once more, since scores are not kept. A key that several heads share
    counts for each of them.
    """
    aten = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: _attention,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
        },
    )


def _attention(query: _Shape, key: _Shape, value: _Shape, *_: Any, **__: Any) -> int:
    of_key, of_value = _products(query, key, value)
    return of_key + of_value


def _attention_backward(_gradient: _Shape, query: _Shape, key: _Shape, value: _Shape, *_: Any, **__: Any) -> int:
    of_key, of_value = _products(query, key, value)
    return 3 * of_key + 2 * of_value


def _products(query: _Shape, key: _Shape, value: _Shape) -> tuple[int, int]:
    """FLOPs of query × key and of weights × value; shapes are ``[samples, heads, length, dim]``."""
    scores = prod(query[:3]) * key[2]
    return 2 * scores * query[3], 2 * scores * value[3]
