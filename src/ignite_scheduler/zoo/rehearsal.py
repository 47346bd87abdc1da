"""Runs a model's forward once to record what it does, without values where that will do."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as tree

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.blocks import Blocks
from ignite_scheduler.zoo.recorder import FunctionRecorder, Recorder
from ignite_scheduler.zoo.recording import Recording


def record(
    model: nn.Module, blocks: Blocks, batches: Sequence[tuple[Tensor, ...]], source: str, dtype: torch.dtype
) -> list[Recording]:
    """A run of ``model`` on each of the batches, in elements of ``dtype``.

    The model must be in the mode to be recorded; it is left as it was.

    Raises
    ------
    DataDependentError
        The forward looks at the values of the samples.
    InputError
        The forward fails, or returns no tensor; the message names the block.

    Notes
    -----
    First the model is run without values: samples, weights, and what is computed from them, have shapes and types
    only. So this takes no memory for activations, reads no weight, and does not even need weights. Constants that the
    forward makes have their values: it may look at those. Models ask which it is, and don't look at samples only to
    save work, as attention masks do otherwise. A model that needs values within its blocks, such as a mixture of
    experts, is run with them.
    """
    try:
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with _quiet(), without_values(model, dtype, fake):
            return [_record(model, blocks, tuple(map(fake.from_tensor, inputs)), source) for inputs in batches]
    except Exception:
        if any(parameter.is_meta for parameter in model.parameters()):
            raise
    model.to(dtype)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        return [_record(model, blocks, inputs, source) for inputs in batches]
    finally:
        for buffer, before in buffers:
            buffer.data.copy_(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within this block torch does not log what fails without values: it is tried again with them."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def without_values(model: nn.Module, dtype: torch.dtype, fake: FakeTensorMode) -> Iterator[None]:
    """Within this block the model's state has no values: tensors of ``fake`` on the CPU; what is tied stays tied."""
    before: list[tuple[dict[str, Any], str, Tensor]] = []
    fakes: dict[int, Tensor] = {}
    for module in model.modules():
        held: dict[str, Any]
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    before.append((held, name, tensor))
                    if id(tensor) not in fakes:
                        with fake:
                            fakes[id(tensor)] = _like(tensor, dtype)
    try:
        for held, name, tensor in before:
            held[name] = fakes[id(tensor)]
        yield
    finally:
        for held, name, tensor in before:
            held[name] = tensor


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    kind = dtype if tensor.is_floating_point() else tensor.dtype
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="cpu")
    return nn.Parameter(like, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else like


def _record(model: nn.Module, blocks: Blocks, inputs: tuple[Tensor, ...], source: str) -> Recording:
    recorder = Recorder(model, blocks)
    with ExitStack() as stack:
        given = tuple(recorder.define(tensor, from_samples=True) for tensor in inputs)
        stack.enter_context(recorder.hooked())
        stack.enter_context(recorder)
        stack.enter_context(FunctionRecorder(recorder))
        try:
            result = model(*inputs)
        except InputError:
            raise
        except Exception as error:  # whatever a user's model raises is told with the place
            raise InputError(recorder.story(source, inputs, error)) from error
    output = recorder.known(output_of(result, source))
    if output is None:
        raise InputError(f"{source}: the model's output is no result of tensor operations on its inputs")
    return Recording(
        samples=len(inputs[0]),
        num_inputs=len(given),
        steps=tuple(recorder.steps),
        values=tuple(recorder.values),
        literals=tuple(recorder.literals),
        output=output,
    )


def output_of(result: Any, source: str) -> Tensor:
    """The tensor that the loss is taken of: the result itself, its ``logits``, or the first tensor in it."""
    if isinstance(result, Tensor):
        return result
    logits = result.get("logits") if hasattr(result, "get") else getattr(result, "logits", None)
    found = [logits] if isinstance(logits, Tensor) else [t for t in tree.tree_leaves(result) if isinstance(t, Tensor)]
    if not found:
        raise InputError(f"{source}: the model returns a {type(result).__name__} without a tensor in it")
    return found[0]
