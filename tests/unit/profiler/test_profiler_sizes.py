"""Bytes and FLOPs of small layers, against hand-worked ones."""

from __future__ import annotations

from collections import OrderedDict

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402  # after the skip

from ignite_scheduler import zoo  # noqa: E402
from ignite_scheduler.engine.chain import StageModule  # noqa: E402
from ignite_scheduler.profiler import passes, sizes  # noqa: E402

pytestmark = pytest.mark.torch


def bench(chain: nn.Sequential, inputs: torch.Tensor, targets: torch.Tensor, loss: str = "mse") -> passes.Bench:
    stages = tuple(
        StageModule(index=index, layers=nn.Sequential(OrderedDict([(name, module)])))
        for index, (name, module) in enumerate(chain.named_children())
    )
    return passes.Bench(
        stages=stages,
        whole=StageModule(index=0, layers=chain),
        loss=zoo.loss(loss),
        batches={len(inputs): ((inputs,), targets)},
        device=torch.device("cpu"),
        seed=0,
    )


def test_a_linear_layer_keeps_its_input() -> None:
    chain = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    first, second, third = sizes.layer_sizes(bench(chain, torch.ones(4, 3), torch.zeros(4, 2)))
    assert first.parameter_bytes == (3 * 5 + 5) * 4
    assert first.output_bytes == 5 * 4
    assert first.activation_bytes == 3 * 4
    assert first.forward_flops == 2 * 3 * 5
    assert first.backward_flops == 2 * 3 * 5  # the sample itself needs no gradient
    # ReLU saves its output, which is the next layer's input and counts there; its own input counts always.
    assert second.activation_bytes == 5 * 4
    # The last forward ends with the loss, which saves the difference of two numbers a sample.
    assert third.activation_bytes == 5 * 4 + 2 * 4
    assert third.backward_flops == 2 * (2 * 5 * 2)


def test_a_tensor_saved_twice_counts_once_and_views_count_as_one() -> None:
    class Cubed(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            doubled = inputs * 2
            return doubled.view(-1, 6) * doubled.view(-1, 6) * 3

    chain = nn.Sequential(nn.Linear(6, 6), Cubed())
    _, cubed = sizes.layer_sizes(bench(chain, torch.ones(2, 6), torch.zeros(2, 6)))
    assert cubed.activation_bytes == 6 * 4 + 6 * 4 + 6 * 4  # its input, `doubled` once, the loss's difference


def test_half_the_bytes_at_half_the_precision() -> None:
    full, half = (
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(t) for t in (torch.float64, torch.float32)
    )
    a = sizes.layer_sizes(bench(full, torch.ones(4, 3).double(), torch.zeros(4, 2).double()))
    b = sizes.layer_sizes(bench(half, torch.ones(4, 3), torch.zeros(4, 2)))
    for wide, narrow in zip(a, b, strict=True):
        assert wide.activation_bytes == 2 * narrow.activation_bytes
        assert wide.parameter_bytes == 2 * narrow.parameter_bytes


@pytest.mark.parametrize("name", ["alexnet", "squeezenet", "gpt"])
def test_layers_add_up_to_what_the_chain_keeps_as_one_stage(name: str) -> None:
    from ignite_scheduler.model import Reference
    from ignite_scheduler.zoo.check import take

    args = {
        "alexnet": {"width": 0.2, "size": 64, "classes": 10},
        "squeezenet": {"width": 0.2, "size": 64, "classes": 10},
        "gpt": {"dim": 32, "depth": 2, "block": 32},
    }[name]
    reference = Reference(zoo=name, args=args)
    inputs, targets = take(zoo.dataset(zoo.default_data(reference)), range(4))
    ready = bench(zoo.build(reference, seed=0), inputs, targets, "cross_entropy")
    total = sum(layer.activation_bytes for layer in sizes.layer_sizes(ready))
    assert sizes.saved_bytes_whole(ready) == pytest.approx(total, rel=0.02)


def test_a_pass_gives_the_gradients_of_the_whole_chain() -> None:
    torch.manual_seed(0)
    chain = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    ready = bench(chain, torch.randn(4, 3).double(), torch.randn(4, 2).double())
    watch = passes.Stopwatch(iter(range(1000)).__next__)
    rows = passes.run_pass(ready, ready.stages, 4, watch)
    assert rows == [(1, 1)] * 3
    by_layer = [parameter.grad.clone() for parameter in chain.parameters()]
    chain.zero_grad()
    assert passes.run_pass(ready, (ready.whole,), 4, watch) == [(1, 1)]
    for expected, parameter in zip(by_layer, chain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=0)


def test_the_clock_is_read_around_layers_only_and_every_size_is_run() -> None:
    chain = nn.Sequential(nn.Linear(3, 2))
    ready = bench(chain, torch.ones(2, 3), torch.zeros(2, 2))
    ready = passes.Bench(
        stages=ready.stages,
        whole=ready.whole,
        loss=ready.loss,
        batches={**ready.batches, 1: ((torch.ones(1, 3),), torch.zeros(1, 2))},
        device=ready.device,
        seed=0,
    )
    told: list[str] = []
    timed = passes.run_passes(
        ready,
        repeats=4,
        time_limit=60.0,
        clock=iter(range(10_000)).__next__,
        tell=lambda _, doing: told.append(doing),
    )
    assert [len(timed.series(size)[0].forward) for size in (1, 2)] == [4, 4]
    assert "pass 4, 1 samples" in told
    assert set(timed.series(2)[0].backward) == {1}


def test_no_further_pass_is_begun_after_the_time_limit() -> None:
    ready = bench(nn.Sequential(nn.Linear(3, 2)), torch.ones(2, 3), torch.zeros(2, 2))
    clock = iter(range(10_000)).__next__
    timed = passes.run_passes(ready, repeats=50, time_limit=0.0, clock=clock, tell=lambda _, __: None)
    assert len(timed.layers[2]) == passes.LEAST_PASSES


def test_parts_of_the_backward_are_there_where_there_is_something_to_do() -> None:
    ready = bench(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(2, 3), torch.zeros(2, 2))
    parts = passes.backward_parts(ready, 2, 2, iter(range(10_000)).__next__)
    assert parts == ((0.0, 1), (1, 0.0), (1, 1))
