"""Dropout whose mask belongs to the sample, not to the process: a counter-based generator keyed by who drops what.

The element e of a sample is kept or dropped by a hash of (seed, step, sample, layer, e). So the mask does not depend
on how a batch is cut into microbatches, on how a model is cut into stages, on the order of actions, on the kind of
device, or on what else drew random numbers; and a resumed run needs no state of a generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

# 32-bit finaliser "lowbias32" of Wellons (hash-prospector); its last shift is left out: only the top bits are compared.
# Signed numbers: torch multiplies no unsigned ones. 32 bits, since those are ten times as fast as 64 on a CPU.
_MIX_1: Final = 0x7FEB352D
_MIX_2: Final = 0x846CA68B - (1 << 32)
_GOLDEN: Final = 0x9E3779B9 - (1 << 32)


class Draw(NamedTuple):
    """Which samples pass through the model now: ``samples[i]`` is the place of row i in the step's whole batch."""

    seed: int
    step: int
    samples: Tensor


_draws: list[Draw] = []


@contextmanager
def drawing(seed: int, step: int, samples: Tensor) -> Iterator[None]:
    """Within this block every :class:`KeyedDropout` draws for these samples.

    Outside of any such block a layer draws as for step 0 and samples 0, 1, 2, …: as dear, so that a profile is right.
    """
    _draws.append(Draw(seed, step, samples))
    try:
        yield
    finally:
        _draws.pop()


def _mix(x: Tensor) -> Tensor:
    """Scramble int32 counters in place, the top bits best."""
    x ^= x >> 16
    x *= _MIX_1
    x ^= x >> 15
    x *= _MIX_2
    return x


def keep_mask(draw: Draw, layer: str, shape: torch.Size, p: float, device: torch.device) -> Tensor:
    """Booleans of ``shape``, True with probability 1 − p; dimension 0 runs over the draw's samples."""
    if p >= 1.0:
        return torch.zeros(shape, dtype=torch.bool, device=device)
    digest = hashlib.blake2b(f"{draw.seed}/{draw.step}/{layer}".encode(), digest_size=4).digest()
    base = int.from_bytes(digest, "little", signed=True)
    samples = _mix(draw.samples.to(device=device, dtype=torch.int32) * _GOLDEN ^ base)
    elements = torch.arange(1, shape[1:].numel() + 1, dtype=torch.int32, device=device) * _GOLDEN
    return (_mix(samples[:, None] ^ elements) >= int(p * (1 << 32)) - (1 << 31)).view(shape)


class KeyedDropout(nn.Module):
    """Zero elements with probability ``p`` and scale the others by 1 ÷ (1 − p), while training.

    Attributes
    ----------
    layer
        Name that tells this dropout from the model's others; :func:`name_dropouts` sets it.
    whole_channels
        Drop whole channels (dimension 1) instead of single elements.
    """

    def __init__(self, p: float = 0.5, *, whole_channels: bool = False) -> None:
        super().__init__()
        self.p, self.layer, self.whole_channels = p, "", whole_channels

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        draw = _draws[-1] if _draws else Draw(0, 0, torch.arange(x.shape[0]))
        if len(draw.samples) != x.shape[0]:
            raise RuntimeError(
                f"dropout {self.layer!r} got {x.shape[0]} rows for {len(draw.samples)} samples: dimension 0 must run "
                "over samples"
            )
        drawn = x.shape[:2] + (1,) * (x.dim() - 2) if self.whole_channels and x.dim() > 2 else x.shape
        keep = keep_mask(draw, self.layer, torch.Size(drawn), self.p, x.device)
        return x * keep.to(x.dtype).mul_(1.0 / (1.0 - self.p) if self.p < 1.0 else 0.0)

    def extra_repr(self) -> str:
        """What ``repr`` shows between the brackets."""
        return f"p={self.p}, layer={self.layer!r}"


def name_dropouts(model: nn.Module) -> None:
    """Name each :class:`KeyedDropout` by its path within the whole model, before the model is cut into stages."""
    for path, module in model.named_modules():
        if isinstance(module, KeyedDropout):
            module.layer = path


def key_dropouts(model: nn.Module) -> None:
    """Put a :class:`KeyedDropout` in place of each ``nn.Dropout…`` inside ``model``, and name all of them."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() would skip a module that stands twice
            if isinstance(child, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
                setattr(parent, name, KeyedDropout(child.p, whole_channels=True))
            elif isinstance(child, nn.Dropout):
                setattr(parent, name, KeyedDropout(child.p))
    name_dropouts(model)
