"""Does this model suit this data set and this loss? One clear error before anything is started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Reference
from ignite_scheduler.zoo.chain import Values, apply_layer, as_chain, layers, shapes
from ignite_scheduler.zoo.dropout import drawing
from ignite_scheduler.zoo.resolve import Samples, build, dataset, describe, loss, original

_NUM_SAMPLES: Final = 2
"""Enough to tell a sum over samples from a mean."""
_TOLERANCE: Final = 1e-4
"""Relative difference that float32 rounding may make between two orders of adding up."""


def take(samples: Samples, indices: Iterable[int]) -> tuple[Values, Tensor]:
    """Inputs and targets of a map-style data set's samples, stacked along a new dimension 0.

    An input that is a tuple gives a tuple of stacked tensors.

    Raises
    ------
    InputError
        An item is no pair (input, target) of tensors or numbers, or the items differ in shape.
    """
    items = [_pair(samples[index], index) for index in indices]
    columns = [_stacked(list(column), "inputs") for column in zip(*(inputs for inputs, _ in items), strict=True)]
    inputs = columns[0] if len(columns) == 1 else tuple(columns)
    return inputs, _stacked([target for _, target in items], "targets")


def _pair(item: Any, index: int) -> tuple[tuple[Tensor, ...], Tensor]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(f"item {index} of the data set must be (input, target), found {type(item).__name__}")
    parts = item[0] if isinstance(item[0], tuple | list) else (item[0],)
    try:
        return tuple(torch.as_tensor(part) for part in parts), torch.as_tensor(item[1])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"item {index} of the data set is not made of tensors or numbers: {error}") from error


def _stacked(tensors: list[Tensor], noun: str) -> Tensor:
    shapes_found = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes_found) > 1:
        raise InputError(
            f"{noun} of the data set differ in shape: {shapes_found[0]}, {shapes_found[1]}; pad or crop them"
        )
    return torch.stack(tensors)


def check(model: Reference, data: Reference, loss_name: str) -> None:
    """Run two samples through model and loss, forward and backward.

    Raises
    ------
    InputError
        Something does not fit; the message names the layer with the shape of its input, or the loss with both shapes.
    """
    chain, samples, measure = build(model, seed=0), dataset(data), loss(loss_name)
    indices = [index % len(samples) for index in range(_NUM_SAMPLES)]
    inputs, targets = take(samples, indices)
    with drawing(seed=0, step=0, samples=torch.arange(_NUM_SAMPLES)):
        _check_order(model, inputs)
        values = inputs
        for name, module in layers(chain):
            values = apply_layer(name, module, values)
    output = _single(describe(model), values)
    if output.shape[:1] != (_NUM_SAMPLES,):
        raise InputError(
            f"{describe(model)}: {_NUM_SAMPLES} samples go in, an output of shape {tuple(output.shape)} comes out; "
            "dimension 0 must run over the samples"
        )
    total = _loss_of(loss_name, measure, output, targets)
    parts = sum(float(_loss_of(loss_name, measure, output[i : i + 1], targets[i : i + 1]).detach()) for i in range(2))
    if abs(float(total.detach()) - parts) > _TOLERANCE * max(1.0, abs(parts)):
        raise InputError(
            f"loss {loss_name!r} must return the sum of the samples' losses: {_NUM_SAMPLES} samples together give "
            f"{float(total.detach()):.6g}, one by one they add up to {parts:.6g} (does it take the mean?)"
        )


def _single(source: str, values: Values) -> Tensor:
    if not isinstance(values, Tensor):
        raise InputError(f"{source}: the last layer must return one tensor for the loss, found {shapes(values)}")
    return values


def _loss_of(name: str, measure: Any, output: Tensor, targets: Tensor) -> Tensor:
    where = f"loss {name!r} with an output of shape {tuple(output.shape)} and a target of shape {tuple(targets.shape)}"
    try:
        value = measure(output, targets)
    except InputError:
        raise
    except Exception as error:  # whatever a user's loss raises is told with the place
        raise InputError(f"{where} fails: {type(error).__name__}: {error}") from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError(f"{where} must return one number, found {value!r}")
    if not value.requires_grad:
        raise InputError(f"{where} returns a number that does not depend on the model's parameters: nothing to train")
    return value


def _check_order(model: Reference, inputs: Values) -> None:
    """Hold a module with a forward of its own against the chain of its children: it must be the same function."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = original(model)
    if not isinstance(module, nn.Module) or type(module).forward is nn.Sequential.forward:
        return
    if isinstance(module, nn.ModuleList):
        return
    source = describe(model)
    name = type(module).__name__
    module.eval()
    chain = as_chain(module, source).eval()
    with torch.no_grad():
        expected = _single(source, apply_layer(name, module, inputs))
        values = inputs
        for layer, child in layers(chain):
            values = apply_layer(layer, child, values)
    found = _single(source, values)
    if expected.shape != found.shape or not torch.allclose(expected, found, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise InputError(
            f"{source}: the forward of {name} does more than run its children "
            f"({', '.join(layer for layer, _ in layers(chain))}) one after the other; return an nn.Sequential of layers"
        )
