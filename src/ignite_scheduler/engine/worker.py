"""What one rank has of a job: its layers, its samples, its executor and its optimizer; one step in two calls."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import build_chain, cut, element_type, tied_parameters
from ignite_scheduler.engine.data import Reading, SampleOrder, Samples, num_steps
from ignite_scheduler.engine.devices import MemoryWatch, open_device
from ignite_scheduler.engine.executor import Batch, Executor
from ignite_scheduler.engine.links import open_wires
from ignite_scheduler.engine.optimization import clip, learning_rate, squared_norm
from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.engine.specification import WIRES, GangSpec
from ignite_scheduler.engine.transport import Transport
from ignite_scheduler.engine.tying import TiedWeights
from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.pipeline import Schedule, make_schedule


@dataclass(slots=True, kw_only=True)
class Sum:
    """A sum over ranks that is under way: the loss, the squared gradient norm, and whatever else was put in."""

    values: Tensor
    work: Any

    def wait(self) -> list[float]:
        """The summed values.

        Raises
        ------
        ExternalError
            A rank is gone.
        """
        try:
            self.work.wait()
        except RuntimeError as error:
            raise ExternalError(f"lost contact while adding up the loss: {error}", retryable=True) from error
        values: list[float] = self.values.tolist()
        return values


class Worker:
    """One rank of a pipeline, with the process group up.

    Parameters
    ----------
    store
        Where ranks agree on what their messages look like.
    group
        The ranks of this pipeline, 0 … S−1; None = all.
    scope
        Tells this pipeline's agreements from those of others in the same store.
    """

    def __init__(
        self, spec: GangSpec, rank: int, store: Any, *, group: dist.ProcessGroup | None = None, scope: str = ""
    ) -> None:
        memory = MemoryWatch(spec.devices[rank])
        job, plan = spec.job, spec.plan
        self.job, self.plan, self.rank, self.group = job, plan, rank, group
        self._dtype = element_type(plan.precision)
        self.schedule = _schedule(spec)
        self.device = open_device(spec.devices[rank])
        self._place = self.device.torch_device
        self._wire = self._place if spec.backend == "nccl" else torch.device("cpu")
        rank_of = [self.schedule.row_of(stage.index) for stage in plan.stages]
        names = [stage.layers for stage in plan.stages]

        chain = build_chain(job.model, seed=job.seed, dtype=self._dtype)
        tied = tied_parameters(chain)
        stages = {stage.index: stage for stage in cut(chain, names) if rank_of[stage.index] == rank}
        own = OrderedDict(child for stage in stages.values() for child in stage.layers.named_children())
        self.layers = nn.Sequential(own).to(self._place)
        self.parameters = list(self.layers.parameters())
        self._tied = TiedWeights(tied, names, rank_of, self.layers, rank, spec.links, self._wire)
        self.rule = Rule(self.layers, job.optimizer)

        self._data = Samples(job.data, dtype=self._dtype, device=self._place, owner=job.name)
        self._order = SampleOrder(num_samples=len(self._data), batch=job.batch.total, seed=job.seed)
        self._held: Samples | None = None
        if job.evaluate is not None:
            self._held = Samples(job.evaluate.data, dtype=self._dtype, device=self._place, owner=job.name)
        self.total = num_steps(job, len(self._data))
        self.transport = Transport(
            rank=rank,
            rank_of=rank_of,
            store=store,
            wires=open_wires(rank, spec.links, spec.directory / WIRES),
            device=self._place,
            wire=self._wire,
            timeout=spec.timeout,
            scope=scope,
            directions=_directions(spec),
        )
        self.executor = Executor(
            schedule=self.schedule,
            row=rank,
            stages=stages,
            transport=self.transport,
            device=self.device,
            loss=zoo.loss(job.loss),
            seed=job.seed,
            memory=memory,
            spare=self._read_ahead,
        )
        self._next: Reading | None = None

    def accumulate(self, step: int) -> float:
        """Run the actions of one step: parameters' ``grad`` hold the gradient of the batch's mean loss.

        Returns
        -------
        float
            The mean loss on the rank of the last stage; 0 elsewhere.
        """
        batch = self._batch(self._order.indices(step), self.plan.microbatches, step, self._data)
        if step + 1 < self.total and self._reads:
            self._next = self._data.begin(self._order.indices(step + 1), self._key(step + 1))
        loss = self.executor.train(batch)
        self._tied.reduce()
        return loss

    def post_sum(self, loss: float, *more: float) -> Sum:
        """Begin to add up [loss, squared norm, *more] over all ranks."""
        with self.device.action():
            square = squared_norm(self._tied.counted(self.parameters))
        values = torch.tensor([loss, square, *more], dtype=torch.float64, device=self._wire)
        return Sum(values=values, work=dist.all_reduce(values, group=self.group, async_op=True))

    def update(self, step: int, total: Sum) -> None:
        """Clip if the job says so (which needs the norm and so waits for all), then move the weights."""
        limit = self.job.gradient_clip
        norm = None if limit is None else math.sqrt(total.wait()[1])
        with self.device.action():
            if limit is not None and norm is not None:
                clip(self.parameters, norm, limit)
            self.rule.apply(learning_rate(self.job.lr_schedule, self.job.optimizer.lr, step, self.total))

    def evaluate(self) -> float:
        """Mean loss over all held-out samples, in batches like those of training."""
        if self._held is None:
            raise InputError(f"job {self.job.name!r} names no data to evaluate on")
        total, size, largest = 0.0, self.job.batch.total, max(self.plan.microbatches)
        for number, first in enumerate(range(0, len(self._held), size)):
            indices = torch.arange(first, min(first + size, len(self._held)))
            full, rest = divmod(len(indices), largest)
            batch = self._batch(indices, (largest,) * full + ((rest,) if rest else ()), number, self._held)
            total += self.executor.evaluate(batch) * len(indices)
        summed = torch.tensor(total, dtype=torch.float64, device=self._wire)
        dist.all_reduce(summed, group=self.group)
        return summed.item() / len(self._held)

    @property
    def _reads(self) -> bool:
        return self.executor.holds_first or self.executor.holds_last

    def _key(self, step: int) -> str:
        return f"{self.job.seed}/{step}"

    def _read_ahead(self, until: float) -> None:
        if self._next is not None:
            self._next.advance(until)

    def _batch(self, indices: Tensor, microbatches: tuple[int, ...], step: int, data: Samples) -> Batch:
        if not self._reads:
            return Batch(step=step, microbatches=microbatches)
        if data is self._data and self._next is not None and self._next.key == self._key(step):
            (inputs, targets), self._next = self._next.finish(), None
        else:
            inputs, targets = data.read(indices, self._key(step))
        return Batch(
            step=step,
            microbatches=microbatches,
            inputs=inputs if self.executor.holds_first else None,
            targets=targets if self.executor.holds_last else None,
        )


def _directions(spec: GangSpec) -> dict[str, dist.ProcessGroup]:
    """A group for each direction where the backend has no tags; empty where it has.

    NCCL runs the messages of a pair in the order in which they were posted. With one group for both directions a
    receive that is posted ahead could stand before the send that it depends on.
    """
    if spec.backend != "nccl":
        return {}
    return {kind: dist.new_group() for kind in ("F", "B")}


def _schedule(spec: GangSpec) -> Schedule:
    job, plan = spec.job, spec.plan
    if sum(plan.microbatches) != job.batch.total:
        raise InputError(
            f"the plan's microbatches {plan.microbatches} do not add up to the job's batch of {job.batch.total}"
        )
    schedule = make_schedule(plan.schedule, plan.num_stages, len(plan.microbatches))
    if len(schedule.rows) != len(spec.devices):
        raise InputError(f"schedule {plan.schedule!r} needs {len(schedule.rows)} ranks, found {len(spec.devices)}")
    return schedule
