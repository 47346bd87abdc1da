"""Orders of actions on one rank that holds several stages: the handover needs no process group."""

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ignite_scheduler.engine.chain import LayerError, StageModule, cut, describe
from ignite_scheduler.engine.crew import Crew
from ignite_scheduler.engine.dealing import Dealing
from ignite_scheduler.engine.devices import CpuDevice
from ignite_scheduler.engine.executor import Batch, Executor
from ignite_scheduler.engine.transport import Transport
from ignite_scheduler.errors import InputError, ScheduleError
from ignite_scheduler.pipeline import Schedule, make_schedule, parse_schedule

pytestmark = pytest.mark.torch


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    parts = {f"l{i}": nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for i in range(4)}
    model = nn.Sequential()
    for name, part in parts.items():
        model.add_module(name, part)
    return model.to(torch.float64)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).sum()


class Pieces:
    """The data by microbatch."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._inputs, self._targets = (tensor.split(sizes) for tensor in data(sum(sizes)))

    def inputs(self, k: int) -> tuple[torch.Tensor]:
        return (self._inputs[k],)

    def targets(self, k: int) -> torch.Tensor:
        return self._targets[k]


def execute(schedule: Schedule, model: nn.Sequential, split: list[list[str]], sizes: tuple[int, ...]) -> float:
    """Run the single row of ``schedule`` in this process."""
    stages = {stage.index: stage for stage in cut(model, split)}
    device = CpuDevice("cpu")
    transport = Transport(
        rank=0,
        store=None,
        wires={},
        device=device.torch_device,
        wire=device.torch_device,
        timeout=1.0,
    )
    executor = Executor(
        schedule=schedule,
        row=0,
        rank=0,
        stages=stages,
        transport=transport,
        dealing=Dealing(Crew.straight([0] * len(stages)), 0, transport),
        device=device,
        loss=loss,
        seed=0,
    )
    value = executor.train(Batch(step=0, microbatches=sizes, samples=Pieces(sizes)))
    transport.close()
    return value


def data(total: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(total)
    return (
        torch.randn(total, 5, generator=generator, dtype=torch.float64),
        torch.randn(total, 5, generator=generator, dtype=torch.float64),
    )


def merged(schedule: Schedule, draw: st.DataObject) -> Schedule:
    """All rows woven into one, in some order that can run."""
    rows = [list(row) for row in schedule.rows]
    order, done = [], set()
    while any(rows):
        ready = [
            row
            for row in rows
            if row
            and (
                (row[0].kind == "F" and (row[0].stage_index == 0 or ("F", row[0].stage_index - 1, row[0][2]) in done))
                or (
                    row[0].kind == "B"
                    and (
                        row[0].stage_index == schedule.num_stages - 1
                        or ("B", row[0].stage_index + 1, row[0][2]) in done
                    )
                )
            )
        ]
        row = draw.draw(st.sampled_from(ready))
        action = row.pop(0)
        done.add((action.kind, action.stage_index, action.microbatch_index))
        order.append(action)
    return Schedule(
        name="list", num_stages=schedule.num_stages, num_microbatches=schedule.num_microbatches, rows=(tuple(order),)
    )


@settings(max_examples=40, deadline=None)
@given(
    data_=st.data(),
    name=st.sampled_from(["gpipe", "1f1b"]),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple),
    split=st.sampled_from([(4,), (1, 3), (2, 2), (1, 2, 1), (1, 1, 1, 1)]),
)
def test_any_order_that_can_run_gives_the_gradient_of_the_whole_batch(
    data_: st.DataObject, name: str, sizes: tuple[int, ...], split: tuple[int, ...]
) -> None:
    schedule = merged(make_schedule(name, len(split), len(sizes)), data_)
    names = iter(["l0", "l1", "l2", "l3"])
    model = chain()
    value = execute(schedule, model, [[next(names) for _ in range(count)] for count in split], sizes)
    whole = chain()
    inputs, targets = data(sum(sizes))
    expected = loss(whole(inputs), targets) / sum(sizes)
    expected.backward()
    assert value == pytest.approx(float(expected.detach()), rel=1e-12)
    for ours, theirs in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


def test_split_backwards_are_refused() -> None:
    with pytest.raises(ScheduleError, match="whole backwards only, found 0I0"):
        execute(parse_schedule("0F0,0I0,0W0"), chain(), [["l0", "l1", "l2", "l3"]], (2,))


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ([["l0", "l1"], ["l3"]], "expected 'l2' as layer 2 .* found 'l3'"),
        ([["l0", "l1", "l2"]], "expected 'l3' as layer 3 .* found the end"),
        ([["l0", "l1", "l2", "l3", "l4"]], "expected no further layer as layer 4 .* found 'l4'"),
        ([["l1", "l0", "l2", "l3"]], "expected 'l0' as layer 0"),
    ],
)
def test_a_plan_for_another_model_is_refused(split: list[list[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        cut(chain(), split)


def test_a_layer_error_names_stage_layer_and_what_came_in() -> None:
    model = nn.Sequential()
    model.add_module("flat", nn.Flatten())
    model.add_module("fc", nn.Linear(7, 2))
    (stage,) = cut(model, [["flat", "fc"]])
    with pytest.raises(LayerError, match=r"stage 0, layer 'fc': .*given float32\[3, 8\]") as caught:
        stage((torch.zeros(3, 2, 4),), seed=0, step=0, samples=torch.arange(3))
    assert caught.value.layer == "fc"


def test_a_layer_must_return_tensors() -> None:
    class Wrong(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": x}

    stage = StageModule(index=2, layers=nn.Sequential(Wrong()))
    with pytest.raises(LayerError, match="stage 2, layer '0': expected a tensor or a tuple of tensors, found dict"):
        stage((torch.zeros(1),), seed=0, step=0, samples=torch.arange(1))


def test_other_random_numbers_do_not_depend_on_what_came_before() -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(x.shape)

    stage = StageModule(index=0, layers=nn.Sequential(Noise(), Noise()))

    def draw(step: int) -> torch.Tensor:
        return stage((torch.zeros(4),), seed=1, step=step, samples=torch.arange(4))[0]

    first = draw(3)
    torch.rand(100)
    assert torch.equal(draw(3), first)
    assert not torch.equal(draw(4), first)


def test_tensors_are_described_by_type_and_shape() -> None:
    assert describe([torch.zeros(2, 3), torch.zeros(1, dtype=torch.int64)]) == "float32[2, 3], int64[1]"
    assert describe([]) == "nothing"
