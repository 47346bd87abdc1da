"""What one rank has of a job: its layers, its samples, its executor and its optimizer; one step in two calls."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ignite_scheduler import zoo
from ignite_scheduler.cost import microbatch_sizes
from ignite_scheduler.cost.memory import NOT_OFFLOADED
from ignite_scheduler.engine.chain import StageModule, cut, element_type, tied_parameters
from ignite_scheduler.engine.crew import Crew
from ignite_scheduler.engine.data import Reading, SampleOrder, Samples, num_steps
from ignite_scheduler.engine.dealing import Dealing
from ignite_scheduler.engine.devices import open_device
from ignite_scheduler.engine.executor import Batch, Executor
from ignite_scheduler.engine.links import open_wires
from ignite_scheduler.engine.memory import MemoryMeter, MemoryWatch
from ignite_scheduler.engine.offload import HostMemory
from ignite_scheduler.engine.optimization import clip, learning_rate, squared_norm
from ignite_scheduler.engine.reference import has_batch_statistics
from ignite_scheduler.engine.replica_sum import ReplicaSum, exchange_seconds
from ignite_scheduler.engine.rule import Rule
from ignite_scheduler.engine.sharded_rule import ShardedRule
from ignite_scheduler.engine.specification import WIRES, GangSpec
from ignite_scheduler.engine.transport import Transport
from ignite_scheduler.engine.tying import TiedWeights
from ignite_scheduler.engine.unfilled import unfilled_weights
from ignite_scheduler.errors import ExternalError, InputError
from ignite_scheduler.model import Job, Stage
from ignite_scheduler.pipeline import Schedule, in_flight, make_schedule


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
        The ranks of this pipeline, 0 … n−1; None = all.
    groups
        Process groups by their ranks, among them those of stages with several; None = made here, by all ranks together.
    scope
        Tells this pipeline's agreements from those of others in the same store.
    """

    def __init__(
        self,
        spec: GangSpec,
        rank: int,
        store: Any,
        *,
        group: dist.ProcessGroup | None = None,
        groups: Mapping[tuple[int, ...], dist.ProcessGroup] | None = None,
        scope: str = "",
    ) -> None:
        job, plan = spec.job, spec.plan
        self.job, self.plan, self.rank, self.group = job, plan, rank, group
        self._dtype = element_type(plan.precision)
        self.schedule = _schedule(spec)
        self.device = open_device(spec.devices[rank])
        self._place = self.device.torch_device
        self._wire = self._place if spec.backend == "nccl" else torch.device("cpu")
        self.crew = Crew.of(plan)
        (own,) = self.crew.stages_of(rank)
        self.stage = plan.stages[own]
        ranks = self.crew.ranks[own]
        self.leads = ranks[0] == rank
        if groups is None:
            wait = timedelta(seconds=spec.timeout)
            groups = {each: dist.new_group(list(each), timeout=wait) for each in self.crew.ranks if len(each) > 1}

        self._data = Samples(job.data, dtype=self._dtype, device=self._place, owner=job.name)
        self._order = SampleOrder(num_samples=len(self._data), batch=job.batch.total, seed=job.seed)
        self._held: Samples | None = None
        if job.evaluate is not None:
            self._held = Samples(job.evaluate.data, dtype=self._dtype, device=self._place, owner=job.name)
        self.total = num_steps(job, len(self._data))

        zoo.load_code(job.model)
        self.memory = MemoryMeter(self._place)  # what is here by now is what an idle rank holds
        module, tied = _build(job, plan.stages, own, self._dtype, self._place)
        self.layers = module.layers
        self.parameters = list(self.layers.parameters())
        seconds = exchange_seconds(sum(p.nbytes for p in self.parameters), ranks, spec.links)
        self._sum: ReplicaSum | None = None
        self.rule: Rule | ShardedRule
        if self.stage.optimizer_shards > 1:
            self.rule = ShardedRule(
                self.layers,
                job.optimizer,
                ranks=ranks,
                group=groups[ranks],
                rank=rank,
                seconds=seconds / 2,
                wire=self._wire,
            )
            seconds /= 2
        else:
            self.rule = Rule(self.layers, job.optimizer)
        if len(ranks) > 1:
            _check_replicable(module)
            self._sum = ReplicaSum(groups[ranks], seconds=seconds, wire=self._wire)
        names = [stage.layers for stage in plan.stages]
        self._tied = TiedWeights(tied, names, self.crew, self.layers, rank, spec.links, self._wire)
        self.executor, self.transport = self._open(spec, store, scope, module)
        self._readings: tuple[Reading, ...] = ()
        self._reduced = 0.0

    def _open(self, spec: GangSpec, store: Any, scope: str, module: StageModule) -> tuple[Executor, Transport]:
        """What executes the actions of the stage, and what carries its messages."""
        own, rank = self.stage.index, self.rank
        held = in_flight(self.schedule)[own]
        transport = Transport(
            rank=rank,
            store=store,
            wires=open_wires(rank, spec.links, spec.directory / WIRES),
            device=self._place,
            wire=self._wire,
            timeout=spec.timeout,
            scope=scope,
            directions=_directions(spec),
            in_flight=held,
        )
        host = HostMemory(self.layers, self.device, spec.devices[rank].host_bandwidth)
        executor = Executor(
            schedule=self.schedule,
            row=self.schedule.row_of(own),
            rank=rank,
            stages={own: module},
            transport=transport,
            dealing=Dealing(self.crew, rank, transport),
            device=self.device,
            loss=zoo.loss(self.job.loss),
            seed=self.job.seed,
            memory=MemoryWatch(spec.devices[rank], self.memory),
            host={own: host} if self.stage.offload and held > NOT_OFFLOADED else {},
            spare=self._read_ahead,
        )
        return executor, transport

    def accumulate(self, step: int) -> float:
        """Run the actions of one step: parameters' ``grad`` hold the gradient of the batch's mean loss.

        Returns
        -------
        float
            The mean loss on the rank of the last stage, or this rank's part of it; 0 elsewhere.
        """
        began = time.monotonic()
        reading = next((each for each in self._readings if each.key == self._key(step)), None) or self._begin(step)
        following = self._begin(step + 1) if step + 1 < self.total else None
        self._readings = tuple(each for each in (reading, following) if each is not None)
        if reading is not None and not self.executor.holds_first:
            reading.finish()  # while the first activations are on their way
        batch = Batch(step=step, microbatches=self.plan.microbatches, samples=reading, ready=began)
        coming = self.rule.coming_state()  # so that the first step needs as much memory as all others
        loss = self.executor.train(batch)
        del coming
        summed = 0.0 if self._sum is None else self._sum.reduce(self.rule.gradients.all)
        self._reduced = max(summed, self._tied.reduce())
        self.rule.collect()
        return loss

    def post_sum(self, loss: float, *more: float) -> Sum:
        """Begin to add up [loss, squared norm, *more] over all ranks."""
        with self.device.action(self._reduced):
            square = squared_norm(self._tied.counted(self.parameters)) if self.leads else 0.0
        values = torch.tensor([loss, square, *more], dtype=torch.float64, device=self._wire)
        return Sum(values=values, work=dist.all_reduce(values, group=self.group, async_op=True))

    def update(self, step: int, total: Sum) -> None:
        """Clip if the job says so (which needs the norm and so waits for all), then move the weights."""
        limit = self.job.gradient_clip
        norm = None if limit is None else math.sqrt(total.wait()[1])
        with self.device.action(self._reduced if limit is None else None):
            if limit is not None and norm is not None:
                clip(self.parameters, norm, limit)
            self.rule.apply(learning_rate(self.job.lr_schedule, self.job.optimizer.lr, step, self.total))
        if isinstance(self.rule, ShardedRule):
            self.rule.share()

    def evaluate(self) -> float:
        """Mean loss over all held-out samples, in batches like those of training."""
        if self._held is None:
            raise InputError(f"job {self.job.name!r} names no data to evaluate on")
        total, size, largest = 0.0, self.job.batch.total, max(self.plan.microbatches)
        for number, first in enumerate(range(0, len(self._held), size)):
            indices = torch.arange(first, min(first + size, len(self._held)))
            sizes = microbatch_sizes(len(indices), largest)
            reading = self._reading(self._held, indices, number, sizes)
            total += self.executor.evaluate(Batch(step=number, microbatches=sizes, samples=reading)) * len(indices)
        summed = torch.tensor(total, dtype=torch.float64, device=self._wire)
        dist.all_reduce(summed, group=self.group)
        return summed.item() / len(self._held)

    def _key(self, step: int) -> str:
        return f"{self.job.seed}/{step}"

    def _begin(self, step: int) -> Reading | None:
        return self._reading(self._data, self._order.indices(step), step, self.plan.microbatches)

    def _reading(self, data: Samples, indices: Tensor, number: int, sizes: tuple[int, ...]) -> Reading | None:
        """What this rank reads of a batch; None where it reads nothing."""
        first, last = self.executor.holds_first, self.executor.holds_last
        if not first and not last:
            return None
        places = self.crew.runs(self.stage.index, self.rank, sizes)
        return Reading(data, indices, self._key(number), places, inputs=first, targets=last)

    def _read_ahead(self, until: float) -> None:
        for reading in self._readings:
            reading.advance(until)
            if reading.waiting or not reading.complete:
                return


