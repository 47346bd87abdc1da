"""What the zoo holds, as plain data: names, descriptions and arguments with their defaults. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ignite_scheduler.zoo.entries import HERE, Entry, Published, SuitableData, index
from ignite_scheduler.zoo.language import LANGUAGE

_IMAGE_ARGS: Final = {"width": 1.0, "size": 224, "channels": 3, "classes": 1000, "dropout": 0.5}

_IMAGES: Final = SuitableData(
    name="synthetic_images", args={"size": "size", "channels": "channels", "classes": "classes"}
)
_ROWS: Final = SuitableData(name="synthetic_rows", args={"features": "features", "classes": "outputs"})
_HOURS: Final = SuitableData(name="air_quality", args={"hours": "hours"})


def _torchvision(parameters: int, file: str) -> Published:
    return Published(parameters=parameters, source=f"torchvision, models/{file}.py (num_params)")


MODELS: Final[Mapping[str, Entry]] = index(
    Entry(
        name="alexnet",
        description="AlexNet (one-tower form): 5 convolutions, 3 linear layers; images",
        target=f"{HERE}.vision:alexnet",
        args=_IMAGE_ARGS,
        data=_IMAGES,
        published=_torchvision(61_100_840, "alexnet"),
    ),
    Entry(
        name="vgg11",
        description="VGG-11 (configuration A): 8 convolutions, 3 linear layers; images of at least 32x32",
        target=f"{HERE}.vision:vgg11",
        args=_IMAGE_ARGS | {"batch_norm": False},
        data=_IMAGES,
        published=_torchvision(132_863_336, "vgg"),
    ),
    Entry(
        name="vgg16",
        description="VGG-16 (configuration D): 13 convolutions, 3 linear layers; images of at least 32x32",
        target=f"{HERE}.vision:vgg16",
        args=_IMAGE_ARGS | {"batch_norm": False},
        data=_IMAGES,
        published=_torchvision(138_357_544, "vgg"),
    ),
    Entry(
        name="vgg19",
        description="VGG-19 (configuration E): 16 convolutions, 3 linear layers; images of at least 32x32",
        target=f"{HERE}.vision:vgg19",
        args=_IMAGE_ARGS | {"batch_norm": False},
        data=_IMAGES,
        published=_torchvision(143_667_240, "vgg"),
    ),
    Entry(
        name="squeezenet",
        description="SqueezeNet 1.0 or 1.1; a fire module is one layer; images",
        target=f"{HERE}.vision:squeezenet",
        args={"version": "1.0"} | _IMAGE_ARGS,
        data=_IMAGES,
        published=_torchvision(1_248_424, "squeezenet"),
    ),
    Entry(
        name="mnasnet",
        description="MnasNet-B1, width 0.5, 0.75, 1.0 or 1.3 as published; batch norms; images of at least 33x33",
        target=f"{HERE}.vision:mnasnet",
        args=_IMAGE_ARGS | {"dropout": 0.2},
        data=_IMAGES,
        published=_torchvision(4_383_312, "mnasnet"),
    ),
    Entry(
        name="mlp",
        description="linear layers with ReLU; rows of a table",
        target=f"{HERE}.perceptron:mlp",
        args={"features": 30, "hidden": (64, 64), "outputs": 2, "dropout": 0.0},
        data=_ROWS,
    ),
    Entry(
        name="air-quality",
        description="linear layers with ReLU that predict fine dust from a day of weather; loss mse",
        target=f"{HERE}.perceptron:air_quality",
        args={"hours": 24, "hidden": (256, 128, 64), "dropout": 0.0},
        data=_HOURS,
        loss="mse",
    ),
    *LANGUAGE.values(),
)
"""Models by name. Each is a chain: an ``nn.Sequential`` whose children are the layers."""

LIBRARIES: Final[Mapping[str, Entry]] = index(
    Entry(
        name="huggingface",
        description="any model class of transformers, from its configuration; the data must be named",
        target=f"{HERE}.libraries:huggingface",
        args={"model": "GPT2LMHeadModel", "config": {}},
    ),
    Entry(
        name="timm",
        description="any model of timm, by its name there; the data must be named",
        target=f"{HERE}.libraries:timm",
        args={"model": "resnet18", "options": {}},
    ),
)
"""Other libraries by name, whose models are cut along their graph."""

_SPLIT_ARGS: Final = {"split": "train", "held_out": 0.2, "seed": 0}

DATASETS: Final[Mapping[str, Entry]] = index(
    Entry(
        name="digits",
        description="1,797 images of handwritten digits (scikit-learn), 3 x size x size (channels=1: grey); 10 classes",
        target=f"{HERE}.datasets:digits",
        args={"size": 32, "channels": 3} | _SPLIT_ARGS,
    ),
    Entry(
        name="breast_cancer",
        description="569 rows of 30 features (scikit-learn); 2 classes",
        target=f"{HERE}.datasets:breast_cancer",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="wine",
        description="178 rows of 13 features (scikit-learn); 3 classes",
        target=f"{HERE}.datasets:wine",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="diabetes",
        description="442 rows of 10 features (scikit-learn); one number to predict, standardised",
        target=f"{HERE}.datasets:diabetes",
        args=_SPLIT_ARGS,
    ),
    Entry(
        name="air_quality",
        description="seeded hours of weather and fine dust, a day at a time; to predict: the dust of the next hour",
        target=f"{HERE}.air_quality:air_quality",
        args={"hours": 24, "length": 43_824} | _SPLIT_ARGS,
    ),
    Entry(
        name="stdlib",
        description="source text of the Python standard library as bytes (vocabulary 256); target = next bytes",
        target=f"{HERE}.text:stdlib",
        args={"block": 64, "limit": 2_000_000} | _SPLIT_ARGS,
    ),
    Entry(
        name="synthetic_images",
        description="seeded images of any size: a coarse pattern for each class plus noise",
        target=f"{HERE}.datasets:synthetic_images",
        args={"size": 224, "channels": 3, "classes": 1000, "length": 1024, "seed": 0},
    ),
    Entry(
        name="synthetic_rows",
        description="seeded rows of a table: a centre for each class plus noise",
        target=f"{HERE}.datasets:synthetic_rows",
        args={"features": 30, "classes": 2, "length": 1024, "seed": 0},
    ),
    Entry(
        name="synthetic_tokens",
        description="seeded sequences of tokens that count up from a random start; target = next tokens",
        target=f"{HERE}.text:synthetic_tokens",
        args={"block": 64, "vocabulary": 256, "length": 1024, "seed": 0},
    ),
    Entry(
        name="synthetic_masked_tokens",
        description="seeded sequences of tokens that count up, some of them hidden; target = what was hidden",
        target=f"{HERE}.text:synthetic_masked_tokens",
        args={"block": 64, "vocabulary": 256, "share": 0.15, "length": 1024, "seed": 0},
    ),
)
"""Map-style datasets by name: item i is (input, target)."""

LOSSES: Final[Mapping[str, Entry]] = index(
    Entry(
        name="cross_entropy",
        description="class labels; the class dimension of the output is its last; mean over the tokens of a sample",
        target=f"{HERE}.losses:cross_entropy",
    ),
    Entry(
        name="mse",
        description="squared error; mean over the elements of a sample",
        target=f"{HERE}.losses:mse",
    ),
)
"""Losses by name: (output, target) → the sum over samples of each sample's loss."""
