"""What a rank holds of samples, boundary tensors, messages and gradients: no longer than it is needed."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from ignite_scheduler.engine.data import Samples
from ignite_scheduler.engine.deliveries import Deliveries, Delivery
from ignite_scheduler.engine.entrance import Entrance, Exit
from ignite_scheduler.engine.optimization import coming_state
from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.model import Optimizer, Reference

pytestmark = pytest.mark.torch


def samples() -> Samples:
    return Samples(Reference(zoo="wine"), dtype=torch.float32, device=torch.device("cpu"), owner="j")


def test_a_batch_is_read_by_microbatch_and_inputs_one_ahead() -> None:
    data, indices = samples(), torch.tensor([5, 3, 8, 1, 0])
    inputs, targets = data.read(indices, "0/0")
    reading = data.begin(indices, "0/0", (2, 2, 1))
    reading.advance(float("inf"))
    assert reading.waiting
    assert not reading.complete  # the next microbatch is read when this one is taken
    for k, (rows, goals) in enumerate(zip(inputs[0].split((2, 2, 1)), targets.split((2, 2, 1)), strict=True)):
        assert torch.equal(reading.inputs(k)[0], rows)
        assert torch.equal(reading.targets(k), goals)
        reading.advance(float("inf"))
    assert reading.complete
    assert not reading.waiting


def test_who_needs_targets_only_reads_all_of_them_ahead() -> None:
    reading = samples().begin(torch.arange(6), "0/0", (2, 2, 2), inputs=False)
    reading.advance(float("inf"))
    assert reading.complete
    assert [len(reading.targets(k)) for k in range(3)] == [2, 2, 2]


class Scaled(nn.Module):
    """Needs neither its input nor its output for its backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3.0


def test_what_no_backward_needs_is_not_held_between_forward_and_backward() -> None:
    received = torch.ones(4, requires_grad=True)
    entrance = Entrance([received])
    entered = entrance.enter()
    output = Scaled()(entered[0])
    held = [weakref.ref(tensor.untyped_storage()) for tensor in (received, output)]
    end = Exit([output])
    del received, entered, output
    assert [ref() for ref in held] == [None, None]
    end.give([torch.full((4,), 2.0)])
    end.backward()
    (gradient,) = entrance.gradients()
    assert torch.equal(gradient, torch.full((4,), 6.0))


def test_gradients_come_for_what_wanted_them_and_zero_where_none_came() -> None:
    wanted, whole, unused = torch.ones(2, requires_grad=True), torch.arange(2), torch.ones(3, requires_grad=True)
    entrance = Entrance([wanted, whole, unused])
    first, second, _ = entrance.enter()
    assert first.requires_grad
    assert not second.requires_grad
    end = Exit([first * second, second])
    end.give([torch.ones(2)])
    end.backward()
    of_wanted, of_unused = entrance.gradients()
    assert torch.equal(of_wanted, torch.tensor([0.0, 1.0]))
    assert torch.equal(of_unused, torch.zeros(3))


def test_gradients_keep_their_place_and_parameters_that_none_reached_are_left_alone() -> None:
    layers = nn.ModuleDict({"used": nn.Linear(2, 1, bias=False), "idle": nn.Linear(2, 1, bias=False)})
    rule = Rule(layers, Optimizer(name="adamw", lr=0.1, options={"weight_decay": 0.5}))
    used, idle = layers["used"].weight, layers["idle"].weight
    place, before = used.grad.data_ptr(), idle.detach().clone()
    for _ in range(3):
        layers["used"](torch.ones(1, 2)).sum().backward()
        rule.collect()
        assert idle.grad is None
        rule.apply(0.1)
        assert used.grad.data_ptr() == place
        assert not used.grad.any()
    assert torch.equal(idle, before)


def test_sixteen_bit_layers_update_as_a_copy_of_their_master() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).bfloat16()
    rule = Rule(layers, Optimizer(name="momentum", lr=0.1))
    plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    plain.load_state_dict({name: tensor.float() for name, tensor in layers.state_dict().items()})
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        for parameter, master in zip(layers.parameters(), plain.parameters(), strict=True):
            parameter.grad.fill_(step + 1.0)
            master.grad = torch.full_like(master, step + 1.0)
        rule.collect()
        rule.apply(0.1)
        optimizer.step()
    for parameter, master in zip(layers.parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter, master.bfloat16())


def test_a_message_is_free_as_soon_as_it_is_delivered() -> None:
    deliveries, gate, freed = Deliveries(threads=True), threading.Event(), threading.Event()
    buffer = torch.ones(3)
    weakref.finalize(buffer, freed.set)
    deliveries.add(Delivery(gate.wait, buffer), target=1)
    del buffer
    assert not freed.is_set()
    gate.set()
    assert freed.wait(10)
    deliveries.close()


@pytest.mark.parametrize("threads", [True, False])
def test_what_goes_wrong_on_the_way_is_told_at_the_next_flush(threads: bool) -> None:
    def lost() -> None:
        raise RuntimeError("lost")

    deliveries = Deliveries(threads=threads)
    deliveries.add(Delivery(lost, torch.ones(1)), target=1)
    with pytest.raises(RuntimeError, match="lost"):
        deliveries.flush()


@pytest.mark.parametrize(
    ("name", "options", "per_element"),
    [
        ("sgd", {}, 0),
        ("sgd", {"momentum": 0.5}, 1),
        ("momentum", {}, 1),
        ("adam", {}, 2),
        ("adamw", {"amsgrad": True}, 3),
    ],
)
def test_the_first_step_holds_what_the_optimizer_will_make(
    name: str, options: dict[str, Any], per_element: int
) -> None:
    layers = nn.Linear(7, 3)
    optimizer = Optimizer(name=name, lr=0.1, options=options)
    rule = Rule(layers, optimizer)
    coming = rule.coming_state()
    assert (0 if coming is None else coming.nbytes) == per_element * 4 * (7 * 3 + 3)
    layers(torch.ones(2, 7)).sum().backward()
    rule.collect()
    rule.apply(0.1)
    assert rule.optimizer is not None
    made = [t for state in rule.optimizer.state.values() for t in state.values() if isinstance(t, Tensor) and t.dim()]
    assert sum(t.nbytes for t in made) == (0 if coming is None else coming.nbytes)
    assert rule.coming_state() is None, "it has been made"
    assert coming_state(None, optimizer) is None
