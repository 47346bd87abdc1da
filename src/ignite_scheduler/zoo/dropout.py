"""Dropout whose mask belongs to the sample, not to the process: a counter-based generator keyed by who drops what.

The element e of a sample is kept or dropped by a hash of (seed, step, sample, layer, e). So the mask does not depend
on how a batch is cut into microbatches, on how a model is cut into stages, on the order of actions, on the kind of
device, or on what else drew random numbers; and a resumed run needs no state of a generator.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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


class _Scope:
    """How often each name has drawn within one call of a layer."""

    def __init__(self, repeat: str) -> None:
        self._repeat, self._counts = repeat, Counter[str]()

    def label(self, name: str) -> str:
        count = self._counts[name]
        self._counts[name] += 1
        return name + self._repeat + (f"#{count + 1}" if count else "")


_scopes: list[_Scope] = []


@contextmanager
def scope(repeat: str) -> Iterator[None]:
    """Within this block, one call of a layer, a name that draws again draws anew.

    ``repeat`` tells the call from others that share the layer's modules; empty for the first.
    """
    _scopes.append(_Scope(repeat))
    try:
        yield
    finally:
        _scopes.pop()


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


def _kept(name: str, shape: torch.Size, p: float, device: torch.device) -> Tensor:
    """The mask that ``name`` draws for the samples that pass through now."""
    draw = _draws[-1] if _draws else Draw(0, 0, torch.arange(shape[0]))
    if len(draw.samples) != shape[0]:
        raise RuntimeError(
            f"dropout {name!r} got {shape[0]} rows for {len(draw.samples)} samples: dimension 0 must run over samples; "
            "set this dropout to 0, or drop before samples are merged with another dimension"
        )
    return keep_mask(draw, _scopes[-1].label(name) if _scopes else name, shape, p, device)


def _dropped(x: Tensor, name: str, p: float, *, whole_channels: bool = False) -> Tensor:
    drawn = x.shape[:2] + (1,) * (x.dim() - 2) if whole_channels and x.dim() > 2 else x.shape
    keep = _kept(name, torch.Size(drawn), p, x.device)
    return x * keep.to(x.dtype).mul_(1.0 / (1.0 - p) if p < 1.0 else 0.0)


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
        return _dropped(x, self.layer, self.p, whole_channels=self.whole_channels)

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


# -- functions that drop --------------------------------------------------------------------------------------------


def _parameters(*names: str, **defaults: Any) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = [inspect.Parameter(name, kind) for name in names]
    optional = [inspect.Parameter(name, kind, default=value) for name, value in defaults.items()]
    return inspect.Signature([*required, *optional])


_DROP: Final = _parameters("input", p=0.5, training=True, inplace=False)
_ATTEND: Final = _parameters(
    "query", "key", "value", attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
)
_CHANNELS: Final = (functional.dropout1d, functional.dropout2d, functional.dropout3d)

_SIGNATURES: Final[Mapping[Callable[..., Any], inspect.Signature]] = {
    functional.dropout: _DROP,
    **dict.fromkeys(_CHANNELS, _DROP),
    torch.dropout: _parameters("input", "p", "training"),
    torch.Tensor.bernoulli_: _parameters("input", p=0.5, generator=None),
    functional.scaled_dot_product_attention: _ATTEND,
}
"""Functions that drop elements at random, as models call them past ``nn.Dropout``."""


def drawn_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call drops elements at random."""
    return func in _SIGNATURES and _probability(func, _arguments(func, args, kwargs)) > 0.0


def _arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = _SIGNATURES[func].bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _probability(func: Any, given: Mapping[str, Any]) -> float:
    if func is functional.scaled_dot_product_attention:
        return float(given["dropout_p"])
    if func is torch.Tensor.bernoulli_:
        return 1.0 - float(given["p"]) if isinstance(given["p"], float) else 0.0
    return float(given["p"]) if given["training"] else 0.0


class KeyedFunctions(TorchFunctionMode):
    """Within this block torch's functions that drop elements do it as :class:`KeyedDropout` does, under ``name``.

    Attention that drops weights is computed in the open, weights and all: fused kernels draw masks of their own.
    ``Tensor.bernoulli_`` of a number (stochastic depth) draws by sample too.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not drawn_by(func, args, kwargs):
            return func(*args, **kwargs)
        given = _arguments(func, args, kwargs)
        p, name = _probability(func, given), f"{self._name}/{func.__name__}"
        if func is functional.scaled_dot_product_attention:
            del given["dropout_p"]
            return _attention(**given, drop=lambda weights: _dropped(weights, name, p))
        given = given["input"]
        if func is torch.Tensor.bernoulli_:
            return given.copy_(_kept(name, given.shape, p, given.device))
        return _dropped(given, name, p, whole_channels=func in _CHANNELS)


def without_drops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a call that :func:`drawn_by` names returns in evaluation mode."""
    given = _arguments(func, args, kwargs)
    if func is functional.scaled_dot_product_attention:
        return func(**(given | {"dropout_p": 0.0}))
    return given["input"]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    drop: Callable[[Tensor], Tensor],
) -> Tensor:
    """Scaled dot-product attention with weights dropped by ``drop``."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    weights = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        weights = weights.masked_fill(~attn_mask, float("-inf")) if boolean else weights + attn_mask
    return drop(torch.ops.aten._safe_softmax(weights, -1)) @ value
