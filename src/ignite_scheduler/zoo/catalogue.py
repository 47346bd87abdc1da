"""What the zoo holds, as plain data: names, descriptions and arguments with their defaults. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitableData:
    """A data set of the zoo that suits a model: its name, and which argument of the model gives which of its own."""

    name: str
    args: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name of the zoo.

    ``args`` maps each argument to its default, whose type is also the type that is accepted. ``target`` is the
    ``module:attribute`` that is called with them. A model names the data and the loss on which it is measured where
    nothing else is said.
    """

    name: str
    description: str
    target: str
    args: Mapping[str, Any] = field(default_factory=dict)
    data: SuitableData | None = None
    loss: str = "cross_entropy"


_IMAGE_ARGS: Final = {"width": 1.0, "size": 224, "channels": 3, "classes": 1000, "dropout": 0.5}
_HERE: Final = "ignite_scheduler.zoo"

_IMAGES: Final = SuitableData(
    name="synthetic_images", args={"size": "size", "channels": "channels", "classes": "classes"}
)
_ROWS: Final = SuitableData(name="synthetic_rows", args={"features": "features", "classes": "outputs"})
_TOKENS: Final = SuitableData(name="synthetic_tokens", args={"block": "block", "vocabulary": "vocabulary"})


def _index(*entries: Entry) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


MODELS: Final[Mapping[str, Entry]] = _index(
    Entry(
        name="alexnet",
        description="AlexNet (one-tower form): 5 convolutions, 3 linear layers; images",
        target=f"{_HERE}.vision:alexnet",
        args=_IMAGE_ARGS,
        data=_IMAGES,
    ),
    Entry(
        name="vgg11",
        description="VGG-11 (configuration A): 8 convolutions, 3 linear layers; images of at least 32x32",
        target=f"{_HERE}.vision:vgg11",
        args=_IMAGE_ARGS | {"batch_norm": False},
        data=_IMAGES,
    ),
    Entry(
        name="vgg16",
        description="VGG-16 (configuration D): 13 convolutions, 3 linear layers; images of at least 32x32",
        target=f"{_HERE}.vision:vgg16",
        args=_IMAGE_ARGS | {"batch_norm": False},
        data=_IMAGES,
    ),
    Entry(
        name="squeezenet",
        description="SqueezeNet 1.0 or 1.1; a fire module is one layer; images",
        target=f"{_HERE}.vision:squeezenet",
        args={"version": "1.0"} | _IMAGE_ARGS,
        data=_IMAGES,
    ),
    Entry(
        name="mlp",
        description="linear layers with ReLU; rows of a table",
        target=f"{_HERE}.perceptron:mlp",
        args={"features": 30, "hidden": (64, 64), "outputs": 2, "dropout": 0.0},
        data=_ROWS,
    ),
    Entry(
        name="gpt",
        description="small decoder-only transformer: embedding, blocks, norm and head; sequences of tokens",
        target=f"{_HERE}.transformer:gpt",
        args={"vocabulary": 256, "block": 64, "dim": 128, "heads": 4, "depth": 4, "dropout": 0.1, "tied": False},
        data=_TOKENS,
    ),
)
"""Models by name. Each is a chain: an ``nn.Sequential`` whose children are the layers."""

_SPLIT_ARGS: Final = {"split": "train", "held_out": 0.2, "seed": 0}

DATASETS: Final[Mapping[str, Entry]] = _index(
    Entry(
        name="digits",
        description="1,797 images of handwritten digits (scikit-learn), scaled up to size x size; 10 classes",
        target=f"{_HERE}.datasets:digits",
        args={"size": 32, "channels": 3} | _SPLIT_ARGS,
    ),
    Entry(
        name="breast_cancer",
        description="569 rows of 30 features (scikit-learn); 2 classes",
        target=f"{_HERE}.datasets:breast_cancer",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="wine",
        description="178 rows of 13 features (scikit-learn); 3 classes",
        target=f"{_HERE}.datasets:wine",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="diabetes",
        description="442 rows of 10 features (scikit-learn); one number to predict, standardised",
        target=f"{_HERE}.datasets:diabetes",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="stdlib",
        description="source text of the Python standard library as bytes (vocabulary 256); target = next bytes",
        target=f"{_HERE}.text:stdlib",
        args={"block": 64, "limit": 2_000_000} | _SPLIT_ARGS,
    ),
    Entry(
        name="synthetic_images",
        description="seeded images of any size: a coarse pattern for each class plus noise",
        target=f"{_HERE}.datasets:synthetic_images",
        args={"size": 224, "channels": 3, "classes": 1000, "length": 1024, "seed": 0},
    ),
    Entry(
        name="synthetic_rows",
        description="seeded rows of a table: a centre for each class plus noise",
        target=f"{_HERE}.datasets:synthetic_rows",
        args={"features": 30, "classes": 2, "length": 1024, "seed": 0},
    ),
    Entry(
        name="synthetic_tokens",
        description="seeded sequences of tokens that count up from a random start; target = next tokens",
        target=f"{_HERE}.text:synthetic_tokens",
        args={"block": 64, "vocabulary": 256, "length": 1024, "seed": 0},
    ),
)
"""Map-style datasets by name: item i is (input, target)."""

LOSSES: Final[Mapping[str, Entry]] = _index(
    Entry(
        name="cross_entropy",
        description="class labels; the class dimension of the output is its last; mean over the tokens of a sample",
        target=f"{_HERE}.losses:cross_entropy",
    ),
    Entry(
        name="mse",
        description="squared error; mean over the elements of a sample",
        target=f"{_HERE}.losses:mse",
    ),
)
"""Losses by name: (output, target) → the sum over samples of each sample's loss."""
