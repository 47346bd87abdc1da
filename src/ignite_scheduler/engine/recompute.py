"""Layers whose activations are not kept from the forward to the backward, but computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

Value = Tensor | tuple[Tensor, ...]


def recomputed(run: Callable[[Value], Value], value: Value, named: Sequence[tuple[str, nn.Module]]) -> Value:
    """What ``run`` makes of ``value`` with the layers ``named``, of which only ``value`` is kept.

    ``run`` must draw the same random numbers each time: it sets where they start. The whole of it is run again, as the
    cost model says, and not only as far as something is missing.
    """
    modules = [module for _, layer in named for module in layer.modules() if isinstance(module, _NormBase)]
    result: Value = checkpoint(
        run,
        value,
        use_reentrant=False,
        preserve_rng_state=False,
        early_stop=False,
        context_fn=lambda: (nullcontext(), _statistics_aside(modules)),
    )
    return result


@contextmanager
def _statistics_aside(modules: Sequence[_NormBase]) -> Iterator[None]:
    """Within this block running statistics are copies: a forward that is done again must not move them again.

    The tensors themselves come back, untouched: the graphs of other microbatches hold them.
    """
    before: list[dict[str, Any]] = [dict(module._buffers) for module in modules]
    for module in modules:
        module._buffers.update({name: t.clone() for name, t in module._buffers.items() if t is not None})
    try:
        yield
    finally:
        for module, buffers in zip(modules, before, strict=True):
            module._buffers.update(buffers)
