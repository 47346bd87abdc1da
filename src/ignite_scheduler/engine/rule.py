"""The update rule of one rank's layers, with a full-precision copy of the weights where those are of 16 bits."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from ignite_scheduler.engine.gradients import Gradients
from ignite_scheduler.engine.optimization import coming_state, make_optimizer, set_learning_rate
from ignite_scheduler.model import Optimizer

_SHARE_BYTES: Final = 1 << 26
"""Full-precision gradients of 16-bit layers are made for so many bytes of weights at a time."""
# Without flattening, optimizer state is numbered within a rank and cannot be read by another split.
_OPTIONS: Final = StateDictOptions(flatten_optimizer_state_dict=True)


def is_low(layers: nn.Module) -> bool:
    """Whether the layers' elements are too short to move them by small updates."""
    return any(p.element_size() < 4 for p in layers.parameters() if p.is_floating_point())


def update(optimizer: torch.optim.Optimizer, rate: float, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Move masters at this learning rate by the gradients of their 16-bit weights, and round the weights from them.

    ``pairs``: (master, weight), the weight with its gradient.
    """
    set_learning_rate(optimizer, rate)
    pairs = list(pairs)
    for share in _shares(pairs):
        for master, weight in share:
            master.grad = None if weight.grad is None else weight.grad.float()
        optimizer.step()  # moves what has a gradient
        for master, _ in share:
            master.grad = None
    round_weights(pairs)


def _shares(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The pairs, a few at a time."""
    share: list[tuple[Tensor, Tensor]] = []
    num_bytes = 0
    for master, weight in pairs:
        share.append((master, weight))
        num_bytes += weight.nbytes
        if num_bytes >= _SHARE_BYTES:
            yield share
            share, num_bytes = [], 0
    yield share


@torch.no_grad()
def round_weights(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Let each weight be its master, rounded."""
    for master, weight in pairs:
        weight.copy_(master)


def state_of(layers: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Tensors of layers and of their optimizer, by names that any split of the model understands."""
    if not layers.state_dict():
        return {"model": {}}  # layers without tensors, such as a pooling; torch refuses to be asked about them
    state: dict[str, Any] = {"model": get_model_state_dict(layers)}
    if optimizer is not None:
        state["optimizer"] = get_optimizer_state_dict(layers, optimizer, options=_OPTIONS)
    return state


def set_state(layers: nn.Module, optimizer: torch.optim.Optimizer | None, state: dict[str, Any]) -> None:
    """Let layers and optimizer take what :func:`state_of` gave."""
    if state["model"]:
        set_model_state_dict(layers, state["model"])
    if optimizer is not None:
        set_optimizer_state_dict(layers, optimizer, state["optimizer"], options=_OPTIONS)


class Rule:
    """Moves weights along their gradients.

    Layers of 16-bit elements get a master copy in float32, which the optimizer moves and from which the weights are
    rounded after each update: small updates would be lost in 16 bits.

    Attributes
    ----------
    gradients
        Where the backwards add up gradients.
    """

    def __init__(self, layers: nn.Module, rule: Optimizer) -> None:
        self._layers, self._rule = layers, rule
        self._master = copy.deepcopy(layers).float() if is_low(layers) else layers
        self.optimizer = make_optimizer(self._master.parameters(), rule)
        self.gradients = Gradients(layers)

    def clear(self) -> None:
        """Set all gradients back to zero."""
        self.gradients.clear()

    def collect(self) -> None:
        """Say that all gradients of a step have been added up."""
        self.gradients.collect()

    def coming_state(self) -> Tensor | None:
        """Memory as large as the state that the optimizer is still to make; None where it has it."""
        return coming_state(self.optimizer, self._rule)

    def apply(self, rate: float) -> None:
        """Take one step at this learning rate and set the gradients back to zero."""
        if self.optimizer is None:
            return
        if self._master is self._layers:
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        else:
            update(self.optimizer, rate, self._pairs())
        self.clear()

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(master, weight)."""
        return zip(self._master.parameters(), self._layers.parameters(), strict=True)

    @torch.no_grad()
    def saved(self) -> dict[str, Any]:
        """The state of training: weights (the master copy's where there is one), buffers, the optimizer's state."""
        if self._master is not self._layers:
            for master, buffer in zip(self._master.buffers(), self._layers.buffers(), strict=True):
                master.copy_(buffer)
        return state_of(self._master, self.optimizer)

    def blank(self) -> dict[str, Any]:
        """The state of training, to be written over."""
        self.collect()  # torch makes the optimizer's state only where no parameter has a gradient
        return state_of(self._master, self.optimizer)

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`saved` gave; ``state`` is that of :meth:`blank`, written over."""
        set_state(self._master, self.optimizer, state)
        if self._master is not self._layers:
            round_weights(self._pairs())
            for master, buffer in zip(self._master.buffers(), self._layers.buffers(), strict=True):
                buffer.copy_(master)
        self.clear()
