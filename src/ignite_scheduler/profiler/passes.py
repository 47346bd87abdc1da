"""Timing: passes over a chain, layer by layer, just as the engine runs stages of one layer.

Theory of operation. One *pass* runs the whole chain forward, layer after layer, each a stage of its own that gets the
real output of the layer before, then backward in reverse with the real gradients. A pass gives one value for each layer
and direction. Passes at all microbatch sizes alternate, so a slow spell of the machine falls on all layers and sizes
alike, and is voted down by the figure taken over passes.

Times on a CPU are those of the *thread's CPU clock*: what other processes do to the core is left out but for caches and
memory bandwidth, and it is the clock by which devices are emulated. On CUDA they are wall times between
synchronisations. Gradients accumulate from pass to pass, as they do from microbatch to microbatch.

Caches are cold at the start of every stage's action: between two actions of a stage its thread waits, for messages or
to play a slower device, and others use the core. A model of a few MB that stays in a core's own cache from pass to pass
was measured up to 30 % faster than its stages run in a pipeline. So a block of memory larger than that cache is walked
over before each timed part.

Why the median of the faster half of the passes, and neither that of all nor the minimum: the CPU clock, too, runs on
while caches fill again after another process had the core. Between a quiet and a crowded machine medians of all passes
moved by 10 %, those of the faster half by 6 %, minima by 3 %; but minima are 3 to 5 % below what stages take that run
one size over and over, as in training, and those of the faster half are within a few percent of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.profiler.request import Series
from ignite_scheduler.profiler.summary import typical

LEAST_PASSES: Final = 3
"""Passes at each size whatever the time limit: fewer say nothing."""
_WARM_UP: Final = 2
"""Passes at each size that are not counted: allocators fill, kernels are chosen."""
_OVERHEAD_REPEATS: Final = 200

_EVICTED_BYTES: Final = 4 << 20
"""Walked over to empty a core's own cache, which has 0.5 to 2 MB on today's processors."""

Clock = Callable[[], float]


def make_clock(device: torch.device) -> Clock:
    """The clock by which work on ``device`` is timed, in seconds."""
    if device.type == "cpu":
        return time.thread_time

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A chain ready to be measured: its layers as stages of one layer, itself as one stage, and real samples."""

    stages: tuple[StageModule, ...]
    whole: StageModule
    loss: Callable[[Tensor, Tensor], Tensor]
    batches: Mapping[int, tuple[Tensors, Tensor]]
    device: torch.device
    seed: int
    others: Tensor = field(default_factory=lambda: torch.zeros(_EVICTED_BYTES // 4))
    """What others on the core have in its cache."""

    def forget(self) -> None:
        """Leave nothing of the model in the core's own cache."""
        self.others.add_(1.0)

    def samples(self, size: int) -> Tensor:
        """Places of the rows in the batch, for keyed dropout."""
        return torch.arange(size, device=self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One stage's leaves and results between its forward and its backward."""

    leaves: Tensors
    outputs: Tensors


def as_leaves(values: Tensors) -> Tensors:
    """The values as a stage receives them: cut from the graph, waiting for gradients where their producer does."""
    return tuple(value.detach().requires_grad_(value.requires_grad) for value in values)


def forward(bench: Bench, stage: StageModule, leaves: Tensors, size: int, *, last: bool) -> Tensors:
    """Outputs of one stage; of the last stage the loss, as the engine takes it."""
    outputs = stage(leaves, seed=bench.seed, step=0, samples=bench.samples(size))
    if last:
        return (bench.loss(outputs[0], bench.batches[size][1]) / size,)
    return outputs


def backward(kept: Kept, gradients: Tensors | None) -> Tensors:
    """Gradients of the stage's leaves, after adding those of its parameters to their ``grad``."""
    outputs = [output for output in kept.outputs if output.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, gradients)
    wanted = [leaf for leaf in kept.leaves if leaf.requires_grad]
    return tuple(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in wanted)


def run_pass(bench: Bench, stages: Sequence[StageModule], size: int, clock: Clock) -> list[tuple[float, float]]:
    """(forward, backward) seconds of each stage in one pass."""
    values, kept, forwards = bench.batches[size][0], [], []
    for index, stage in enumerate(stages):
        leaves = as_leaves(values)
        bench.forget()
        start = clock()
        values = forward(bench, stage, leaves, size, last=index == len(stages) - 1)
        forwards.append(clock() - start)
        kept.append(Kept(leaves=leaves, outputs=values))
    gradients: Tensors | None = None
    backwards = []
    while kept:
        current = kept.pop()
        bench.forget()
        start = clock()
        gradients = backward(current, gradients)
        backwards.append(clock() - start)
    return list(zip(forwards, reversed(backwards), strict=True))


@dataclass(slots=True, kw_only=True)
class Timed:
    """All passes over one chain."""

    layers: Mapping[int, list[list[tuple[float, float]]]]
    whole: Mapping[int, list[tuple[float, float]]]
    wall: float = 0.0
    cpu: float = 0.0

    def series(self, size: int) -> tuple[Series, ...]:
        """The layers' seconds at one size, pass by pass."""
        columns = zip(*self.layers[size], strict=True)
        return tuple(as_series(column) for column in columns)


def as_series(pairs: Sequence[tuple[float, float]]) -> Series:
    """(forward, backward) pairs turned round."""
    return Series(forward=tuple(f for f, _ in pairs), backward=tuple(b for _, b in pairs))


def run_passes(
    bench: Bench, *, repeats: int, time_limit: float, clock: Clock, tell: Callable[[int, str], None]
) -> Timed:
    """Passes over layers and over the whole chain in turn, at all sizes in turn.

    ``tell`` is called with the number of passes done and what comes next.
    """
    timed = Timed(layers={size: [] for size in bench.batches}, whole={size: [] for size in bench.batches})
    started = time.perf_counter()
    for size in bench.batches:
        for _ in range(_WARM_UP):
            tell(0, f"warm-up, {size} samples")
            run_pass(bench, bench.stages, size, clock)
            run_pass(bench, (bench.whole,), size, clock)
    for index in range(repeats):
        if index >= LEAST_PASSES and time.perf_counter() - started > time_limit:
            break
        for size in bench.batches:
            tell(index, f"pass {index + 1}, {size} samples")
            run_pass(bench, (bench.whole,), size, clock)  # not counted: lays out memory for this size
            wall, cpu = time.perf_counter(), clock()
            timed.layers[size].append(run_pass(bench, bench.stages, size, clock))
            timed.whole[size].extend(run_pass(bench, (bench.whole,), size, clock))
            timed.wall += time.perf_counter() - wall
            timed.cpu += clock() - cpu
    return timed


def backward_parts(bench: Bench, size: int, repeats: int, clock: Clock) -> tuple[tuple[float, float], ...]:
    """Typical seconds of each layer's backward for its inputs alone and for its parameters alone.

    A layer without parameters has no weight part, one whose input needs no gradient has no input part.
    """
    rows = [_parts_pass(bench, size, clock) for _ in range(repeats)]
    return tuple((typical(i for i, _ in column), typical(w for _, w in column)) for column in zip(*rows, strict=True))


def _parts_pass(bench: Bench, size: int, clock: Clock) -> list[tuple[float, float]]:
    values, found = bench.batches[size][0], []
    for index, stage in enumerate(bench.stages):
        leaves = as_leaves(values)
        values = forward(bench, stage, leaves, size, last=index == len(bench.stages) - 1)
        outputs = [value for value in values if value.requires_grad]
        ones = [torch.ones_like(output) for output in outputs]
        inputs = [leaf for leaf in leaves if leaf.requires_grad]
        weights = [parameter for parameter in stage.layers.parameters() if parameter.requires_grad]
        seconds = []
        for wanted in (inputs, weights):
            start = clock()
            if wanted and outputs:
                torch.autograd.grad(outputs, wanted, ones, retain_graph=True, allow_unused=True)
            seconds.append(clock() - start if wanted and outputs else 0.0)
        found.append((seconds[0], seconds[1]))
    return found


class _Touch(nn.Module):
    """The least that a layer can do."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 1.0


def action_overhead(device: torch.device, clock: Clock) -> tuple[float, float]:
    """Seconds that a forward and a backward cost beside their layers.

    The cost of stages of 1 and of 9 least layers, drawn back to a stage of none.
    """
    few, many = (_touch_seconds(count, device, clock) for count in (1, 9))
    return (
        max(0.0, few[0] - (many[0] - few[0]) / 8),
        max(0.0, few[1] - (many[1] - few[1]) / 8),
    )


def _touch_seconds(count: int, device: torch.device, clock: Clock) -> tuple[float, float]:
    stage = StageModule(index=0, layers=nn.Sequential(*(_Touch() for _ in range(count))))
    samples = torch.arange(1, device=device)
    gradient = torch.ones(1, device=device)
    rows = []
    for _ in range(_OVERHEAD_REPEATS):
        leaf = torch.ones(1, device=device, requires_grad=True)
        start = clock()
        outputs = stage((leaf,), seed=0, step=0, samples=samples)
        middle = clock()
        backward(Kept(leaves=(leaf,), outputs=outputs), (gradient,))
        rows.append((middle - start, clock() - middle))
    return typical(f for f, _ in rows), typical(b for _, b in rows)
