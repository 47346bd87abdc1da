"""What a rank holds, the watch over it, and weights that are filled only where they are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ignite_scheduler import zoo
from ignite_scheduler.engine import memory
from ignite_scheduler.engine.chain import build_chain
from ignite_scheduler.engine.memory import DeviceMemoryError, MemoryMeter, MemoryWatch
from ignite_scheduler.engine.specification import RankDevice
from ignite_scheduler.engine.unfilled import unfilled_weights
from ignite_scheduler.model import Reference

CPU = torch.device("cpu")


def proc(folder: Path, *, resident: int, of_files: int, most: int) -> None:
    pages = [0, resident // 4096, of_files // 4096, 0, 0, 0, 0]
    (folder / "statm").write_text(" ".join(map(str, pages)) + "\n")
    kib = {"VmHWM": most // 1024, "RssAnon": (resident - of_files) // 1024, "RssFile": of_files // 1024, "RssShmem": 0}
    (folder / "status").write_text("Name:\tpython\n" + "".join(f"{k}:\t{v} kB\n" for k, v in kib.items()))
    (folder / "clear_refs").touch()


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 4096)
    return tmp_path


def test_the_peak_of_the_measured_step_counts_without_pages_of_files(process: Path) -> None:
    proc(process, resident=8 << 20, of_files=3 << 20, most=8 << 20)
    meter = MemoryMeter(CPU)
    proc(process, resident=10 << 20, of_files=4 << 20, most=30 << 20)
    assert meter.held == 1 << 20
    with meter.measuring():
        assert (process / "clear_refs").read_text() == "5"
        proc(process, resident=10 << 20, of_files=4 << 20, most=12 << 20)
    assert meter.use == memory.MemoryUse(idle=5 << 20, peak=8 << 20, resident=26 << 20)


def test_without_proc_nothing_is_claimed(process: Path) -> None:
    meter = MemoryMeter(CPU)
    with meter.measuring():
        pass
    assert meter.held is None
    assert meter.use == memory.MemoryUse(idle=None, peak=None, resident=None)


def test_in_a_measured_step_the_peak_is_what_was_in_use() -> None:
    code = """
import torch
from ignite_scheduler.engine.allocation import return_freed_memory
from ignite_scheduler.engine.memory import MemoryMeter, forget_peak
told = return_freed_memory() and forget_peak()
meter = MemoryMeter(torch.device("cpu"))
blocks = [torch.zeros(1 << 20) for _ in range(8)]
del blocks[::2]  # gaps that nothing fits into
with meter.measuring():
    first = torch.ones(5 << 20)
    del first
    second = torch.ones(4 << 20)
print(told, meter.use.peak - meter.use.idle)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, num_bytes = ran.stdout.split()
    if told != "True":
        pytest.skip("the platform does not tell what a process holds")
    assert int(num_bytes) == pytest.approx((16 << 20) + (20 << 20), abs=1 << 20)


def test_memory_is_watched_from_the_idle_process(process: Path) -> None:
    proc(process, resident=1 << 20, of_files=0, most=1 << 20)
    device, meter = RankDevice(id="a", memory=1 << 20), MemoryMeter(CPU)
    watch = MemoryWatch(device, meter)
    proc(process, resident=2 << 20, of_files=0, most=2 << 20)
    watch.check(0)
    proc(process, resident=(2 << 20) + 4096, of_files=0, most=3 << 20)
    with pytest.raises(DeviceMemoryError, match=r"stage 3 holds 1\.053MB on 'a', which has 1\.049MB"):
        watch.check(3)
    MemoryWatch(RankDevice(id="a"), meter).check(0)


# -- weights that wait ----------------------------------------------------------------------------------------------

MODELS = [
    Reference(zoo="gpt", args={"dim": 128, "depth": 3, "vocabulary": 257, "tied": True}),
    Reference(zoo="vgg11", args={"width": 0.3, "size": 32, "classes": 10, "batch_norm": True}),
    Reference(zoo="alexnet", args={"width": 0.2, "size": 64, "classes": 11}),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.zoo)
def test_weights_that_waited_are_the_same_bits(model: Reference) -> None:
    with unfilled_weights() as weights:
        late = build_chain(model, seed=7)
    assert torch.initial_seed() is not None
    first, *others = late.children()
    unwanted = [tensor for layer in others for tensor in (*layer.parameters(), *layer.buffers())]
    weights.fill_all_but(unwanted, kept=[*first.parameters(), *first.buffers()])
    expected = build_chain(model, seed=7)
    for name, tensor in expected[0].state_dict().items():
        assert torch.equal(late[0].state_dict()[name], tensor), name


class Odd(nn.Module):
    """Starts its weights in ways that read what was filled before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(200, 300)
        self.second = nn.Linear(200, 300)
        with torch.no_grad():
            self.second.weight.copy_(2 * self.first.weight)
            nn.init.trunc_normal_(self.first.weight, std=0.1)
            self.first.weight[3].fill_(1.0)
            nn.init.orthogonal_(self.second.weight[:200])
        self.plain = torch.empty(20_001).normal_()
        self.array = torch.empty(20_000).uniform_().numpy().sum()
        self.drawn = torch.rand(5)


def test_a_builder_that_reads_its_weights_sees_nothing_of_it() -> None:
    torch.manual_seed(3)
    expected, after = Odd(), torch.rand(3)
    torch.manual_seed(3)
    with unfilled_weights() as weights:
        late, then = Odd(), torch.rand(3)
    weights.fill_all_but([], kept=late.parameters())
    for name, tensor in expected.state_dict().items():
        assert torch.equal(late.state_dict()[name], tensor), name
    assert torch.equal(late.plain, expected.plain)
    assert late.array == expected.array
    assert torch.equal(late.drawn, expected.drawn)
    assert torch.equal(then, after)


@pytest.mark.parametrize("count", [1 << 14, (1 << 19) - 1, 1 << 19, (1 << 19) + 5, (1 << 20) + 3])
@pytest.mark.parametrize("draw", [torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_])
def test_the_generator_moves_on_as_if_the_tensor_were_filled(count: int, draw: object) -> None:
    def drawn() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(1)
        return draw(torch.empty(count)), torch.rand(20)  # type: ignore[operator]

    expected, after = drawn()
    with unfilled_weights() as weights:
        late, then = drawn()
    assert torch.equal(then, after)
    state = torch.get_rng_state()
    weights.fill([late])
    assert torch.equal(late, expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_of_other_stages_fill_no_memory() -> None:
    if memory.own_bytes() is None:
        pytest.skip("the platform does not tell what a process holds")
    model = Reference(zoo="mlp", args={"features": 2000, "hidden": [4000, 4000, 4000], "outputs": 2})
    with unfilled_weights():
        zoo.build(Reference(zoo="mlp"), seed=0)  # what the first model of a process loads
    before = memory.own_bytes()
    with unfilled_weights() as weights:
        chain = zoo.build(model, seed=0)
    weights.fill_all_but([*chain.parameters()], kept=[*chain[-1].parameters()])
    after = memory.own_bytes()
    assert before is not None
    assert after is not None
    assert after - before < 20e6 < sum(parameter.nbytes for parameter in chain.parameters()) / 8
