"""Where tensors enter a stage and leave it, so that neither is held longer than the stage's own backward needs it.

A leaf that waits for its gradient would hold its data until the backward is done, whether or not a layer needs it
again; so would an output from which the backward starts. Here received tensors pass through a function that takes
their gradients and keeps nothing, and of an output only its place in the graph is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ignite_scheduler.engine.chain import Tensors

Roots = Sequence[Tensor] | Sequence[GradientEdge]
"""From where a backward starts."""


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


def roots(outputs: Sequence[Tensor]) -> Sequence[GradientEdge]:
    """Places in the graph of those outputs that need a gradient, without their data."""
    return [get_gradient_edge(output) for output in outputs if output.requires_grad]
