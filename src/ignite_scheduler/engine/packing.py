"""Many small tensors as a few messages among ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

_BUNDLE_BYTES: Final = 1 << 20
"""Tensors are copied into messages of so many bytes; larger ones go by themselves, without a copy."""


def pass_on(tensors: Iterable[Tensor], exchange: Callable[[Tensor], Any], wire: torch.device) -> None:
    """Let ``exchange`` write to a few flat tensors on ``wire`` that stand for all of these."""
    for bundle in _bundles(tensors):
        if len(bundle) == 1 and bundle[0].is_contiguous() and bundle[0].device.type == wire.type:
            exchange(bundle[0].view(-1))
            continue
        flat = torch.cat([tensor.detach().reshape(-1).to(wire) for tensor in bundle])
        exchange(flat)
        for tensor, part in zip(bundle, torch.split(flat, [tensor.numel() for tensor in bundle]), strict=True):
            tensor.copy_(part.view(tensor.shape))


def _bundles(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one element type, together as large as a message."""
    bundle: list[Tensor] = []
    for tensor in tensors:
        full = sum(each.nbytes for each in bundle) + tensor.nbytes > _BUNDLE_BYTES
        if bundle and (full or bundle[0].dtype != tensor.dtype):
            yield bundle
            bundle = []
        bundle.append(tensor)
    if bundle:
        yield bundle
