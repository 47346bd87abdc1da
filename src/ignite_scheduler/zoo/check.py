"""Does this model suit this data set and this loss? One clear error before anything is started."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Reference
from ignite_scheduler.zoo.batches import take
from ignite_scheduler.zoo.chain import Values, apply_layer, is_chain, layers, shapes
from ignite_scheduler.zoo.dropout import drawing
from ignite_scheduler.zoo.rehearsal import output_of
from ignite_scheduler.zoo.resolve import chain_of, dataset, describe, loss, original

_NUM_SAMPLES: Final = 2
"""Enough to tell a sum over samples from a mean."""
_TOLERANCE: Final = 1e-4
"""Relative difference that float32 rounding may make between two orders of adding up."""
_MIXED: Final = (
    "a sample's output depends on the other samples of its microbatch (batch normalisation, a mean over dimension 0?): "
    "training depends on the size of the microbatches, and is not that of one process on the whole batch"
)


def check(model: Reference, data: Reference, loss_name: str) -> tuple[str, ...]:
    """Run two samples through model and loss, forward and backward; what should be known, in sentences.

    Raises
    ------
    InputError
        Something does not fit; the message names the layer with the shape of its input, or the loss with both shapes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = original(model)
        chain = chain_of(module, model, data)
    samples, measure = dataset(data), loss(loss_name)
    indices = [index % len(samples) for index in range(_NUM_SAMPLES)]
    inputs, targets = take(samples, indices)
    if not is_chain(module):
        with drawing(seed=0, step=0, samples=torch.arange(_NUM_SAMPLES)):
            _check_same(module.eval(), chain.eval(), inputs, describe(model))
        chain.train()
    output = _drawn(describe(model), chain, inputs)
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
    return (_MIXED,) if _mixes_samples(describe(model), chain, inputs, output) else ()


@torch.no_grad()
def _mixes_samples(source: str, chain: nn.Sequential, inputs: Values, output: Tensor) -> bool:
    """Whether the first sample's output is another beside itself than beside the second one."""
    twice = inputs[[0, 0]] if isinstance(inputs, Tensor) else tuple(part[[0, 0]] for part in inputs)
    beside_itself = _drawn(source, chain, twice)
    return not torch.allclose(output[0].float(), beside_itself[0].float(), rtol=_TOLERANCE, atol=_TOLERANCE)


def _drawn(source: str, chain: nn.Sequential, inputs: Values) -> Tensor:
    """The output for samples 0 and 1 of step 0, with the same random numbers at every call."""
    with torch.random.fork_rng(devices=[]), drawing(seed=0, step=0, samples=torch.arange(_NUM_SAMPLES)):
        torch.manual_seed(0)
        return _run(source, chain, inputs)


def _run(source: str, chain: nn.Sequential, inputs: Values) -> Tensor:
    values = inputs
    for name, module in layers(chain):
        values = apply_layer(name, module, values)
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


def _check_same(module: nn.Module, chain: nn.Sequential, inputs: Values, source: str) -> None:
    """Hold a module with a forward of its own against the chain that it was cut into: outputs and gradients."""
    parts = (inputs,) if isinstance(inputs, Tensor) else inputs
    expected = output_of(module(*parts), source)
    found = _run(source, chain, inputs)
    if expected.shape != found.shape or not torch.allclose(expected, found, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise _unlike(source, "outputs")
    if expected.requires_grad != found.requires_grad:
        raise _unlike(source, "gradients")
    if not expected.requires_grad:
        return
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    parameters = [p for p in module.parameters() if p.requires_grad]
    wanted, got = (
        torch.autograd.grad((output * weights).sum(), parameters, allow_unused=True) for output in (expected, found)
    )
    for of_module, of_chain in zip(wanted, got, strict=True):
        if (of_module is None) != (of_chain is None):
            raise _unlike(source, "gradients")
        if of_module is not None and of_chain is not None:
            difference, size = (of_module - of_chain).norm(), of_module.norm()
            if float(difference) > _TOLERANCE * max(1.0, float(size)):
                raise _unlike(source, "gradients")


def _unlike(source: str, what: str) -> InputError:
    return InputError(
        f"{source}: cut into layers, the model gives other {what} than whole: its forward does something that cannot "
        "be followed (a function with a gradient of its own outside of a module?); return an nn.Sequential of layers"
    )
