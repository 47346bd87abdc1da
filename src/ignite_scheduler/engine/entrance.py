"""Where tensors enter a stage and leave it, so that none is held longer than the stage's own backward needs it.

A leaf that waits for its gradient would hold its data until the backward is done, whether or not a layer needs it
again; so would an output from which the backward starts, and a gradient that is passed to it. Here received tensors
pass through a function that takes their gradients and keeps nothing; of outputs only their places in the graph are
kept; and their gradients are handed over to autograd, which drops them when they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from ignite_scheduler.engine.chain import Tensors


class Entrance:
    """Tensors as they enter a stage, and after its backward their gradients.

    ``tensors`` are those that were received: those of them that require a gradient get one.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._likes = [(t.shape, t.dtype, t.device) for t in tensors if t.requires_grad]
        self._found: list[Tensor | None] = [None] * len(self._likes)
        self._tensors = tuple(tensors)

    def enter(self) -> Tensors:
        """The tensors for the stage's first layer, once: nothing is held of them from here on."""
        tensors, self._tensors = self._tensors, ()
        if not self._likes or not torch.is_grad_enabled():
            return tuple(t.detach() for t in tensors)
        wanted = [t.requires_grad for t in tensors]
        anchor = torch.empty(0, requires_grad=True)  # the graph must begin somewhere
        passed: Tensors = _Pass.apply(self._found, wanted, anchor, *(t.detach() for t in tensors))  # type: ignore[no-untyped-call]
        return passed

    def gradients(self) -> Tensors:
        """Gradients of those tensors that wanted one, after the backward; zero where none came."""
        return tuple(
            torch.zeros(shape, dtype=dtype, device=device) if found is None else found
            for found, (shape, dtype, device) in zip(self._found, self._likes, strict=True)
        )


class _Pass(Function):
    @staticmethod
    def forward(ctx: Any, sink: list[Tensor | None], wanted: list[bool], anchor: Tensor, *tensors: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.sink, ctx.wanted = sink, wanted
        passed = tuple(t.view_as(t) for t in tensors)
        ctx.mark_non_differentiable(*(t for t, wants in zip(passed, wanted, strict=True) if not wants))
        return passed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.sink[:] = [g for g, wants in zip(gradients, ctx.wanted, strict=True) if wants]
        return (None,) * (3 + len(gradients))


class Exit:
    """Outputs of a stage, as its backward will start from them."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._given: list[Tensor] = []
        wanting = [output for output in outputs if output.requires_grad]
        self._root: Tensor | None = _Start.apply(self._given, *wanting) if wanting else None  # type: ignore[no-untyped-call]

    def give(self, gradients: Sequence[Tensor]) -> None:
        """Gradients of those outputs that need one, in order; the caller should keep none."""
        self._given.extend(gradients)

    def backward(self) -> None:
        """Run the backward from the given gradients."""
        root, self._root = self._root, None
        if root is not None:
            torch.autograd.backward(root)


class _Start(Function):
    @staticmethod
    def forward(ctx: Any, given: list[Tensor], *outputs: Tensor) -> Tensor:
        ctx.given = given
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Any:
        gradients = tuple(ctx.given)
        ctx.given.clear()
        return None, *gradients
