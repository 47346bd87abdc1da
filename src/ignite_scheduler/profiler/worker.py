"""The process that measures: reads a request from standard input, answers on standard output, both pickled.

It is a process of its own so that nothing that ran before (threads, memory, other models) bends the figures. Whatever
a user's code prints goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

import torch
from torch import nn

from ignite_scheduler import zoo
from ignite_scheduler.engine.allocation import keep_freed_memory, return_freed_memory
from ignite_scheduler.engine.chain import DTYPES, StageModule, Tensors
from ignite_scheduler.errors import IgniteError, InputError
from ignite_scheduler.profiler import partial, passes, sizes, transients, updates
from ignite_scheduler.profiler.machine import describe_machine
from ignite_scheduler.profiler.request import Measured, OtherMeasurementError, Partial, Progress, Request, Share, Sizes
from ignite_scheduler.profiler.steadiness import check_shapes
from ignite_scheduler.zoo.batches import take
from ignite_scheduler.zoo.chain import Layers, fingerprint, layers, shapes, tied_layers
from ignite_scheduler.zoo.check import check

Tell = Callable[[Progress | Partial], None]


def measure(request: Request, tell: Tell) -> Measured | Share:
    """Build, check and measure what the request names, in this process."""
    torch.set_num_threads(1)
    return_freed_memory()  # until bytes have been measured
    device = _device(request.device)
    warnings = check(request.model, request.data, request.loss)
    dtype = DTYPES[request.precision]
    chain = zoo.build(request.model, seed=request.seed, data=request.data, dtype=dtype).to(device=device, dtype=dtype)
    structure = fingerprint(chain)
    if request.partial is not None and request.partial.structure != structure:
        raise OtherMeasurementError(structure)
    bench = _bench(request, chain, device)
    check_shapes(bench)
    total = request.repeats + 3
    tell(Progress(done=0, total=total, doing="bytes and FLOPs"))
    measured_sizes, saved_whole = ((), 0.0) if request.passes_only else (_sizes(bench), sizes.saved_bytes_whole(bench))
    keep_freed_memory()  # as the engine's ranks do
    clock = passes.make_clock(device)
    timed = partial.timed(request.partial, bench, clock)
    passes.run_passes(
        bench,
        timed,
        repeats=request.repeats,
        time_limit=request.time_limit,
        tell=lambda done, doing: tell(Progress(done=done, total=total, doing=doing)),
        keep=lambda so_far: tell(partial.kept(so_far, structure)),
    )
    if request.passes_only:
        return Share(partial=partial.kept(timed, structure))
    tell(Progress(done=request.repeats, total=total, doing="the two parts of the backward"))
    split_repeats = max(passes.LEAST_PASSES, len(next(iter(timed.layers.values()))) // 3)
    parts = {size: passes.backward_parts(bench, size, split_repeats, clock) for size in bench.batches}
    tell(Progress(done=request.repeats + 1, total=total, doing="optimizer updates"))
    update_table = _updates(bench, clock, request.time_limit / 4)
    return Measured(
        layers=tuple(name for name, _ in layers(chain)),
        sizes=measured_sizes,
        series={size: timed.series(size) for size in bench.batches},
        parts=parts,
        begun={size: passes.as_series(timed.begun[size]) for size in bench.batches},
        whole={size: passes.as_series(timed.whole[size]) for size in bench.batches},
        wall_over_cpu=timed.watch.wall / timed.watch.own if timed.watch.own > 0 else 1.0,
        updates=update_table,
        saved_bytes_whole=saved_whole,
        tied=tied_layers(chain),
        fingerprint=structure,
        sample_shape=shapes(tuple(t[:1] for t in bench.batches[max(bench.batches)][0])),
        machine=describe_machine() | _torch_facts(device),
        warnings=warnings,
    )


def _sizes(bench: passes.Bench) -> tuple[Sizes, ...]:
    """Sizes of the layers, with what they fill for a moment where the platform tells."""
    found = sizes.layer_sizes(bench)
    momentary = transients.transients(bench, found)
    if momentary is None:
        return found
    return tuple(
        replace(layer, transient_bytes=of_layer.per_sample, workspace_bytes=of_layer.fixed)
        for layer, of_layer in zip(found, momentary, strict=True)
    )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}: expected cpu, cuda, cuda:N or meta") from error
    if device.type not in {"cpu", "cuda"}:
        raise InputError(f"cannot measure on {name!r}: expected cpu, cuda, cuda:N or meta")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"no device {name!r} here: PyTorch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _torch_facts(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {"torch": str(torch.__version__), "threads": torch.get_num_threads()}
    return facts if device.type == "cpu" else facts | {"gpu": torch.cuda.get_device_name(device)}


def _bench(request: Request, chain: nn.Sequential, device: torch.device) -> passes.Bench:
    samples = zoo.dataset(request.data)
    dtype = DTYPES[request.precision]

    def converted(values: Any) -> Tensors:
        parts = (values,) if isinstance(values, torch.Tensor) else values
        return tuple(p.to(device=device, dtype=dtype if p.is_floating_point() else p.dtype) for p in parts)

    batches = {}
    for size in sorted(request.samples):
        inputs, targets = take(samples, [index % len(samples) for index in range(size)])
        batches[size] = (converted(inputs), converted(targets)[0])
    chain.train()
    named = layers(chain)
    return passes.Bench(
        stages=tuple(
            StageModule(index=index, layers=Layers([(name, module)])) for index, (name, module) in enumerate(named)
        ),
        whole=StageModule(index=0, layers=chain),
        loss=zoo.loss(request.loss),
        batches=batches,
        device=device,
        seed=request.seed,
    )


def _updates(bench: passes.Bench, clock: passes.Clock, time_limit: float) -> tuple[dict[str, float], ...]:
    """Layer → optimizer → seconds of an update, less what an update costs beside its parameters."""
    columns = {}
    for name in updates.OPTIMIZERS:
        overhead = updates.update_overhead(name, bench.device, clock)
        seconds = updates.update_seconds(bench, name, clock, time_limit / len(updates.OPTIMIZERS))
        columns[name] = [max(0.0, of_layer - overhead) for of_layer in seconds]
    with_weights = [any(True for _ in stage.layers.parameters()) for stage in bench.stages]
    return tuple(
        {name: column[index] for name, column in columns.items()} if trained else {}
        for index, trained in enumerate(with_weights)
    )


def main() -> None:
    """Serve one request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for who asked; they end this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: object, stream: BinaryIO = answers) -> None:
        pickle.dump(message, stream)
        stream.flush()

    request: Request = pickle.load(sys.stdin.buffer)
    try:
        send(measure(request, send))
    except IgniteError as error:
        send(error)
    except torch.OutOfMemoryError as error:
        send(InputError(f"not enough memory on {request.device} for {max(request.samples)} samples: {error}"))


if __name__ == "__main__":
    main()
