"""Timing: passes over a chain, layer by layer, just as the engine runs stages of one layer.

Theory of operation. One *pass* runs the whole chain forward, layer after layer, each a stage of its own that gets the
real output of the layer before, then backward in reverse with the real gradients. A pass gives one value for each layer
and direction. Passes at all microbatch sizes alternate, so a slow spell of the machine falls on all layers and sizes
alike, and is voted down by the figure taken over passes.

Times on a CPU are those of the *thread's CPU clock*: what other processes do to the core is left out but for caches and
memory bandwidth, and it is the clock by which devices are emulated. On CUDA they are wall times between
synchronisations. Gradients accumulate from pass to pass, as they do from microbatch to microbatch.

*Every action of a stage begins cold*: before it the stage waited, for a message or to play a slower device; its core
slept, or others used it. A core that has slept 5 to 20 ms takes 0.05 to 0.1 ms longer even for work that needs no
memory, and a stage whose tensors have left its caches 0.1 to 0.6 ms (measured on a virtual machine; as CPU time of the
thread, so a device played at a fifth of a core takes five times that). What a beginning costs is told apart from the
layers: the chain of n layers is run as n stages and as one, with a rest before each action. The one begins once, the
other n times, and the difference, divided by n − 1, is the overhead of an action. How the layers share the rest is
measured without rests.

Why the median of the faster half of the passes, and neither that of all nor the minimum: the CPU clock, too, runs on
while caches fill again after another process had the core. Between a quiet and a crowded machine medians of all passes
moved by 10 %, those of the faster half by 6 %, minima by 3 %; but minima are 3 to 5 % below what stages take that run
one size over and over, as in training, and those of the faster half are within a few percent of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import torch
from torch import Tensor

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.profiler.request import Series
from ignite_scheduler.profiler.summary import typical

LEAST_PASSES: Final = 3
"""Passes at each size whatever the time limit: fewer say nothing."""
_WARM_UP: Final = 2
"""Passes at each size that are not counted: allocators fill, kernels are chosen."""
_REST: Final = 5e-3
"""Seconds that a CPU rests before each timed part: about as long as a stage waits between two actions."""

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

    def rest(self) -> None:
        """Wait as a stage does before its next action."""
        if self.device.type == "cpu":
            time.sleep(_REST)

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


Result = TypeVar("Result")


@dataclass(slots=True)
class Stopwatch:
    """Times work by ``clock`` and adds up what it took by that clock and on the wall, rests left out."""

    clock: Clock
    own: float = 0.0
    wall: float = 0.0

    def time(self, work: Callable[[], Result]) -> tuple[Result, float]:
        """The work's result and the seconds that it took."""
        wall, start = time.perf_counter(), self.clock()
        result = work()
        seconds = self.clock() - start
        self.own += seconds
        self.wall += time.perf_counter() - wall
        return result, seconds


def run_pass(
    bench: Bench, stages: Sequence[StageModule], size: int, watch: Stopwatch, *, rested: bool = False
) -> list[tuple[float, float]]:
    """(forward, backward) seconds of each stage in one pass; ``rested``: the core rests before each of them."""
    values, kept, forwards = bench.batches[size][0], [], []
    for index, stage in enumerate(stages):
        leaves = as_leaves(values)
        if rested:
            bench.rest()
        values, seconds = watch.time(partial(forward, bench, stage, leaves, size, last=index == len(stages) - 1))
        forwards.append(seconds)
        kept.append(Kept(leaves=leaves, outputs=values))
    gradients: Tensors | None = None
    backwards = []
    while kept:
        current = kept.pop()
        if rested:
            bench.rest()
        gradients, seconds = watch.time(partial(backward, current, gradients))
        backwards.append(seconds)
    return list(zip(forwards, reversed(backwards), strict=True))


@dataclass(slots=True, kw_only=True)
class Timed:
    """All passes over one chain, by size.

    ``layers`` were run without rests; ``begun`` are sums over layers that were rested before, ``whole`` is the chain as
    one stage, rested before.
    """

    layers: Mapping[int, list[list[tuple[float, float]]]]
    begun: Mapping[int, list[tuple[float, float]]]
    whole: Mapping[int, list[tuple[float, float]]]
    watch: Stopwatch

    def series(self, size: int) -> tuple[Series, ...]:
        """The layers' seconds at one size, pass by pass."""
        columns = zip(*self.layers[size], strict=True)
        return tuple(as_series(column) for column in columns)


def as_series(pairs: Sequence[tuple[float, float]]) -> Series:
    """(forward, backward) pairs turned round."""
    return Series(forward=tuple(f for f, _ in pairs), backward=tuple(b for _, b in pairs))


def untimed(bench: Bench, clock: Clock) -> Timed:
    """No pass yet."""
    return Timed(
        layers={size: [] for size in bench.batches},
        begun={size: [] for size in bench.batches},
        whole={size: [] for size in bench.batches},
        watch=Stopwatch(clock),
    )


def run_passes(
    bench: Bench,
    timed: Timed,
    *,
    repeats: int,
    time_limit: float,
    tell: Callable[[int, str], None],
    keep: Callable[[Timed], None],
) -> None:
    """Passes over layers and over the whole chain in turn, at all sizes in turn, added to those in ``timed``.

    ``tell`` is called with the number of passes done and what comes next, ``keep`` after each pass at all sizes.
    """
    watch = timed.watch
    warming = Stopwatch(watch.clock)
    started = time.perf_counter()
    for size in bench.batches:
        for _ in range(_WARM_UP):
            tell(0, f"warm-up, {size} samples")
            run_pass(bench, bench.stages, size, warming)
            run_pass(bench, (bench.whole,), size, warming)
    for index in range(len(timed.layers[min(bench.batches)]), repeats):
        if index >= LEAST_PASSES and time.perf_counter() - started > time_limit:
            break
        for size in bench.batches:
            tell(index, f"pass {index + 1}, {size} samples")
            run_pass(bench, (bench.whole,), size, warming)  # not counted: lays out memory for this size
            timed.layers[size].append(run_pass(bench, bench.stages, size, watch))
            forward, backward = zip(*run_pass(bench, bench.stages, size, watch, rested=True), strict=True)
            timed.begun[size].append((sum(forward), sum(backward)))
            timed.whole[size].extend(run_pass(bench, (bench.whole,), size, watch, rested=True))
        keep(timed)


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
