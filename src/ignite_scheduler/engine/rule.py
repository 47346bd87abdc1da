"""The update rule of one rank's layers, with a full-precision copy of the weights where those are of 16 bits."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ignite_scheduler.engine.optimization import make_optimizer, set_learning_rate
from ignite_scheduler.model import Optimizer


class Rule:
    """Moves weights along their gradients.

    Layers of 16-bit elements get a master copy in float32, which the optimizer moves and from which the weights are
    rounded after each update: small updates would be lost in 16 bits.

    Attributes
    ----------
    state
        The module whose tensors are the training state: the master copy where there is one, else the layers themselves.
    optimizer
        None where the layers have no parameters.
    """

    def __init__(self, layers: nn.Module, rule: Optimizer) -> None:
        self._layers = layers
        low = any(p.element_size() < 4 for p in layers.parameters() if p.is_floating_point())
        self.state = copy.deepcopy(layers).float() if low else layers
        self.optimizer = make_optimizer(self.state.parameters(), rule)

    def apply(self, rate: float) -> None:
        """Take one step at this learning rate and clear the gradients."""
        if self.optimizer is None:
            return
        set_learning_rate(self.optimizer, rate)
        if self.state is self._layers:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            return
        for master, weight in zip(self.state.parameters(), self._layers.parameters(), strict=True):
            master.grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        self.optimizer.step()
        self.pull()

    @torch.no_grad()
    def pull(self) -> None:
        """Round the weights from the master copy, as after an update or a load."""
        if self.state is not self._layers:
            for master, weight in zip(self.state.parameters(), self._layers.parameters(), strict=True):
                weight.copy_(master)

    @torch.no_grad()
    def push_buffers(self) -> None:
        """Bring the master copy's buffers (running statistics) up to date, before saving."""
        if self.state is not self._layers:
            for master, buffer in zip(self.state.buffers(), self._layers.buffers(), strict=True):
                master.copy_(buffer)

    @torch.no_grad()
    def pull_buffers(self) -> None:
        """Take the buffers from the master copy, after a load."""
        if self.state is not self._layers:
            for master, buffer in zip(self.state.buffers(), self._layers.buffers(), strict=True):
                buffer.copy_(master)
