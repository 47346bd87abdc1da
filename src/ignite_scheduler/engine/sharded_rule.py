"""The update rule of a stage whose replicas keep a part of the optimizer's state each (ZeRO-1).

Theory of operation
-------------------
All elements of the stage's weights, one after the other, are cut into r runs as equal as can be; replica i keeps the
optimizer's state (and the master copy of 16-bit weights) of run i. The rules that there are treat each element by
itself, so a run is updated as if the whole were. Each replica moves its run by the summed gradients and then passes
its new weights on to the others. A ring all-reduce is a reduce-scatter, here of gradients, and an all-gather, here of
weights: on links that are played each of the two takes half of its time.

A checkpoint holds whole tensors: the first replica gathers them, and each takes its run of what it loads.

References
----------
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5.1 (P_os).
Deviation: gradients are added up whole on every replica, since the norm and a check of them need them there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler.engine.gradients import Gradients
from ignite_scheduler.engine.optimization import coming_state, make_optimizer, set_learning_rate
from ignite_scheduler.engine.packing import pass_on
from ignite_scheduler.engine.rule import is_low, round_weights, set_state, state_of, update
from ignite_scheduler.model import Optimizer


class _Part(NamedTuple):
    """Elements ``first`` … ``end`` − 1 of parameter ``number``; ``weight`` shares their memory."""

    number: int
    first: int
    end: int
    weight: Tensor


class ShardedRule:
    """Moves one replica's run of the weights, and takes the others' from them.

    Parameters
    ----------
    ranks
        Of all replicas.
    group
        Their process group.
    rank
        This one.
    seconds
        What passing on the weights takes at least, from when the last replica is there: emulated links.
    wire
        Where messages lie while they travel.

    Attributes
    ----------
    gradients
        Where the backwards add up gradients.
    """

    def __init__(
        self,
        layers: nn.Module,
        rule: Optimizer,
        *,
        ranks: tuple[int, ...],
        group: Any,
        rank: int,
        seconds: float,
        wire: torch.device,
    ) -> None:
        self._layers, self._rule, self._seconds, self._wire = layers, rule, seconds, wire
        self._ranks, self._group, self._place = ranks, group, ranks.index(rank)
        self._parameters = [p for p in layers.parameters() if p.requires_grad]
        for parameter in self._parameters:
            parameter.data = parameter.data.contiguous()  # its elements have one order
        self._low = is_low(layers)
        self._parts = [_run(self._parameters, place, len(ranks)) for place in range(len(ranks))]
        own = self._parts[self._place]
        self._moved = [part.weight.float() if self._low else part.weight for part in own]
        self._optimizer = make_optimizer(self._moved, rule)
        self.gradients = Gradients(layers)

    def clear(self) -> None:
        """Set all gradients back to zero."""
        self.gradients.clear()

    def collect(self) -> None:
        """Say that all gradients of a step have been added up."""
        self.gradients.collect()

    def coming_state(self) -> Tensor | None:
        """Memory as large as the state that the optimizer is still to make; None where it has it."""
        return coming_state(self._optimizer, self._rule)

    def apply(self, rate: float) -> None:
        """Take one step with this replica's run, and set the gradients back to zero; :meth:`share` must follow."""
        own = self._parts[self._place]
        for part in own:
            gradient = self._parameters[part.number].grad
            part.weight.grad = None if gradient is None else gradient.view(-1)[part.first : part.end]
        if self._optimizer is not None:
            if self._low:
                update(self._optimizer, rate, zip(self._moved, (part.weight for part in own), strict=True))
            else:
                set_learning_rate(self._optimizer, rate)
                self._optimizer.step()
        for part in own:
            part.weight.grad = None
        self.clear()

    @torch.no_grad()
    def share(self) -> None:
        """Let all replicas have all runs."""
        start = torch.tensor(time.monotonic(), dtype=torch.float64, device=self._wire)
        dist.all_reduce(start, dist.ReduceOp.MAX, self._group)
        for rank, parts in zip(self._ranks, self._parts, strict=True):
            pass_on(
                [part.weight for part in parts],
                lambda flat, rank=rank: dist.broadcast(flat, rank, self._group),  # type: ignore[misc]
                self._wire,
            )
        time.sleep(max(0.0, start.item() + self._seconds - time.monotonic()))

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """The state of training as one whole, on the first replica; empty on the others. All call it together."""
        leader = self._place == 0
        gathered: list[Any] | None = [None] * len(self._ranks) if leader else None
        dist.gather_object(self._own_state(), gathered, self._ranks[0], self._group)
        if gathered is None:
            return {"model": {}}
        whole, optimizer = self._whole()
        parameters = [p for p in whole.parameters() if p.requires_grad]
        for parts, states in zip(self._parts, gathered, strict=True):
            for part, (master, state) in zip(parts, states, strict=True):
                parameter = parameters[part.number]
                if master is not None:
                    _part_of(parameter, part).copy_(master)
                if optimizer is not None:
                    _put(optimizer.state[parameter], state, parameter, part)
        return state_of(whole, optimizer)

    def _own_state(self) -> list[tuple[Tensor | None, dict[str, Any]]]:
        """Of each part of the run: the master copy where there is one, and the optimizer's state, on the processor."""
        states = [] if self._optimizer is None else [self._optimizer.state[moved] for moved in self._moved]
        return [
            (
                moved.detach().cpu() if self._low else None,
                {key: value.cpu() if isinstance(value, Tensor) else value for key, value in state.items()},
            )
            for moved, state in zip(self._moved, states, strict=True)
        ]

    def _whole(self) -> tuple[nn.Module, torch.optim.Optimizer | None]:
        """Layers in full precision (the weights themselves where they are), and a fresh optimizer of all of them."""
        whole = copy.deepcopy(self._layers).float() if self._low else self._layers
        return whole, make_optimizer(whole.parameters(), self._rule)

    def blank(self) -> dict[str, Any]:
        """The state of training as one whole, to be written over."""
        self.collect()  # torch makes the optimizer's state only where no parameter has a gradient
        return state_of(*self._whole())

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`saved` gave; ``state`` is that of :meth:`blank`, written over."""
        whole, optimizer = self._whole()
        set_state(whole, optimizer, state)
        parameters = [p for p in whole.parameters() if p.requires_grad]
        for part, moved in zip(self._parts[self._place], self._moved, strict=True):
            parameter = parameters[part.number]
            if self._low:
                moved.copy_(_part_of(parameter, part))
            if optimizer is not None and self._optimizer is not None:
                self._optimizer.state[moved] = {
                    key: _part_of(value, part).clone() if _is_like(value, parameter) else value
                    for key, value in optimizer.state[parameter].items()
                }
        if self._low:
            round_weights(zip(whole.parameters(), self._layers.parameters(), strict=True))
            round_weights(zip(whole.buffers(), self._layers.buffers(), strict=True))
        self.clear()


def _run(parameters: Sequence[Tensor], place: int, count: int) -> list[_Part]:
    """The parts of parameters that make up run ``place`` of ``count``."""
    total = sum(parameter.numel() for parameter in parameters)
    low, high = total * place // count, total * (place + 1) // count
    parts, start = [], 0
    for index, parameter in enumerate(parameters):
        first, end = max(low - start, 0), min(high - start, parameter.numel())
        if first < end:
            parts.append(_Part(index, first, end, parameter.detach().view(-1)[first:end]))
        start += parameter.numel()
    return parts


def _part_of(tensor: Tensor, part: _Part) -> Tensor:
    return tensor.detach().view(-1)[part.first : part.end]


def _is_like(value: Any, parameter: Tensor) -> bool:
    """Whether it is a figure for each element."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and value.dim() > 0


def _put(state: dict[str, Any], found: dict[str, Any], parameter: Tensor, part: _Part) -> None:
    """Write what the optimizer has of one part into the state of the whole parameter."""
    for key, value in found.items():
        if isinstance(value, Tensor) and value.shape == (part.end - part.first,):
            if key not in state:
                state[key] = torch.zeros_like(parameter, dtype=value.dtype, device="cpu")
            _part_of(state[key], part).copy_(value)
        else:
            state[key] = value
