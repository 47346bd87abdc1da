"""The models for images: AlexNet, VGG, SqueezeNet and MnasNet as chains.

At full size they have the parameters of the published models, as ``num_params`` in torchvision's models states them.
``width`` scales the number of channels, ``size`` is the side of the square input. Deviations: adaptive pooling never
makes a map larger than it is, so small inputs get small classifiers; AlexNet's first stride shrinks for inputs below 63
pixels; weights start by He et al. (2015), which also suits narrow copies. A convolution and its ReLU are one layer, a
pooling is its own.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from ignite_scheduler.errors import InputError

Layers = OrderedDict[str, nn.Module]

_VGG: Final = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions in each of the five groups: configurations A, D and E of Simonyan & Zisserman (2015), table 1."""
_VGG_CHANNELS: Final = (64, 128, 256, 512, 512)

_FIRES: Final = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of the squeeze and of each expand of fire2 … fire9: Iandola et al. (2016), table 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    """What differs between releases: the first convolution, and after which layers the map is pooled."""

    channels: int
    kernel: int
    pool_after: tuple[int, ...]


_SQUEEZENET: Final = {
    "1.0": _Release(channels=96, kernel=7, pool_after=(1, 4, 8)),
    "1.1": _Release(channels=64, kernel=3, pool_after=(1, 3, 5)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """Blocks of one shape; the first of them has the stride."""

    channels: int
    kernel: int
    stride: int
    expansion: int
    count: int


_MNASNET: Final = (
    _Stack(channels=24, kernel=3, stride=2, expansion=3, count=3),
    _Stack(channels=40, kernel=5, stride=2, expansion=3, count=3),
    _Stack(channels=80, kernel=5, stride=2, expansion=6, count=3),
    _Stack(channels=96, kernel=3, stride=1, expansion=6, count=2),
    _Stack(channels=192, kernel=5, stride=2, expansion=6, count=4),
    _Stack(channels=320, kernel=3, stride=1, expansion=6, count=1),
)
"""Version B1 of Tan et al. (2019), without squeeze and excitation."""
_MNASNET_LAST: Final = 1280
"""Channels before the classifier; the multiplier leaves them."""

_LAST_STD: Final = 0.01
"""Standard deviation of the last layer's fresh weights, as in all three papers: the first loss is about ln(classes)."""


def _scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width))


def _check(model: str, *, width: float, size: int, channels: int, classes: int) -> None:
    if width <= 0 or min(size, channels, classes) < 1:
        raise InputError(
            f"{model}: width must be above 0 and size, channels and classes at least 1, "
            f"found width={width}, size={size}, channels={channels}, classes={classes}"
        )


def _too_small(model: str, size: int, least: int) -> InputError:
    return InputError(f"{model}: images must be at least {least}x{least}, found size={size}")


def _convolution(read: int, written: int, *, batch_norm: bool = False, **options: Any) -> nn.Sequential:
    norm = [nn.BatchNorm2d(written)] if batch_norm else []
    return nn.Sequential(nn.Conv2d(read, written, **options), *norm, nn.ReLU())


