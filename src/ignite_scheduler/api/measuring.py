"""Measuring a model's layers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.model import Job, Profile, Reference

if TYPE_CHECKING:
    from ignite_scheduler.profiler import Progress


def profile(
    source: Job | Reference | str | Path,
    *,
    samples: Iterable[int] | None = None,
    repeats: int | None = None,
    time_limit: float | None = None,
    device: str = "cpu",
    kind: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    partial: str | Path | None = None,
) -> Profile:
    """The layers of a model, measured on this machine: seconds, bytes and FLOPs.

    Parameters
    ----------
    source
        A job or the path of one, a name in the zoo, ``pkg.mod:build``, or a reference with arguments.
    samples
        Sizes of microbatch to measure; None = powers of two up to the job's batch.
    repeats
        Passes at each size; None = the profiler's own choice. Figures are medians over passes.
    time_limit
        Seconds after which no more passes are begun; None = the profiler's own choice.
    device
        ``cpu`` or ``cuda:N``; ``meta`` = size the model only, of whatever size it is, with no times.
    kind
        Kind of device under which the times stand; None = ``cpu``, or the card's name.
    progress
        Called now and then with what is done and what is being measured.
    partial
        File that keeps the passes that are done: an interrupted measurement goes on from it. Remove it when the profile
        is written.

    Raises
    ------
    InputError
        There is no such model, or it does not fit its data.
    ExternalError
        PyTorch is not installed, or the measuring process died.
    """
    from ignite_scheduler import profiler

    what = resolve_source(source)
    if find_spec("torch") is None:
        raise ExternalError("measuring needs PyTorch, which is not installed: pip install 'ignite-scheduler[torch]'")
    return profiler.measure(
        what,
        samples=samples,
        repeats=profiler.DEFAULT_REPEATS if repeats is None else repeats,
        time_limit=profiler.DEFAULT_TIME_LIMIT if time_limit is None else time_limit,
        device=device,
        kind=kind,
        progress=progress,
        partial=None if partial is None else Path(partial),
    )


def resolve_source(source: Job | Reference | str | Path) -> Job | Reference:
    """What a text names: a file that is there or looks like one is a job; ``module:attribute`` and zoo names: models.

    Raises
    ------
    InputError
        The text is none of these; the message lists the zoo.
    """
    if isinstance(source, Job | Reference):
        return source
    text = str(source)
    if isinstance(source, Path) or Path(text).suffix in {".yaml", ".yml", ".json"} or Path(text).is_file():
        from ignite_scheduler.formats import load_job

        return load_job(text)
    if ":" in text:
        return Reference(module=text)
    from ignite_scheduler.zoo.catalogue import MODELS

    if text not in MODELS:
        raise InputError(
            f"expected a job file, a model of the zoo ({', '.join(MODELS)}) or 'pkg.mod:build', found {text!r}"
        )
    return Reference(zoo=text)
