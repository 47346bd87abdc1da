"""The training loop of one rank: steps, metrics, checkpoints, and stopping together.

Theory of operation
-------------------
After its actions each rank adds up [loss, squared gradient norm, stop?, save?, seconds of computing by rank] with the
others. Where gradients are not clipped nobody waits for that sum: it is read one step later, so that a stage that is
done early updates its weights and goes on while others still run their last backwards, as the cost model says. A
request to stop that reached any rank in step t is known to all when they have read the sum of step t, which is at the
same step boundary everywhere.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist

from ignite_scheduler.engine import checkpoint
from ignite_scheduler.engine.devices import open_device
from ignite_scheduler.engine.reports import Finished, Progressed, Report, Saved, Started, Stopped
from ignite_scheduler.engine.run_directory import MeasuredStep, Metrics, write_memory, write_timeline
from ignite_scheduler.engine.saved import FOLDER
from ignite_scheduler.engine.specification import GangSpec
from ignite_scheduler.engine.worker import Sum, Worker
from ignite_scheduler.errors import InputError

_RECENT: Final = 5
"""Steps whose measured actions are kept."""


@dataclass(slots=True)
class StopRequest:
    """What the supervisor asked for; another thread sets it."""

    stop: bool = False
    save: bool = False


@dataclass(slots=True, kw_only=True)
class _Taken:
    """A step that this rank has taken; what all ranks together made of it may still be under way."""

    step: int
    seconds: float
    total: Sum
    held_loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What all ranks know that somebody asked for."""

    stop: bool
    save: bool


class Trainer:
    """One rank of a gang, with the process group up.

    Parameters
    ----------
    report
        Takes what rank 0 has to say.
    request
        Looked at after each step.
    """

    def __init__(
        self, spec: GangSpec, rank: int, store: Any, report: Callable[[Report], None], request: StopRequest
    ) -> None:
        self._spec, self._rank, self._report, self._request = spec, rank, report, request
        self._worker = Worker(spec, rank, store)
        self._recent: deque[MeasuredStep] = deque(maxlen=_RECENT)
        self._saved = self._done = 0
        self._metrics: Metrics | None = None

    def run(self) -> None:
        """Train until all steps are done or somebody asks to stop; the last report says which."""
        worker = self._worker
        if self._spec.resume is not None:
            self._done = self._saved = checkpoint.load(self._spec.resume, worker.rule)
        if self._rank == 0:
            self._metrics = Metrics(self._spec.directory, done=self._done)
        self._tell(Started(done=self._done, total=worker.total, process_ids=self._process_ids()))
        asked = self._loop()
        if (asked is None or asked.save) and self._saved < self._done:
            self._save()
        self._write_measurements()
        worker.transport.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._done >= worker.total:
            self._tell(Finished(done=self._done))
        else:
            self._tell(Stopped(done=self._done, saved=self._saved))

    def _loop(self) -> _Asked | None:
        """Steps until the end (None) or until the sum of a step asks to stop."""
        every = self._spec.job.checkpoint.every
        before: _Taken | None = None
        measured = self._done
        while self._done < self._worker.total:
            with self._worker.memory.measuring() if self._done == measured else nullcontext():
                taken = self._step(self._done)
            self._done += 1
            asked = self._read(before)
            before = taken
            if asked is not None and asked.stop:
                self._read(before)
                return asked
            if every is not None and self._done % every == 0 and self._done < self._worker.total:
                asked, before = self._read(before), None  # all have read this sum, so all agree on what it asks
                if asked is not None and asked.stop:
                    return asked
                self._save()
        self._read(before)
        return None

    def _step(self, step: int) -> _Taken:
        began = time.monotonic()
        worker = self._worker
        loss = worker.accumulate(step)
        computed = time.monotonic()
        asks = float(self._request.stop), float(self._request.save)
        total = worker.post_sum(loss, *asks, *self._busy(worker))
        worker.update(step, total)
        ended = time.monotonic()
        self._recent.append(
            MeasuredStep(
                step=step + 1,
                start=began,
                end=ended,
                intervals=tuple(worker.executor.intervals),
                transfers=tuple(worker.transport.transfers),
                finish=(computed, ended),
            )
        )
        evaluation = self._spec.job.evaluate
        held = worker.evaluate() if evaluation is not None and (step + 1) % evaluation.every == 0 else None
        return _Taken(step=step, seconds=ended - began, total=total, held_loss=held)

    def _busy(self, worker: Worker) -> list[float]:
        """Seconds of computing by rank, only this rank's own: the sum over the ranks has them all."""
        busy = [0.0] * len(self._spec.devices)
        busy[self._rank] = sum(float(i.end - i.start) for i in worker.executor.intervals)
        return busy

    def _read(self, taken: _Taken | None) -> _Asked | None:
        """Wait for a step's sum, report it and say what it asks for."""
        if taken is None:
            return None
        loss, square, stop, save, *busy = taken.total.wait()
        done = taken.step + 1
        if not math.isfinite(loss) or not math.isfinite(square):
            raise InputError(
                f"step {done}: the loss is {loss:g} and the squared gradient norm {square:g}: training has diverged; "
                "lower the learning rate or clip gradients"
            )
        norm = math.sqrt(square)
        if self._metrics is not None:
            self._metrics.write(
                step=done,
                samples=self._spec.job.batch.total,
                seconds=taken.seconds,
                loss=loss,
                grad_norm=norm,
                held_loss=taken.held_loss,
            )
        self._tell(
            Progressed(
                done=done,
                loss=loss,
                grad_norm=norm,
                step=taken.seconds,
                busy=tuple(busy),
                held_loss=taken.held_loss,
            )
        )
        return _Asked(stop=stop > 0, save=save > 0)

    def _save(self) -> None:
        began = time.monotonic()
        facts = {
            "job": self._spec.job.name,
            "total_steps": self._worker.total,
            "split": [list(stage.layers) for stage in self._spec.plan.stages],
        }
        folder, keep = self._spec.directory / FOLDER, self._spec.job.checkpoint.keep
        rule, leads = self._worker.rule, self._worker.leads
        saved = checkpoint.save(folder, rule, leads=leads, step=self._done, keep=keep, facts=facts)
        self._saved = self._done
        seconds = time.monotonic() - began
        if self._rank == 0:  # for others it may still be under its first name
            num_bytes = checkpoint.num_bytes(saved)
            self._tell(Saved(done=self._done, directory=str(saved), seconds=seconds, num_bytes=num_bytes))
        self._write_measurements()

    def _write_measurements(self) -> None:
        own = list(self._recent), self._worker.memory.use
        gathered: list[Any] | None = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(own, gathered, dst=0)
        if gathered is None:
            return
        directory, schedule = self._spec.directory, self._worker.schedule
        devices = [{"id": device.id, "description": open_device(device).description} for device in self._spec.devices]
        facts = {"job": self._spec.job.name, "devices": devices, "links_emulated": bool(self._spec.links)}
        write_timeline(directory, schedule, [recent for recent, _ in gathered], facts)
        write_memory(directory, self._spec.plan, [use for _, use in gathered])

    def _process_ids(self) -> tuple[int, ...]:
        ids: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ids, os.getpid())
        return tuple(ids)

    def _tell(self, report: Report) -> None:
        if self._rank == 0:
            self._report(report)