def _start(chain: nn.Sequential) -> nn.Sequential:
    """Fresh weights, in place: the variance stays through ReLU layers of any width, the last layer is small."""
    weighted = [module for module in chain.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    for module in weighted:
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    nn.init.normal_(weighted[-1].weight, std=_LAST_STD)
    return chain


def alexnet(
    width: float = 1.0, size: int = 224, channels: int = 3, classes: int = 1000, dropout: float = 0.5
) -> nn.Sequential:
    """Chain ``conv1`` … ``conv5`` with pools, ``flatten``, ``fc6`` … ``fc8``; 61,100,840 parameters at full size.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``. The one-tower form of
    A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014).
    """
    _check("alexnet", width=width, size=size, channels=channels, classes=classes)
    # Three poolings of 3 by stride 2 need a map of at least 15 after the first convolution.
    stride = next((s for s in (4, 2, 1) if (size + 4 - 11) // s + 1 >= 15), None)
    if stride is None:
        raise _too_small("alexnet", size, 21)
    side = (size + 4 - 11) // stride + 1
    for _ in range(3):
        side = (side - 3) // 2 + 1
    c1, c2, c3, c4, c5 = (_scaled(c, width) for c in (64, 192, 384, 256, 256))
    hidden, pooled = _scaled(4096, width), min(6, side)
    layers: Layers = OrderedDict()
    layers["conv1"] = _convolution(channels, c1, kernel_size=11, stride=stride, padding=2)
    layers["pool1"] = nn.MaxPool2d(3, 2)
    layers["conv2"] = _convolution(c1, c2, kernel_size=5, padding=2)
    layers["pool2"] = nn.MaxPool2d(3, 2)
    layers["conv3"] = _convolution(c2, c3, kernel_size=3, padding=1)
    layers["conv4"] = _convolution(c3, c4, kernel_size=3, padding=1)
    layers["conv5"] = _convolution(c4, c5, kernel_size=3, padding=1)
    layers["pool5"] = nn.MaxPool2d(3, 2)
    layers["flatten"] = nn.Sequential(nn.AdaptiveAvgPool2d(pooled), nn.Flatten())
    layers["fc6"] = nn.Sequential(nn.Dropout(dropout), nn.Linear(c5 * pooled * pooled, hidden), nn.ReLU())
    layers["fc7"] = nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU())
    layers["fc8"] = nn.Linear(hidden, classes)
    return _start(nn.Sequential(layers))


def _vgg(
    depth: int, *, width: float, size: int, channels: int, classes: int, dropout: float, batch_norm: bool
) -> nn.Sequential:
    name = f"vgg{depth}"
    _check(name, width=width, size=size, channels=channels, classes=classes)
    if size < 32:
        raise _too_small(name, size, 32)
    layers: Layers = OrderedDict()
    read = channels
    for group, (count, full) in enumerate(zip(_VGG[depth], _VGG_CHANNELS, strict=True), start=1):
        written = _scaled(full, width)
        for index in range(1, count + 1):
            layers[f"conv{group}_{index}"] = _convolution(
                read, written, batch_norm=batch_norm, kernel_size=3, padding=1
            )
            read = written
        layers[f"pool{group}"] = nn.MaxPool2d(2)
    pooled, hidden = min(7, size // 32), _scaled(4096, width)
    layers["flatten"] = nn.Sequential(nn.AdaptiveAvgPool2d(pooled), nn.Flatten())
    layers["fc6"] = nn.Sequential(nn.Linear(read * pooled * pooled, hidden), nn.ReLU(), nn.Dropout(dropout))
    layers["fc7"] = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout))
    layers["fc8"] = nn.Linear(hidden, classes)
    return _start(nn.Sequential(layers))


def vgg11(
    width: float = 1.0,
    size: int = 224,
    channels: int = 3,
    classes: int = 1000,
    dropout: float = 0.5,
    batch_norm: bool = False,
) -> nn.Sequential:
    """Chain of VGG-11: ``conv1_1``, ``pool1`` … ``fc8``; 132,863,336 parameters at full size.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``.
    """
    return _vgg(11, width=width, size=size, channels=channels, classes=classes, dropout=dropout, batch_norm=batch_norm)


def vgg16(
    width: float = 1.0,
    size: int = 224,
    channels: int = 3,
    classes: int = 1000,
    dropout: float = 0.5,
    batch_norm: bool = False,
) -> nn.Sequential:
    """Chain of VGG-16: ``conv1_1``, ``conv1_2``, ``pool1`` … ``fc8``; 138,357,544 parameters at full size.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``.
    """
    return _vgg(16, width=width, size=size, channels=channels, classes=classes, dropout=dropout, batch_norm=batch_norm)


def vgg19(
    width: float = 1.0,
    size: int = 224,
    channels: int = 3,
    classes: int = 1000,
    dropout: float = 0.5,
    batch_norm: bool = False,
) -> nn.Sequential:
    """Chain of VGG-19: ``conv1_1``, ``conv1_2``, ``pool1`` … ``fc8``; 143,667,240 parameters at full size.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``.
    """
    return _vgg(19, width=width, size=size, channels=channels, classes=classes, dropout=dropout, batch_norm=batch_norm)


class Fire(nn.Module):
    """A 1x1 convolution that squeezes channels, then 1x1 and 3x3 convolutions side by side that expand them."""

    def __init__(self, read: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = _convolution(read, squeeze, kernel_size=1)
        self.expand1 = _convolution(squeeze, expand, kernel_size=1)
        self.expand3 = _convolution(squeeze, expand, kernel_size=3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps with ``2 · expand`` channels, same sides."""
        squeezed = self.squeeze(inputs)
        return torch.cat((self.expand1(squeezed), self.expand3(squeezed)), dim=1)


def squeezenet(
    version: str = "1.0",
    width: float = 1.0,
    size: int = 224,
    channels: int = 3,
    classes: int = 1000,
    dropout: float = 0.5,
) -> nn.Sequential:
    """Chain ``conv1``, ``fire2`` … ``fire9`` with pools, ``conv10``, ``flatten``.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``. At full size 1,248,424 parameters
    (version 1.0) or 1,235,496 (1.1).
    """
    _check("squeezenet", width=width, size=size, channels=channels, classes=classes)
    if version not in _SQUEEZENET:
        raise InputError(f"squeezenet: version is one of {', '.join(_SQUEEZENET)}, found {version!r}")
    shape = _SQUEEZENET[version]
    least = 14 + shape.kernel  # three poolings that round up need a map of 8 after the first convolution
    if size < least:
        raise _too_small(f"squeezenet {version}", size, least)
    layers: Layers = OrderedDict()
    read = _scaled(shape.channels, width)
    layers["conv1"] = _convolution(channels, read, kernel_size=shape.kernel, stride=2)
    for position in range(1, 10):
        if position > 1:
            squeeze, expand = (_scaled(c, width) for c in _FIRES[position - 2])
            layers[f"fire{position}"] = Fire(read, squeeze, expand)
            read = 2 * expand
        if position in shape.pool_after:
            layers[f"pool{position}"] = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers["conv10"] = nn.Sequential(nn.Dropout(dropout), *_convolution(read, classes, kernel_size=1))
    layers["flatten"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return _start(nn.Sequential(layers))


def _in_eights(channels: int, width: float) -> int:
    """The scaled number of channels as a multiple of 8, at least 8, and not more than a tenth below."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * scaled else rounded + 8


class InvertedResidual(nn.Module):
    """Channels are multiplied, read map by map, and brought together again; added to the input where that fits."""

    def __init__(self, read: int, written: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = read * expansion
        self.expand = _convolution(read, middle, batch_norm=True, kernel_size=1, bias=False)
        self.depthwise = _depthwise(middle, kernel=kernel, stride=stride)
        self.contract = nn.Sequential(nn.Conv2d(middle, written, 1, bias=False), nn.BatchNorm2d(written))
        self.is_residual = read == written and stride == 1

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps with ``written`` channels, their sides divided by the stride."""
        outputs: Tensor = self.contract(self.depthwise(self.expand(inputs)))
        return inputs + outputs if self.is_residual else outputs


def _depthwise(channels: int, *, kernel: int, stride: int) -> nn.Sequential:
    return _convolution(
        channels,
        channels,
        batch_norm=True,
        kernel_size=kernel,
        stride=stride,
        padding=kernel // 2,
        groups=channels,
        bias=False,
    )


def mnasnet(
    width: float = 1.0, size: int = 224, channels: int = 3, classes: int = 1000, dropout: float = 0.2
) -> nn.Sequential:
    """Chain ``conv1``, ``separable``, ``block1_1`` … ``block6_1``, ``conv8``, ``flatten``, ``fc``.

    Input ``[samples, channels, size, size]``, output ``[samples, classes]``. ``width`` is the paper's depth multiplier:
    2,218,512 parameters at 0.5, 3,170,208 at 0.75, 4,383,312 at 1.0, 6,282,256 at 1.3. Numbers of channels are
    multiples of 8. Tan et al., "MnasNet: Platform-Aware Neural Architecture Search for Mobile" (2019), version B1.
    """
    _check("mnasnet", width=width, size=size, channels=channels, classes=classes)
    if size < 33:  # five halvings must leave more than one pixel, for a microbatch of one sample to have a variance
        raise _too_small("mnasnet", size, 33)
    first, read = _in_eights(32, width), _in_eights(16, width)
    layers: Layers = OrderedDict()
    layers["conv1"] = _convolution(channels, first, batch_norm=True, kernel_size=3, stride=2, padding=1, bias=False)
    layers["separable"] = nn.Sequential(
        _depthwise(first, kernel=3, stride=1), nn.Conv2d(first, read, 1, bias=False), nn.BatchNorm2d(read)
    )
    for number, stack in enumerate(_MNASNET, start=1):
        written = _in_eights(stack.channels, width)
        for index in range(1, stack.count + 1):
            stride = stack.stride if index == 1 else 1
            layers[f"block{number}_{index}"] = InvertedResidual(
                read, written, kernel=stack.kernel, stride=stride, expansion=stack.expansion
            )
            read = written
    layers["conv8"] = _convolution(read, _MNASNET_LAST, batch_norm=True, kernel_size=1, bias=False)
    layers["flatten"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    layers["fc"] = nn.Sequential(nn.Dropout(dropout), nn.Linear(_MNASNET_LAST, classes))
    return _start(nn.Sequential(layers))
