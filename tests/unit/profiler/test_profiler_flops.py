"""FLOPs of attention, against hand-worked ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402  # after the skip

from ignite_scheduler.profiler.flops import count_flops  # noqa: E402

pytestmark = pytest.mark.torch

SAMPLES, HEADS, LENGTH, DIM = 2, 4, 16, 8
PRODUCT = 2 * SAMPLES * HEADS * LENGTH * LENGTH * DIM


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_attention_on_a_cpu_is_two_products_forward_and_five_backward(causal: bool, key_heads: int) -> None:
    query = torch.randn(SAMPLES, HEADS, LENGTH, DIM, requires_grad=True)
    key, value = (torch.randn(SAMPLES, key_heads, LENGTH, DIM, requires_grad=True) for _ in range(2))
    with count_flops() as forward:
        read = scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=key_heads < HEADS)
    with count_flops() as backward:
        read.sum().backward()
    assert type(read.grad_fn).__name__ == "ScaledDotProductFlashAttentionForCpuBackward0"
    assert forward.get_total_flops() == 2 * PRODUCT
    assert backward.get_total_flops() == 5 * PRODUCT
