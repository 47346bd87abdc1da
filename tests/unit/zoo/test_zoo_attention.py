"""Attention of several kinds, against worked-out forms."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from ignite_scheduler.zoo.attention import (  # noqa: E402  # after the skip
    AlibiAttention,
    Rotary,
    RotaryAttention,
    alibi_slopes,
    attend_packed,
    in_heads,
    out_of_heads,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_heads_are_taken_apart_and_put_together_again() -> None:
    vectors = torch.randn(2, 5, 12)
    assert torch.equal(out_of_heads(in_heads(vectors, 3)), vectors)
    assert torch.equal(in_heads(vectors, 3)[1, 2, 4], vectors[1, 4, 8:])


def test_a_rotation_keeps_lengths_and_products_depend_on_distances_alone() -> None:
    rotary = Rotary(block=16, size=8).double()
    query, key = (torch.randn(8).double().expand(1, 1, 16, 8) for _ in range(2))
    turned, other = rotary(query), rotary(key)
    torch.testing.assert_close(turned.norm(dim=-1), query.norm(dim=-1))
    products = (turned @ other.transpose(-2, -1))[0, 0]
    for distance in (0, 1, 7):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-6, atol=1e-6)
    assert torch.equal(turned[0, 0, 0], query[0, 0, 0]), "the first position is not turned"


def test_with_a_key_for_each_head_attention_is_that_of_packed_heads_turned() -> None:
    layer = RotaryAttention(block=6, dim=8, heads=2, key_heads=2)
    inputs = torch.randn(3, 6, 8)
    query, key = (
        out_of_heads(layer.rotary(in_heads(part(inputs), 2))) for part in (layer.query, layer.key)
    )  # fmt: skip
    read = attend_packed(torch.cat((query, key, layer.value(inputs)), dim=-1), 2, causal=True)
    torch.testing.assert_close(layer(inputs), layer.projection(read))


@pytest.mark.parametrize("key_heads", [1, 2])
def test_shared_keys_are_those_of_a_layer_that_repeats_them(key_heads: int) -> None:
    shared, full = RotaryAttention(6, 16, 4, key_heads), RotaryAttention(6, 16, 4, 4)
    with torch.no_grad():
        for name in ("query", "projection"):
            getattr(full, name).weight.copy_(getattr(shared, name).weight)
        for name in ("key", "value"):
            heads = getattr(shared, name).weight.view(key_heads, 4, 16)
            getattr(full, name).weight.copy_(heads.repeat_interleave(4 // key_heads, dim=0).reshape(16, 16))
    inputs = torch.randn(3, 6, 16)
    torch.testing.assert_close(shared(inputs), full(inputs))


def test_slopes_of_other_than_powers_of_two_are_filled_from_the_next() -> None:
    assert alibi_slopes(8) == [2.0**-power for power in range(1, 9)]
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert len(set(alibi_slopes(112))) == 112


def test_alibi_takes_the_distance_from_the_scores() -> None:
    layer = AlibiAttention(block=5, dim=8, heads=2)
    inputs = torch.randn(2, 5, 8)
    query, key, value = (in_heads(part, 2) for part in layer.packed(inputs).chunk(3, dim=-1))
    expected = torch.zeros_like(query)
    for head, slope in enumerate(alibi_slopes(2)):
        for here in range(5):
            scores = [
                query[:, head, here] @ key[:, head, there].T / math.sqrt(4) - slope * (here - there)
                for there in range(here + 1)
            ]
            weights = torch.stack([score.diagonal() for score in scores], dim=-1).softmax(-1)
            expected[:, head, here] = torch.einsum("st,std->sd", weights, value[:, head, : here + 1])
    torch.testing.assert_close(layer(inputs), layer.projection(out_of_heads(expected)))


def test_tables_of_positions_are_no_parameters_and_are_not_saved() -> None:
    for layer in (Rotary(4, 4), AlibiAttention(4, 8, 2)):
        assert not any(name in layer.state_dict() for name, _ in layer.named_buffers())
