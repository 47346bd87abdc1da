"""The update rule of one rank's layers, with a full-precision copy of the weights where those are of 16 bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from ignite_scheduler.engine.optimization import make_optimizer, set_learning_rate
from ignite_scheduler.model import Optimizer

_SHARE_BYTES: Final = 1 << 26
"""Full-precision gradients of 16-bit layers are made for so many bytes of weights at a time."""


class Rule:
    """Moves weights along their gradients.

    Layers of 16-bit elements get a master copy in float32, which the optimizer moves and from which the weights are
    rounded after each update: small updates would be lost in 16 bits.

    Gradients have their memory from the beginning and keep it: what a step needs does not depend on how far it is, as
    the cost model says, every microbatch's backward does the same, and the allocator is not asked twice a step. A
    parameter that no gradient reached in a step still has none when the optimizer looks (see :meth:`collect`).

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
        trained = [p for p in layers.parameters() if p.requires_grad]
        self._gradients = [(parameter, torch.zeros_like(parameter)) for parameter in trained]
        self.clear()

    def clear(self) -> None:
        """Set all gradients back to zero."""
        self._versions = []
        for parameter, gradient in self._gradients:
            parameter.grad = gradient.zero_()
            self._versions.append(gradient._version)

    def collect(self) -> None:
        """Say that all gradients of a step have been added up: parameters that none has reached have none now."""
        for (parameter, gradient), version in zip(self._gradients, self._versions, strict=True):
            if gradient._version == version:
                parameter.grad = None

    def apply(self, rate: float) -> None:
        """Take one step at this learning rate and set the gradients back to zero."""
        if self.optimizer is None:
            return
        set_learning_rate(self.optimizer, rate)
        if self.state is self._layers:
            self.optimizer.step()
        else:
            for share in self._shares():
                for master, weight in share:
                    master.grad = None if weight.grad is None else weight.grad.float()
                self.optimizer.step()  # moves what has a gradient
                for master, _ in share:
                    master.grad = None
            self.pull()
        self.clear()

    def _shares(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """(master, weight) pairs, a few at a time."""
        share: list[tuple[Tensor, Tensor]] = []
        num_bytes = 0
        for master, weight in zip(self.state.parameters(), self._layers.parameters(), strict=True):
            share.append((master, weight))
            num_bytes += weight.nbytes
            if num_bytes >= _SHARE_BYTES:
                yield share
                share, num_bytes = [], 0
        yield share

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