def _build(
    job: Job, plan: Sequence[Stage], own: int, dtype: torch.dtype, place: torch.device
) -> tuple[StageModule, tuple[tuple[str, ...], ...]]:
    """This rank's stage, and the model's tied parameters. Weights of other stages never fill memory."""
    with unfilled_weights() as weights:
        chain = zoo.build(job.model, seed=job.seed, data=job.data, dtype=dtype)
    tied = tied_parameters(chain)
    stage = cut(chain, [stage.layers for stage in plan], [_segments(stage) for stage in plan])[own]
    weights.fill_all_but(_state(chain), kept=_state(stage.layers))
    stage.layers.to(device=place, dtype=dtype)
    return stage, tied


def _segments(stage: Stage) -> tuple[tuple[int, int], ...]:
    """The segments that the stage computes again, as positions among its layers; all layers where none is named."""
    if not stage.recompute:
        return ()
    named = stage.recompute_segments or ((stage.layers[0], stage.layers[-1]),)
    return tuple((stage.layers.index(first), stage.layers.index(last) + 1) for first, last in named)


def _check_replicable(stage: StageModule) -> None:
    """Refuse a stage whose replicas would not compute what one device does."""
    if has_batch_statistics(stage.layers):
        raise InputError(
            f"stage {stage.index} has batch normalisation, and several devices: each would normalise by its own "
            "samples of a microbatch and keep statistics of its own, which is not what one device computes; plan with "
            "replicas: 1, or normalise by layer or group"
        )


def _state(module: nn.Module) -> list[Tensor]:
    """Parameters and buffers."""
    return [*module.parameters(), *module.buffers()]


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
    if len(schedule.rows) != plan.num_stages:
        raise InputError(f"schedule {plan.schedule!r} needs {len(schedule.rows)} stages, found {plan.num_stages}")
    return schedule
