"""What a pass over a layer fills for a moment, beyond what stays kept after it.

A forward holds its output and what it makes on the way; a backward holds the gradients of outputs and inputs, a fresh
gradient of the weights before it is added to that of earlier microbatches, and what kernels need to work in. Some of
it grows with the samples, some does not: passes at the largest microbatch and at a smaller one tell them apart.

On a CPU the figure is the kernel's high-water mark of the process while no freed memory is kept, so it misses nothing:
copies in other layouts, buffers of libraries. On CUDA it is the allocator's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import torch

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.engine.entrance import Entrance, Exit
from ignite_scheduler.engine.memory import forget_peak, own_bytes, peak_bytes
from ignite_scheduler.profiler.passes import Bench, as_leaves, forward
from ignite_scheduler.profiler.request import Sizes
from ignite_scheduler.profiler.sizes import num_bytes_of

_APART: Final = 4
"""Sizes by which the two parts are told apart differ by this factor: far smaller ones may use other kernels."""

Result = TypeVar("Result")


class Gauge(Protocol):
    """Tells how far memory rises."""

    def __call__(self, work: Callable[[], Result], /) -> tuple[Result, int]:
        """The work's result, and the most bytes that were held in it beyond those held before."""


@dataclass(frozen=True, slots=True)
class Transient:
    """Bytes that a layer's passes fill for a moment: for each sample, and whatever the number of samples."""

    per_sample: float
    fixed: float


def transients(bench: Bench, sizes: Sequence[Sizes], gauge: Gauge | None = None) -> list[Transient] | None:
    """The transient bytes of each layer; None where the platform does not tell.

    ``gauge`` None = that of the device. On a CPU that one reads the process: nothing may have been kept since before
    the first tensor (:func:`~ignite_scheduler.engine.allocation.return_freed_memory`).

    They count beyond what the layers up to this one keep (:func:`~ignite_scheduler.profiler.sizes.layer_sizes`), as a
    stage holds it while the layer is at work.
    """
    if gauge is None:
        if bench.device.type != "cuda" and not (forget_peak() and peak_bytes() is not None):
            return None
        gauge = partial(_risen, bench.device)
    many = max(bench.batches)
    few = max((size for size in bench.batches if size * _APART <= many), default=min(bench.batches))
    of_many = _bytes_at(bench, sizes, many, gauge)
    if few == many:
        return [Transient(num_bytes / many, 0.0) for num_bytes in of_many]
    found = []
    for low, high in zip(_bytes_at(bench, sizes, few, gauge), of_many, strict=True):
        slope = min(max(0.0, high - low) / (many - few), high / many)
        found.append(Transient(slope, high - slope * many))
    return found


def _bytes_at(bench: Bench, sizes: Sequence[Sizes], samples: int, gauge: Gauge) -> list[float]:
    """Transient bytes of each layer at so many samples."""
    _rises(bench, samples, gauge)  # what comes with the first pass stays: kernels, gradients of weights
    found = []
    for index, (layer, rise) in enumerate(zip(sizes, _rises(bench, samples, gauge), strict=True)):
        carried = sizes[index - 1].carried_bytes * samples if index else 0.0
        of_forward = max(carried, rise.entering) + rise.forward - layer.activation_bytes * samples
        of_backward = layer.carried_bytes * samples + rise.leaving + rise.backward
        found.append(max(0.0, of_forward, of_backward))
    return found


@dataclass(slots=True)
class _Rise:
    """Bytes of one layer: its inputs, its outputs, and how far memory rises in its forward and its backward."""

    entering: int
    leaving: int
    forward: int
    backward: int = 0


def _rises(bench: Bench, samples: int, gauge: Gauge) -> list[_Rise]:
    """One pass, stage by stage, with tensors held no longer than the engine holds them."""
    values, kept, rises = bench.batches[samples][0], [], []
    for index, stage in enumerate(bench.stages):
        last = index == len(bench.stages) - 1
        entrance = Entrance(as_leaves(values))
        entering = num_bytes_of(values)
        values, rise = gauge(partial(_entered, bench, stage, entrance, samples, last=last))
        kept.append((entrance, Exit(values)))
        rises.append(_Rise(entering=entering, leaving=num_bytes_of(values), forward=rise))
    gradients: Tensors = tuple(torch.ones_like(value) for value in values)
    del values
    for rise_of_layer in reversed(rises):
        entrance, leaving = kept.pop()
        leaving.give(gradients)
        gradients = ()  # what is given is held by none but autograd
        _, rise_of_layer.backward = gauge(leaving.backward)
        gradients = entrance.gradients()
    return rises


def _entered(bench: Bench, stage: StageModule, entrance: Entrance, samples: int, *, last: bool) -> Tensors:
    return forward(bench, stage, entrance.enter(), samples, last=last)


def _risen(device: torch.device, work: Callable[[], Result]) -> tuple[Result, int]:
    """The work's result, and the most bytes that were held in it beyond those held before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return work(), torch.cuda.max_memory_allocated(device) - before
    before = own_bytes() or 0
    forget_peak()
    result = work()
    return result, max(0, (peak_bytes() or 0) - before)
