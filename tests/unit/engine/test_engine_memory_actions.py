"""Recompute and offload on one device: the same gradients, less kept, and nothing moved twice."""

from contextlib import nullcontext

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ignite_scheduler.engine.chain import LayerError, StageModule
from ignite_scheduler.engine.devices import CpuDevice, PacedDevice
from ignite_scheduler.engine.offload import HostMemory

pytestmark = pytest.mark.torch


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()) for _ in range(4)))


def run(stage: StageModule, *, host: HostMemory | None = None) -> tuple[Tensor, int]:
    """Forward and backward of one microbatch: output, and bytes that were kept between the two."""
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    torch.manual_seed(1)
    inputs = torch.randn(5, 6)
    with host.keeping() if host is not None else saved_tensors_hooks(keep, lambda tensor: tensor):
        (output,) = stage((inputs,), seed=0, step=0, samples=torch.arange(5))
    with host.link() if host is not None else nullcontext():
        (output**2).sum().backward()
    return output.detach(), kept


@pytest.mark.parametrize("segments", [((0, 4),), ((0, 2),), ((1, 3),), ((0, 1), (1, 4)), ((0, 2), (3, 4))])
def test_computing_again_changes_nothing_but_what_is_kept(segments: tuple[tuple[int, int], ...]) -> None:
    plain, again = StageModule(index=0, layers=layers()), StageModule(index=0, layers=layers(), recompute=segments)
    (expected, much), (found, little) = run(plain), run(again)
    assert torch.equal(found, expected)
    for ours, theirs in zip(again.layers.parameters(), plain.layers.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
    for name, tensor in plain.layers.state_dict().items():
        assert torch.equal(again.layers.state_dict()[name], tensor), f"{name}: statistics move once a microbatch"
    assert little < much


def test_two_microbatches_in_flight_keep_statistics_apart() -> None:
    """The second forward moves the statistics before the first backward computes again."""

    def two(stage: StageModule) -> dict[str, Tensor]:
        torch.manual_seed(1)
        parts = torch.randn(6, 6).split(3)
        outputs = [stage((part,), seed=0, step=0, samples=torch.arange(3))[0] for part in parts]
        for output in outputs:
            (output**2).sum().backward()
        return stage.layers.state_dict() | {f"{n}.grad": p.grad for n, p in stage.layers.named_parameters()}

    expected = two(StageModule(index=0, layers=layers()))
    found = two(StageModule(index=0, layers=layers(), recompute=((0, 4),)))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_nothing_is_computed_again_in_evaluation() -> None:
    calls = []

    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(1)
            return x * 2

    stage = StageModule(index=0, layers=nn.Sequential(Counts()), recompute=((0, 1),))
    stage.layers.eval()
    stage((torch.ones(2, requires_grad=True),), seed=0, step=0, samples=torch.arange(2))[0].sum().backward()
    assert len(calls) == 1


def test_a_layer_that_fails_when_it_is_computed_again_is_named() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls == 2:
                raise ValueError("not again")
            return x * x

    stage = StageModule(index=1, layers=nn.Sequential(Fails()), recompute=((0, 1),))
    (output,) = stage((torch.ones(2, requires_grad=True),), seed=0, step=0, samples=torch.arange(2))
    with pytest.raises(LayerError, match="stage 1, layer '0': ValueError: not again"):
        output.sum().backward()


def wide() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(300, 300), nn.Tanh()) for _ in range(3)))


def _gradients(module: nn.Module, inputs: Tensor, host: HostMemory | None) -> list[Tensor]:
    with host.keeping() if host is not None else nullcontext():
        output = module(inputs)
    with host.link() if host is not None else nullcontext():
        (output**2).sum().backward()
    return [p.grad for p in module.parameters()]  # type: ignore[misc]


def test_what_waits_in_host_memory_comes_back_as_it_was() -> None:
    inputs = torch.randn(40, 300, generator=torch.Generator().manual_seed(2))
    module = wide()
    host = HostMemory(module, CpuDevice("cpu"), None)
    expected = _gradients(wide(), inputs, None)
    for _ in range(2):
        for parameter in module.parameters():
            parameter.grad = None
        found = _gradients(module, inputs, host)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


class Listening(CpuDevice):
    """Notes what it is told that an action takes."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.told: list[float] = []

    def takes(self, seconds: float) -> None:
        self.told.append(seconds)


def test_a_played_link_takes_the_time_of_each_tensor_once_each_way() -> None:
    device, module = Listening(), wide()
    host = HostMemory(module, device, bandwidth=4 * 40 * 300)
    _gradients(module, torch.randn(40, 300), host)
    assert device.told == [4.0, 4.0], "the input and three outputs of tanh, of which linear layers keep two as well"


def test_an_action_takes_no_less_than_it_is_told() -> None:
    device = PacedDevice(0.5)
    with device.action() as span:
        device.takes(0.01)
        device.takes(0.02)
        device.computed(span)
        assert span.end >= span.start + 0.02
    with device.action() as span:
        pass
    assert span.least == 0.0
