"""Losses are sums over samples: parts of a batch add up to the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ignite_scheduler import zoo  # noqa: E402  # after the skip
from ignite_scheduler.errors import InputError  # noqa: E402

pytestmark = pytest.mark.torch


def batch(kind: str, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(samples)
    if kind == "classes":
        return torch.randn(samples, 5, generator=source).double(), torch.randint(5, (samples,), generator=source)
    if kind == "tokens":
        return torch.randn(samples, 3, 5, generator=source).double(), torch.randint(5, (samples, 3), generator=source)
    return torch.randn(samples, 2, generator=source).double(), torch.randn(samples, 2, generator=source).double()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["classes", "tokens", "numbers"]), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_microbatches_of_any_sizes_add_up(kind: str, sizes: list[int]) -> None:
    loss = zoo.loss("mse" if kind == "numbers" else "cross_entropy")
    output, target = batch(kind, sum(sizes))
    parts = sum(loss(o, t) for o, t in zip(output.split(sizes), target.split(sizes), strict=True))
    torch.testing.assert_close(loss(output, target), parts, rtol=1e-12, atol=0)


def test_a_sample_is_the_mean_of_its_tokens_or_elements() -> None:
    output, target = batch("tokens", 1)
    tokens = [zoo.loss("cross_entropy")(output[:, i], target[:, i]) for i in range(3)]
    torch.testing.assert_close(zoo.loss("cross_entropy")(output, target), sum(tokens) / 3)
    assert zoo.loss("mse")(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]])).item() == 5.0


def test_elements_are_matched_and_never_broadcast() -> None:
    assert zoo.loss("mse")(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0])).item() == 0.0
    with pytest.raises(InputError, match=r"\(2, 2\).*\(2, 1\)"):
        zoo.loss("mse")(torch.zeros(2, 2), torch.zeros(2, 1))


@pytest.mark.parametrize("target", [torch.zeros(2), torch.zeros(2, 3, dtype=torch.int64)])
def test_cross_entropy_says_which_targets_it_needs(target: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"whole-number targets of shape \(2,\)"):
        zoo.loss("cross_entropy")(torch.zeros(2, 5), target)
