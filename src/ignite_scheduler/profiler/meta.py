"""Sizes of a model without its data: parameters, outputs, kept activations and FLOPs of models too large to run here.

Theory of operation. The model is built on PyTorch's meta device and run, forward and backward, on *fake tensors*: they
have a shape, a type and a device but no memory, and every operation answers with the shape of its result. Autograd
works on them as on real ones and saves the same tensors, and since they claim to lie on a CPU the same kernels are
chosen as there (plain meta tensors take other paths: attention, for one, would keep its scores). So the counting is
that of a measured profile, :func:`ignite_scheduler.profiler.sizes.layer_sizes`, and for a model that fits both give
the same numbers.

What cannot be had this way is time: such a profile has none, and a plan times it by the roofline of each device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import DTYPES, StageModule, Tensors
from ignite_scheduler.errors import IgniteError, InputError
from ignite_scheduler.model import Profile
from ignite_scheduler.profiler.assembly import FLOPS, reference_document, timeless_layers
from ignite_scheduler.profiler.live import LiveBytes
from ignite_scheduler.profiler.passes import Bench
from ignite_scheduler.profiler.request import Request, Sizes
from ignite_scheduler.profiler.sizes import layer_sizes
from ignite_scheduler.profiler.transients import transients
from ignite_scheduler.zoo.batches import take
from ignite_scheduler.zoo.chain import Layers, Values, apply_layer, fingerprint, layers, shapes, tied_layers
from ignite_scheduler.zoo.dropout import drawing
from ignite_scheduler.zoo.rehearsal import without_values
from ignite_scheduler.zoo.resolve import describe

_DTYPES: Final = DTYPES | {"fp16": torch.float16}
_FURTHER: Final = 4
"""Times the largest microbatch: the size that tells bytes that grow with the samples from those that do not."""


def size(request: Request, *, name: str, date: str) -> Profile:
    """The profile of a model that is never in memory: all sizes, no times.

    Parameters
    ----------
    request
        What to size; its repeats, time limit and device play no part. Figures are for one sample of its largest
        microbatch.
    name
        The profile's name.
    date
        When it is sized, for its provenance.

    Raises
    ------
    InputError
        The model cannot be built without its weights or run without values, or does not fit its data or its loss.
    """
    chain = _outline(request)
    inputs, targets = take(zoo.dataset(request.data), [0])
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, without_values(chain, _DTYPES[request.precision], fake):
        sizes = _sized(request, _bench(request, chain.train(), inputs, targets))
    return Profile(
        name=name,
        precision=request.precision,
        reference=None,
        layers=timeless_layers([name for name, _ in layers(chain)], sizes),
        tied=tied_layers(chain),
        provenance={
            "sized": date,
            "model": reference_document(request.model),
            "data": reference_document(request.data),
            "loss": request.loss,
            "sample": shapes(inputs),
            "samples": max(request.samples),
            "structure": fingerprint(chain),
            "parameters": sum(parameter.numel() for parameter in chain.parameters()),
            "method": "fake tensors on a CPU, nothing computed; no times",
            "torch": str(torch.__version__),
            "flops": FLOPS,
        },
    )


class _FakeStage(StageModule):
    """A stage that seeds no random numbers: fake tensors have no values to start a generator from."""

    def __call__(self, inputs: Tensors, *, seed: int, step: int, samples: Tensor) -> Tensors:
        values: Values = inputs[0] if len(inputs) == 1 else inputs
        with drawing(seed, step, samples):
            for name, layer in layers(self.layers):
                values = apply_layer(name, layer, values)
        return (values,) if isinstance(values, Tensor) else values


def _outline(request: Request) -> nn.Sequential:
    """The model on the meta device, where weights have shapes only."""
    try:
        with torch.device("meta"):
            dtype = _DTYPES[request.precision]
            return zoo.build(request.model, seed=request.seed, data=request.data, dtype=dtype).to(dtype)
    except InputError as error:
        raise InputError(
            f"{error} (a model is sized without its weights: a builder that looks at their values cannot be)"
        ) from error


def _bench(request: Request, chain: nn.Sequential, inputs: Values, targets: Tensor) -> Bench:
    """The chain, its largest microbatch in the shape of one sample, and a larger one to tell what grows with it."""
    largest, dtype = max(request.samples), _DTYPES[request.precision]

    def batch(sample: Tensor, count: int) -> Tensor:
        return torch.empty((count, *sample.shape[1:]), dtype=dtype if sample.is_floating_point() else sample.dtype)

    parts = (inputs,) if isinstance(inputs, Tensor) else inputs
    return Bench(
        stages=tuple(
            _FakeStage(index=index, layers=Layers([(name, module)]))
            for index, (name, module) in enumerate(layers(chain))
        ),
        whole=_FakeStage(index=0, layers=chain),
        loss=zoo.loss(request.loss),
        batches={
            count: (tuple(batch(part, count) for part in parts), batch(targets, count))
            for count in (largest, _FURTHER * largest)
        },
        device=torch.device("cpu"),
        seed=request.seed,
    )


def _sized(request: Request, bench: Bench) -> tuple[Sizes, ...]:
    try:
        found = layer_sizes(replace(bench, batches={min(bench.batches): bench.batches[min(bench.batches)]}))
        return _with_transients(bench, found)
    except IgniteError as error:
        if isinstance(error.__cause__, DataDependentOutputException | DynamicOutputShapeException):
            raise InputError(
                f"{error}; what depends on the values of tensors cannot be sized without them, only measured"
            ) from error
        raise
    except Exception as error:  # a user's loss or backward may raise anything
        raise InputError(
            f"{describe(request.model)} with loss {request.loss!r} fails: {type(error).__name__}: {error}"
        ) from error


def _with_transients(bench: Bench, sizes: tuple[Sizes, ...]) -> tuple[Sizes, ...]:
    """The sizes with what layers fill for a moment, as far as tensors go; buffers inside of kernels are not seen.

    Of a run of layers of the same sizes, such as a transformer's blocks, the first two and the last are looked at; the
    others are as the second.
    """
    looked_at = [index for index in range(len(sizes)) if index < 2 or len({*sizes[index - 2 : index + 1]}) > 1]
    looked_at = sorted({*looked_at, len(sizes) - 1})
    short = replace(bench, stages=tuple(bench.stages[index] for index in looked_at))
    with LiveBytes() as live:
        momentary = transients(short, [sizes[index] for index in looked_at], live.rise) or []
    found = dict(zip(looked_at, momentary, strict=True))
    result = []
    for index, of_layer in enumerate(sizes):
        latest = found.setdefault(index, found[index - 1]) if index else found[0]
        result.append(replace(of_layer, transient_bytes=latest.per_sample, workspace_bytes=latest.fixed))
    return tuple(result)
