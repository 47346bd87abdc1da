"""The training loop of one rank: batches, actions, norm, update, metrics, checkpoints, and stopping together.

Theory of operation
-------------------
After its actions each rank adds up [loss, squared gradient norm, stop?, save?] with the others. Where gradients are not
clipped nobody waits for that sum: it is read one step later, so that a stage that is done early updates its weights
and goes on while others still run their last backwards, as the cost model says. A request to stop that reached any
rank in step t is known to all when they have read the sum of step t, which is at the same step boundary everywhere.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler import zoo
from ignite_scheduler.engine import checkpoint
from ignite_scheduler.engine.chain import DTYPES, build_chain, cut, tied_parameters
from ignite_scheduler.engine.data import SampleOrder, Samples, num_steps
from ignite_scheduler.engine.devices import MemoryWatch, open_device
from ignite_scheduler.engine.executor import Batch, Executor
from ignite_scheduler.engine.links import open_wires
from ignite_scheduler.engine.optimization import clip, learning_rate, make_optimizer, set_learning_rate, squared_norm
from ignite_scheduler.engine.reports import Finished, Progressed, Report, Saved, Started, Stopped
from ignite_scheduler.engine.run_directory import MeasuredStep, Metrics, write_timeline
from ignite_scheduler.engine.specification import GangSpec
from ignite_scheduler.engine.transport import Transport
from ignite_scheduler.engine.tying import TiedWeights
from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.pipeline import make_schedule

_RECENT: Final = 5
"""Steps whose measured actions are kept."""


@dataclass(slots=True)
class StopRequest:
    """What the supervisor asked for; another thread sets it."""

    stop: bool = False
    save: bool = False


@dataclass(slots=True, kw_only=True)
class _Sum:
    """A sum over ranks that is under way."""

    step: int
    seconds: float
    values: Tensor
    work: Any
    held_loss: float | None = None


@dataclass(slots=True, kw_only=True)
class _Totals:
    """What all ranks know of one step."""

    loss: float
    grad_norm: float
    stop: bool
    save: bool
    held_loss: float | None = field(default=None)


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
        job, plan = spec.job, spec.plan
        self._spec, self._job, self._rank, self._report, self._request = spec, job, rank, report, request
        if job.precision not in DTYPES:
            raise InputError(f"this engine trains in {', '.join(DTYPES)}, found precision {job.precision!r}")
        dtype = DTYPES[plan.precision]
        self._device = open_device(spec.devices[rank])
        place = self._device.torch_device
        self._schedule = make_schedule(plan.schedule, plan.num_stages, len(plan.microbatches))
        if len(self._schedule.rows) != len(spec.devices):
            raise InputError(
                f"schedule {plan.schedule!r} needs {len(self._schedule.rows)} ranks, the plan has {len(spec.devices)}"
            )
        rank_of = [self._schedule.row_of(stage.index) for stage in plan.stages]

        chain = build_chain(job.model, seed=job.seed, dtype=dtype)
        tied = tied_parameters(chain)
        stages = cut(chain, [stage.layers for stage in plan.stages])
        self._stages = {stage.index: stage for stage in stages if rank_of[stage.index] == rank}
        self._layers = nn.Sequential(
            OrderedDict(child for stage in self._stages.values() for child in stage.layers.named_children())
        ).to(place)
        self._tied = TiedWeights(tied, [stage.layers for stage in plan.stages], rank_of, self._layers, rank)
        self._parameters = list(self._layers.parameters())
        self._optimizer = make_optimizer(self._parameters, job.optimizer)
        del chain, stages

        data = Samples(job.data, dtype=dtype, device=place, owner=job.name)
        self._data = data
        self._order = SampleOrder(num_samples=len(data), batch=job.batch.total, seed=job.seed)
        self._held: Samples | None = None
        if job.evaluate is not None:
            self._held = Samples(job.evaluate.data, dtype=dtype, device=place, owner=job.name)
        self.total = num_steps(job, len(data))
        if sum(plan.microbatches) != job.batch.total:
            raise InputError(
                f"the plan's microbatches {plan.microbatches} do not add up to the job's batch of {job.batch.total}"
            )
        self._transport = Transport(
            rank=rank,
            rank_of=rank_of,
            store=store,
            wires=open_wires(rank, spec.links, spec.directory / ".wires" / str(spec.epoch)),
            device=place,
            timeout=spec.timeout,
        )
        self._executor = Executor(
            schedule=self._schedule,
            row=rank,
            stages=self._stages,
            transport=self._transport,
            device=self._device,
            loss=zoo.loss(job.loss),
            seed=job.seed,
            memory=MemoryWatch(spec.devices[rank]),
        )
        self._recent: deque[MeasuredStep] = deque(maxlen=_RECENT)
        self._saved = self._done = 0
        self._metrics: Metrics | None = None

    def run(self) -> None:
        """Train until all steps are done or somebody asks to stop; the last report says which."""
        if self._spec.resume is not None:
            self._done = checkpoint.load(self._spec.resume, layers=self._layers, optimizer=self._optimizer)
            self._saved = self._done
        if self._rank == 0:
            self._metrics = Metrics(self._spec.directory, done=self._done)
        process_ids = self._gather_process_ids()
        self._tell(Started(done=self._done, total=self.total, process_ids=process_ids))
        stopped = self._loop()
        save = not stopped or stopped.save
        if save and self._saved < self._done:
            self._save()
        self._write_timeline()
        self._transport.close()
        if self._metrics is not None:
            self._metrics.close()
        if self._done >= self.total:
            self._tell(Finished(done=self._done))
        else:
            self._tell(Stopped(done=self._done, saved=self._saved))

    # -- the loop -------------------------------------------------------------------------------------------------

    def _loop(self) -> _Totals | None:
        """Steps until the end (None) or until the sum of a step asks to stop."""
        pending: _Sum | None = None
        every = self._job.checkpoint.every
        while self._done < self.total:
            current = self._step(self._done)
            self._done += 1
            asked = self._read(pending)
            pending = current
            due = every is not None and self._done % every == 0 and self._done < self.total
            if due or (asked is not None and asked.stop):
                last = self._read(pending)
                pending = None
                if asked is not None and asked.stop:
                    return asked
                if last is not None and last.stop:
                    return last
                self._save()
        self._read(pending)
        return None

    def _step(self, step: int) -> _Sum:
        began = time.monotonic()
        batch = self._batch(self._order.indices(step), self._spec.plan.microbatches, step, self._data)
        loss = self._executor.train(batch)
        self._tied.reduce()
        with self._device.action() as finish:
            sums = self._post_sums(step, loss)
            self._update(step, sums)
        ended = time.monotonic()
        sums.seconds = ended - began
        self._recent.append(
            MeasuredStep(
                step=step + 1,
                start=began,
                end=ended,
                intervals=tuple(self._executor.intervals),
                transfers=tuple(self._transport.transfers),
                finish=(finish.start, finish.end),
            )
        )
        if self._job.evaluate is not None and (step + 1) % self._job.evaluate.every == 0:
            sums.held_loss = self._evaluate()
        return sums

    def _post_sums(self, step: int, loss: float) -> _Sum:
        square = squared_norm(self._tied.counted(self._parameters))
        request = self._request
        values = torch.tensor([loss, square, float(request.stop), float(request.save)], dtype=torch.float64)
        values = values.to(self._device.torch_device)
        work = dist.all_reduce(values, async_op=True)
        return _Sum(step=step, seconds=0.0, values=values, work=work)

    def _update(self, step: int, sums: _Sum) -> None:
        limit = self._job.gradient_clip
        if limit is not None:
            self._wait(sums)
            clip(self._parameters, math.sqrt(float(sums.values[1])), limit)
        if self._optimizer is not None:
            rate = learning_rate(self._job.lr_schedule, self._job.optimizer.lr, step, self.total)
            set_learning_rate(self._optimizer, rate)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)

    def _wait(self, sums: _Sum) -> None:
        try:
            sums.work.wait()
        except RuntimeError as error:
            raise ExternalError(f"lost contact while adding up the loss: {error}", retryable=True) from error

    def _read(self, sums: _Sum | None) -> _Totals | None:
        """Wait for a step's sum, report it and say what it asks for."""
        if sums is None:
            return None
        self._wait(sums)
        loss, square, stop, save = sums.values.tolist()
        if not math.isfinite(loss) or not math.isfinite(square):
            raise InputError(
                f"step {sums.step + 1}: the loss is {loss:g} and the squared gradient norm {square:g}: training has "
                "diverged; lower the learning rate or clip gradients"
            )
        norm = math.sqrt(square)
        if self._metrics is not None:
            self._metrics.write(
                step=sums.step + 1,
                samples=self._job.batch.total,
                seconds=sums.seconds,
                loss=loss,
                grad_norm=norm,
                held_loss=sums.held_loss,
            )
        self._tell(
            Progressed(done=sums.step + 1, loss=loss, grad_norm=norm, step=sums.seconds, held_loss=sums.held_loss)
        )
        return _Totals(loss=loss, grad_norm=norm, stop=stop > 0, save=save > 0)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _batch(self, indices: Tensor, microbatches: tuple[int, ...], step: int, data: Samples) -> Batch:
        return Batch(
            step=step,
            microbatches=microbatches,
            inputs=data.inputs(indices) if self._executor.holds_first else None,
            targets=data.targets(indices) if self._executor.holds_last else None,
        )

    def _evaluate(self) -> float:
        """Mean loss over all held-out samples, in batches like those of training."""
        assert self._held is not None
        total, size, largest = 0.0, self._job.batch.total, max(self._spec.plan.microbatches)
        for number, first in enumerate(range(0, len(self._held), size)):
            indices = torch.arange(first, min(first + size, len(self._held)))
            full, rest = divmod(len(indices), largest)
            microbatches = (largest,) * full + ((rest,) if rest else ())
            batch = self._batch(indices, microbatches, number, self._held)
            total += self._executor.evaluate(batch) * len(indices)
        summed = torch.tensor(total, dtype=torch.float64, device=self._device.torch_device)
        dist.all_reduce(summed)
        return summed.item() / len(self._held)

    def _save(self) -> None:
        began = time.monotonic()
        facts = {
            "job": self._job.name,
            "total_steps": self.total,
            "split": [list(s.layers) for s in self._spec.plan.stages],
        }
        saved = checkpoint.save(
            self._spec.directory / "checkpoints",
            step=self._done,
            layers=self._layers,
            optimizer=self._optimizer,
            keep=self._job.checkpoint.keep,
            facts=facts,
        )
        self._saved = self._done
        self._tell(Saved(done=self._done, directory=str(saved), seconds=time.monotonic() - began))
        self._write_timeline()

    def _write_timeline(self) -> None:
        recent = list(self._recent)
        gathered: list[Sequence[MeasuredStep]] | None = [()] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(recent, gathered, dst=0)
        if gathered is not None:
            devices = [
                {"id": device.id, "description": self._device_text(i)} for i, device in enumerate(self._spec.devices)
            ]
            write_timeline(self._spec.directory, self._schedule, gathered, {"job": self._job.name, "devices": devices})

    def _device_text(self, rank: int) -> str:
        return open_device(self._spec.devices[rank]).description

    def _gather_process_ids(self) -> tuple[int, ...]:
        ids: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ids, os.getpid())
        return tuple(ids)

    def _tell(self, report: Report) -> None:
        if self._rank == 0:
            self._report(report)
