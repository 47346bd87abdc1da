"""Bytes that are alive, by small sums."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402  # after the skip
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from ignite_scheduler.profiler.live import LiveBytes  # noqa: E402

pytestmark = pytest.mark.torch


def test_what_comes_and_goes_within_the_work_counts_for_the_rise() -> None:
    start = torch.ones(10)

    def work() -> torch.Tensor:
        twice = start * 2
        kept = twice + 1
        return kept.view(2, 5)

    with LiveBytes() as live:
        result, rise = live.rise(work)
        assert rise == 2 * 10 * 4  # both at once
        assert live.held() == 10 * 4  # a view is no memory of its own
        del result
        assert live.held() == 0


def test_what_is_freed_meanwhile_makes_room() -> None:
    with LiveBytes() as live:
        held = [torch.ones(30)]

        def work() -> torch.Tensor:
            held.clear()
            return torch.ones(40)

        result, rise = live.rise(work)
        assert rise == 40 * 4 - 30 * 4
        assert live.held() == result.nbytes


@pytest.mark.parametrize("size", [1, 7])
def test_fake_tensors_live_as_long_as_real_ones(size: int) -> None:
    def rises() -> list[int]:
        model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 2))
        with LiveBytes() as live:
            output, forward = live.rise(lambda: model(torch.ones(size, 6)))
            gradient = torch.ones_like(output)
            _, first = live.rise(lambda: torch.autograd.backward(output, gradient))
            return [forward, first, live.held()]

    real = rises()
    with FakeTensorMode():
        assert rises() == real
    assert real[0] > 0
