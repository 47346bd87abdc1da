"""Samples of a map-style data set as batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ignite_scheduler.errors import InputError

if TYPE_CHECKING:
    from ignite_scheduler.zoo.chain import Values
    from ignite_scheduler.zoo.resolve import Samples


def take(samples: Samples, indices: Iterable[int]) -> tuple[Values, Tensor]:
    """Inputs and targets of a map-style data set's samples, stacked along a new dimension 0.

    An input that is a tuple gives a tuple of stacked tensors.

    Raises
    ------
    InputError
        An item is no pair (input, target) of tensors or numbers, or the items differ in shape.
    """
    items = [_pair(samples[index], index) for index in indices]
    columns = [
        stacked(list(column), "inputs of the data set") for column in zip(*(inputs for inputs, _ in items), strict=True)
    ]
    inputs = columns[0] if len(columns) == 1 else tuple(columns)
    return inputs, stacked([target for _, target in items], "targets of the data set")


def _pair(item: Any, index: int) -> tuple[tuple[Tensor, ...], Tensor]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(
            f"item {index} of the data set must be (input, target), found {_told(item)}; several inputs make a tuple: "
            "((first, second), target)"
        )
    parts = item[0] if isinstance(item[0], tuple | list) else (item[0],)
    for part in parts:
        if isinstance(part, Mapping):
            raise InputError(
                f"an input of item {index} of the data set is {_told(part)}: give inputs by position, as in "
                "((input_ids, attention_mask), target)"
            )
    try:
        return tuple(torch.as_tensor(part) for part in parts), torch.as_tensor(item[1])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"item {index} of the data set is not made of tensors or numbers: {error}") from error


def _told(item: Any) -> str:
    """What it is, in words; of a mapping the keys too."""
    return f"a mapping of {', '.join(map(str, item))}" if isinstance(item, Mapping) else type(item).__name__


def stacked(tensors: list[Tensor], noun: str) -> Tensor:
    """The tensors along a new dimension 0; InputError, which calls them ``noun``, if they differ in shape."""
    shapes_found = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes_found) > 1:
        raise InputError(f"{noun} differ in shape: {shapes_found[0]}, {shapes_found[1]}; pad or crop them")
    return torch.stack(tensors)


def example_inputs(samples: Samples, count: int) -> tuple[Tensor, ...]:
    """Inputs of ``count`` samples: the first ones, again and again where there are fewer."""
    inputs, _ = take(samples, (index % len(samples) for index in range(count)))
    return (inputs,) if isinstance(inputs, Tensor) else inputs
