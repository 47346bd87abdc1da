"""Images and tables: scikit-learn's bundled sets and seeded synthetic ones. Nothing is downloaded."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from ignite_scheduler.errors import ExternalError, InputError

Sample = tuple[Tensor, Tensor]

_COARSE: Final = 8
"""Side of the pattern from which a synthetic image is scaled up."""
_NOISE: Final = 0.5
"""Standard deviation of the noise on a synthetic sample; patterns have 1."""


class TensorSamples(Dataset[Sample]):
    """Samples that lie in two tensors; ``transform`` is applied to each input when it is read."""

    def __init__(self, inputs: Tensor, targets: Tensor, transform: Callable[[Tensor], Tensor] | None = None) -> None:
        self.inputs, self.targets, self.transform = inputs, targets, transform

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Sample:
        chosen = self.inputs[index]
        return chosen if self.transform is None else self.transform(chosen), self.targets[index]


class GeneratedSamples(Dataset[Sample]):
    """Samples that a function makes from their index; the same index gives the same sample."""

    def __init__(self, length: int, make: Callable[[int], Sample]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return self.make(index % self.length)


def part(length: int, *, split: str, held_out: float, seed: int) -> Tensor:
    """Indices of the ``train`` or ``held`` part of ``length`` samples, shuffled by ``seed``; the parts are disjoint."""
    if split not in {"train", "held", "all"}:
        raise InputError(f"split is one of train, held, all; found {split!r}")
    if not 0 <= held_out < 1:
        raise InputError(f"held_out is a share of at least 0 and below 1, found {held_out}")
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    if split == "all":
        return order
    num_held = round(length * held_out)
    return order[:num_held] if split == "held" else order[num_held:]


def scale_up(image: Tensor, size: int) -> Tensor:
    """The image ``[channels, side, side]`` at another size, by bilinear interpolation."""
    if image.shape[-1] == size:
        return image
    return functional.interpolate(image[None], size=(size, size), mode="bilinear", align_corners=False)[0]


def _load(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ExternalError(
            f"data set {name!r} comes with scikit-learn, which is not installed: pip install 'ignite-scheduler[torch]'"
        ) from error
    return getattr(datasets, f"load_{name}")()


def digits(
    size: int = 32, channels: int = 3, split: str = "train", held_out: float = 0.2, seed: int = 0
) -> TensorSamples:
    """Handwritten digits: float32 ``[channels, size, size]`` of mean 0 and spread 1, class 0 … 9."""
    if min(size, channels) < 1:
        raise InputError(f"digits: size and channels must be at least 1, found {size}, {channels}")
    bunch = _load("digits")
    images = torch.tensor(bunch.images, dtype=torch.float32)[:, None]
    images = (images - images.mean()) / images.std()
    chosen = part(len(images), split=split, held_out=held_out, seed=seed)
    targets = torch.tensor(bunch.target, dtype=torch.int64)[chosen]
    return TensorSamples(images[chosen], targets, lambda image: scale_up(image, size).expand(channels, -1, -1))


def _table(name: str, *, split: str, held_out: float, seed: int) -> tuple[Tensor, Tensor]:
    """Standardised rows and raw targets of a part; mean and spread are those of the training part."""
    bunch = _load(name)
    rows = torch.tensor(bunch.data, dtype=torch.float64)
    train = rows[part(len(rows), split="train", held_out=held_out, seed=seed)]
    rows = (rows - train.mean(0)) / train.std(0).clamp_min(1e-12)
    chosen = part(len(rows), split=split, held_out=held_out, seed=seed)
    return rows[chosen].float(), torch.tensor(bunch.target)[chosen]


def breast_cancer(split: str = "train", held_out: float = 0.2, seed: int = 0) -> TensorSamples:
    """Float32 ``[30]``, class 0 … 1."""
    rows, targets = _table("breast_cancer", split=split, held_out=held_out, seed=seed)
    return TensorSamples(rows, targets.long())


def wine(split: str = "train", held_out: float = 0.2, seed: int = 0) -> TensorSamples:
    """Float32 ``[13]``, class 0 … 2."""
    rows, targets = _table("wine", split=split, held_out=held_out, seed=seed)
    return TensorSamples(rows, targets.long())


def diabetes(split: str = "train", held_out: float = 0.2, seed: int = 0) -> TensorSamples:
    """Float32 ``[10]``, target float32 ``[1]`` of mean 0 and spread 1 over the training part."""
    _, train = _table("diabetes", split="train", held_out=held_out, seed=seed)
    rows, targets = _table("diabetes", split=split, held_out=held_out, seed=seed)
    return TensorSamples(rows, ((targets - train.mean()) / train.std()).float()[:, None])


def generator_of(*numbers: int) -> torch.Generator:
    """A generator for the thing that the numbers name; the same in every process."""
    return torch.Generator().manual_seed(zlib.crc32(repr(numbers).encode()))


def synthetic_images(
    size: int = 224, channels: int = 3, classes: int = 1000, length: int = 1024, seed: int = 0
) -> GeneratedSamples:
    """Float32 ``[channels, size, size]``: the pattern of the class (index modulo ``classes``) plus noise."""
    if min(size, channels, classes, length) < 1:
        raise InputError("synthetic_images: size, channels, classes and length must be at least 1")

    def make(index: int) -> Sample:
        label = index % classes
        pattern = torch.randn(channels, _COARSE, _COARSE, generator=generator_of(seed, 0, label))
        noise = torch.randn(channels, size, size, generator=generator_of(seed, 1, index))
        return scale_up(pattern, size) + _NOISE * noise, torch.tensor(label)

    return GeneratedSamples(length, make)


def synthetic_rows(features: int = 30, classes: int = 2, length: int = 1024, seed: int = 0) -> GeneratedSamples:
    """Float32 ``[features]``: the centre of the class (index modulo ``classes``) plus noise."""
    if min(features, classes, length) < 1:
        raise InputError("synthetic_rows: features, classes and length must be at least 1")

    def make(index: int) -> Sample:
        label = index % classes
        centre = torch.randn(features, generator=generator_of(seed, 0, label))
        return centre + _NOISE * torch.randn(features, generator=generator_of(seed, 1, index)), torch.tensor(label)

    return GeneratedSamples(length, make)
