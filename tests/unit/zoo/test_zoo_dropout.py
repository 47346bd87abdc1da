"""Keyed dropout: masks follow the sample, whatever the batch was cut into."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ignite_scheduler.zoo.dropout import KeyedDropout, drawing, key_dropouts  # noqa: E402  # after the skip

pytestmark = pytest.mark.torch


def mask(
    samples: torch.Tensor,
    *,
    features: int = 64,
    p: float = 0.5,
    seed: int = 0,
    step: int = 0,
    layer: str = "a",
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    dropout = KeyedDropout(p)
    dropout.layer = layer
    with drawing(seed, step, samples):
        return dropout(torch.ones(len(samples), features, dtype=dtype)) != 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 2**40), st.integers(0, 10**6))
def test_masks_do_not_depend_on_how_the_batch_is_cut(sizes: list[int], seed: int, step: int) -> None:
    samples = torch.arange(sum(sizes))
    whole = mask(samples, seed=seed, step=step)
    parts = [mask(part, seed=seed, step=step) for part in samples.split(sizes)]
    assert torch.equal(whole, torch.cat(parts))


def test_masks_do_not_depend_on_the_precision() -> None:
    samples = torch.arange(8)
    assert torch.equal(mask(samples, dtype=torch.float32), mask(samples, dtype=torch.float64))
    assert torch.equal(mask(samples, dtype=torch.float32), mask(samples, dtype=torch.bfloat16))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_that_is_lost_is_p(p: float) -> None:
    kept = mask(torch.arange(256), features=1024, p=p).double().mean().item()
    assert kept == pytest.approx(1 - p, abs=0.004)  # four standard deviations of 2¹⁸ independent draws


@pytest.mark.parametrize("other", [{"seed": 1}, {"step": 1}, {"layer": "b"}])
def test_other_seeds_steps_and_layers_draw_independently(other: dict[str, object]) -> None:
    samples = torch.arange(256)
    agreement = (mask(samples, features=1024) == mask(samples, features=1024, **other)).double().mean().item()
    assert agreement == pytest.approx(0.5, abs=0.004)


def test_samples_and_elements_draw_independently() -> None:
    drawn = mask(torch.arange(256), features=256).double() - 0.5
    for matrix in (drawn, drawn.T):
        correlation = (matrix @ matrix.T) * 4 / 256
        off_diagonal = correlation[~torch.eye(256, dtype=torch.bool)]
        assert off_diagonal.abs().max().item() < 6 / 16  # six standard deviations of a mean of 256 signs
        assert off_diagonal.std().item() == pytest.approx(1 / 16, rel=0.05)


def test_the_mean_is_kept_and_evaluation_changes_nothing() -> None:
    dropout = KeyedDropout(0.25)
    values = torch.ones(64, 1024)
    with drawing(0, 0, torch.arange(64)):
        assert dropout(values).mean().item() == pytest.approx(1.0, abs=0.01)
    dropout.eval()
    assert dropout(values) is values


def test_every_dropout_of_a_model_is_keyed_even_one_that_stands_twice() -> None:
    shared = torch.nn.Dropout(0.5)
    model = torch.nn.Sequential(torch.nn.Sequential(shared, torch.nn.Linear(2, 2), shared), torch.nn.Dropout2d(0.5))
    key_dropouts(model)
    keyed = {name: module for name, module in model.named_modules() if isinstance(module, KeyedDropout)}
    assert sorted(keyed) == ["0.0", "0.2", "1"]
    assert [keyed[name].layer for name in sorted(keyed)] == ["0.0", "0.2", "1"]
    assert keyed["1"].whole_channels
