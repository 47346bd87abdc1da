"""From a job or a model to a measured profile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ignite_scheduler import zoo
from ignite_scheduler.engine.abilities import PRECISIONS
from ignite_scheduler.errors import ExternalError, IgniteError, InputError
from ignite_scheduler.model import Job, Profile, Reference
from ignite_scheduler.profiler.assembly import profile_of
from ignite_scheduler.profiler.partial import PartialFile
from ignite_scheduler.profiler.request import Measured, OtherMeasurementError, Partial, Progress, Request, Share

Hear = Callable[[Progress | Partial], None]

DEFAULT_SAMPLES: Final = (1, 2, 4, 8, 16, 32)
"""Sizes of microbatch that are measured where nothing else is said; times between them are interpolated."""
META: Final = "meta"
"""The device on which a model is sized only: nothing is computed, nothing is in memory."""
DEFAULT_REPEATS: Final = 20
DEFAULT_TIME_LIMIT: Final = 40.0
_MOST_PROCESSES: Final = 3
_PASSES_OF_A_PROCESS: Final = 6
"""Passes for which a process is worth its start."""
_PRECISIONS: Final = ("fp32", "fp16", "bf16")


def measure(
    source: Job | Reference,
    *,
    samples: Iterable[int] | None = None,
    repeats: int = DEFAULT_REPEATS,
    time_limit: float = DEFAULT_TIME_LIMIT,
    progress: Callable[[Progress], None] | None = None,
    device: str = "cpu",
    kind: str | None = None,
    partial: Path | None = None,
) -> Profile:
    """The profile of a job's model, measured layer by layer on this machine in a fresh process with one thread.

    Parameters
    ----------
    source
        A job, whose data, loss and precision are used; or a model, which is measured in fp32 with synthetic samples
        and the loss that suits it.
    samples
        Sizes of microbatch; None = powers of two up to 32 (a job's: up to its batch, and its fixed microbatch).
    repeats
        Passes over the chain at each size; each figure is the median of the faster half of them.
    time_limit
        Seconds of passes after which no more are begun, once there are three at each size.
    progress
        Called now and then with a :class:`~ignite_scheduler.profiler.request.Progress`.
    device
        ``cpu``, ``cuda`` or ``cuda:N``; ``meta``: only size the model, in this process, with no times.
    kind
        Kind of device under which the times stand, also the profile's reference; None = ``cpu`` or the GPU's name.
    partial
        File that keeps the passes that are done, and that an interrupted measurement goes on from; it is left to the
        caller to remove it when the profile is safe. None = an interrupted measurement is lost.

    Raises
    ------
    InputError
        ``partial`` is that of another measurement; or the model, data set, loss or a size is wrong; the message
        says what would be right.
    ExternalError
        The measuring process died, or torch is not installed.

    Notes
    -----
    Times leave out what each action costs beside its layers: that is the profile's ``action_overhead``.
    """
    request = _request(source, samples, repeats, time_limit, device)
    name = source.name if isinstance(source, Job) else (source.zoo or str(source.module).rpartition(":")[0])
    date = datetime.now(UTC).isoformat("T", "seconds")
    if device == META:
        if kind is not None:
            raise InputError(f"a model that is only sized has no times, of no kind of device: leave {kind!r} away")
        from ignite_scheduler.profiler.meta import size

        return size(request, name=name, date=date)
    file = None if partial is None else PartialFile(partial, request)
    if file is not None:
        request = replace(request, partial=file.found)

    def hear(message: Progress | Partial) -> None:
        if isinstance(message, Partial):
            if file is not None:
                file.write(message)
        elif progress is not None:
            progress(message)

    try:
        measured = _in_fresh_processes(request, hear)
    except OtherMeasurementError as error:
        assert file is not None
        raise file.of_another() from error
    return profile_of(measured, request, name=name, kind=kind or _kind(measured, device), date=date)


def _kind(measured: Measured, device: str) -> str:
    return "cpu" if device == "cpu" else str(measured.machine["gpu"]).replace(" ", "-")


def _request(
    source: Job | Reference, samples: Iterable[int] | None, repeats: int, time_limit: float, device: str
) -> Request:
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, found {repeats}")
    model = source.model if isinstance(source, Job) else source
    if model.zoo is None and model.module is None:
        raise InputError("a profile without code cannot be measured: name a zoo model or your own 'pkg.mod:build'")
    if isinstance(source, Job):
        precision = "fp32" if source.precision == "auto" else source.precision
        data, loss, seed = source.data or zoo.default_data(model), source.loss, source.seed
        chosen = tuple(samples) if samples is not None else _sizes_of(source)
    else:
        precision, data, loss, seed = "fp32", zoo.default_data(model), zoo.default_loss(model), 0
        chosen = tuple(samples) if samples is not None else DEFAULT_SAMPLES
    if precision not in _PRECISIONS:
        raise InputError(f"precision {precision!r} cannot be measured; there are: {', '.join(_PRECISIONS)}")
    if precision not in PRECISIONS and device != META:
        raise InputError(
            f"precision {precision!r} cannot be measured on {device}: the engine trains in {', '.join(PRECISIONS)}; "
            f"give the job one of these, or only size the model with --devices {META}"
        )
    if not chosen or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in chosen):
        raise InputError(f"sizes of microbatch are whole numbers of at least 1, found {chosen}")
    return Request(
        model=model,
        data=data,
        loss=loss,
        precision=precision,
        samples=tuple(sorted(set(chosen))),
        repeats=repeats,
        time_limit=time_limit,
        device=device,
        seed=seed,
    )


def _sizes_of(job: Job) -> tuple[int, ...]:
    """Powers of two up to the batch, and what a fixed microbatch and its last, smaller one need."""
    sizes = {size for size in DEFAULT_SAMPLES if size <= job.batch.total}
    if job.batch.micro is not None:
        micro = min(job.batch.micro, job.batch.total)
        sizes = {size for size in sizes if size <= micro} | {micro}
        sizes |= {job.batch.total % micro} - {0}
    return tuple(sizes)


def _in_fresh_processes(request: Request, hear: Hear) -> Measured:
    """Passes in several processes one after the other, the rest in the last one.

    Where memory lies differs from process to process, and with it what small layers take: by 5 % between two processes,
    where passes within one differ by less.
    """
    shares = min(_MOST_PROCESSES, max(1, request.repeats // _PASSES_OF_A_PROCESS))
    limit = request.time_limit / shares
    for share in range(1, shares):
        repeats = request.repeats * share // shares
        if request.partial is not None and request.partial.num_passes >= repeats:
            continue
        answer = _in_fresh_process(replace(request, repeats=repeats, time_limit=limit, passes_only=True), hear)
        assert isinstance(answer, Share)
        request = replace(request, partial=answer.partial, time_limit=request.time_limit - limit)
        if answer.partial.num_passes < repeats:
            break  # it is slow: the last one has the time that is left
    measured = _in_fresh_process(request, hear)
    assert isinstance(measured, Measured)
    return measured


def _in_fresh_process(request: Request, hear: Hear) -> Measured | Share:
    search_path = [os.getcwd() if entry == "" else entry for entry in sys.path]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(search_path),  # a user's own module is found there as it is here
    }
    command = [sys.executable, "-P", "-m", "ignite_scheduler.profiler.worker"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
        try:
            answer = _converse(process, request, hear)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if answer is None:
            errors.seek(0)
            tail = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise ExternalError(f"the measuring process died ({process.returncode}): {' '.join(tail) or 'no message'}")
    return answer


def _converse(process: subprocess.Popen[bytes], request: Request, hear: Hear) -> Measured | Share | None:
    """The measurements; None where the process ended without."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(request, process.stdin)
        process.stdin.flush()
    except BrokenPipeError:
        return None
    while True:
        try:
            message = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            process.wait()
            return None
        match message:
            case Progress() | Partial():
                hear(message)
            case Measured() | Share():
                return message
            case IgniteError():
                raise message
