"""Executes one row of a schedule: the actions of one rank, in exactly their order.

The executor decides nothing. F(s, k) receives the activations of stage s−1, runs the stage's layers and sends the
result; on the last stage it also takes the loss, already divided by the samples of the whole batch, so that gradients
of unequal microbatches simply add up to the batch's gradient. B(s, k) receives the gradient of its outputs, runs
autograd and sends the gradient of its inputs. Gradients accumulate in the order of the row's backwards.

A replica of a stage does so with its own samples of each microbatch; one that has none of a microbatch skips it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ignite_scheduler.engine.chain import StageModule, Tensors
from ignite_scheduler.engine.dealing import Dealing
from ignite_scheduler.engine.devices import ComputeDevice
from ignite_scheduler.engine.entrance import Entrance, Exit
from ignite_scheduler.engine.memory import MemoryWatch
from ignite_scheduler.engine.offload import HostMemory
from ignite_scheduler.engine.rehearsal import per_sample
from ignite_scheduler.engine.transport import Message, Transport
from ignite_scheduler.errors import ScheduleError
from ignite_scheduler.pipeline import Action, Interval, Schedule

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, target) → sum over samples of each sample's loss."""


class Samples(Protocol):
    """What a rank reads of its samples in a step, microbatch by microbatch, each once."""

    def inputs(self, k: int, /) -> Tensors:
        """Inputs of microbatch ``k``."""

    def targets(self, k: int, /) -> Tensor:
        """Targets of microbatch ``k``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step's samples, where this rank needs them: inputs on the first stage, targets on the last.

    ``microbatches`` are the sizes of whole microbatches, in order. ``ready``: since when the device could work on it;
    None = since its samples are read.
    """

    step: int
    microbatches: tuple[int, ...]
    samples: Samples | None = None
    ready: float | None = None

    @property
    def total(self) -> int:
        """Samples of the whole batch."""
        return sum(self.microbatches)


@dataclass(slots=True, kw_only=True)
class _Kept:
    """What the backward of one microbatch needs: where it starts, and where gradients of the inputs arrive."""

    entrance: Entrance
    exit: Exit


class Executor:
    """One rank's part of a pipeline.

    Parameters
    ----------
    row
        Of the schedule, the row that this rank executes.
    rank
        This rank, as its measured actions name it.
    stages
        The stages of this rank, by index.
    transport, dealing
        Its messages, and how they follow from the stages' samples.
    loss
        Needed by the rank of the last stage.
    seed
        The job's; keys dropout.
    host
        By stage, where its activations wait; stages that are missing keep them on the device.
    spare
        Called with the time until which the device has nothing to do.
    """

    def __init__(
        self,
        *,
        schedule: Schedule,
        row: int,
        rank: int,
        stages: Mapping[int, StageModule],
        transport: Transport,
        dealing: Dealing,
        device: ComputeDevice,
        loss: Loss,
        seed: int,
        memory: MemoryWatch | None = None,
        host: Mapping[int, HostMemory] | None = None,
        spare: Callable[[float], None] = lambda until: None,
    ) -> None:
        for action in schedule.rows[row]:
            if action.kind not in "FB":
                raise ScheduleError(
                    f"the engine runs whole backwards only, found {action} in schedule {schedule.name!r}"
                )
        self._actions, self._rank, self._last = schedule.rows[row], rank, schedule.num_stages - 1
        self._stages, self._transport, self._dealing = dict(stages), transport, dealing
        self._device, self._loss = device, loss
        self._seed, self._memory, self._host, self._spare = seed, memory, dict(host or {}), spare
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._losses: dict[int, Tensor] = {}
        self._per_sample: dict[tuple[int, bool], tuple[bool, ...]] = {}
        self.intervals: list[Interval] = []

    @property
    def holds_first(self) -> bool:
        """Whether the first stage is here."""
        return 0 in self._stages

    @property
    def holds_last(self) -> bool:
        """Whether the last stage is here."""
        return self._last in self._stages

    def train(self, batch: Batch) -> float:
        """Run all actions of one step; gradients are added to the parameters' ``grad``.

        Returns
        -------
        float
            Mean loss over the batch's samples; 0 on ranks without the last stage.
        """
        for stage in self._stages.values():
            stage.layers.train()
        return self._run(self._actions, batch, "train")

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> float:
        """Mean loss of the batch, forward only and in evaluation mode; 0 on ranks without the last stage."""
        for stage in self._stages.values():
            stage.layers.eval()
        actions = [Action(s, "F", k) for k in range(len(batch.microbatches)) for s in sorted(self._stages)]
        return self._run(actions, batch, "evaluate")

    def _run(self, actions: Sequence[Action], batch: Batch, mode: str) -> float:
        self._kept.clear()
        self._losses.clear()
        self.intervals = []
        actions = [action for action in actions if self._samples(action, batch)]
        expected = [message for action in actions for message in self._incoming(action, batch)]
        self._transport.begin(expected, mode=mode, step=batch.step)
        for action in actions:
            if action.kind == "F":
                self._forward(action, batch)
            else:
                self._backward(action, batch)
            if self._memory is not None:
                self._memory.check(action.stage_index)
        return sum(float(self._losses[k]) for k in sorted(self._losses))

    def _samples(self, action: Action, batch: Batch) -> range:
        """Places in the batch of this rank's samples of the action."""
        stage, _, k = action
        first, end = self._dealing.crew.run(stage, self._rank, batch.microbatches[k])
        start = sum(batch.microbatches[:k])
        return range(start + first, start + end)

    def _incoming(self, action: Action, batch: Batch) -> list[Message]:
        stage, kind, k = action
        return self._dealing.incoming(stage, kind, k, batch.microbatches[k])

    def _forward(self, action: Action, batch: Batch) -> None:
        index, _, k = action
        stage, places = self._stages[index], self._samples(action, batch)
        targets = self._targets(batch, k) if index == self._last else None
        incoming = self._incoming(action, batch)
        inputs, ready = self._inputs(incoming, batch, k)
        entrance = Entrance(inputs)
        samples = torch.arange(places.start, places.stop, device=self._device.torch_device)
        with self._device.action(ready) as span:
            with self._keeping(index):
                outputs = stage(entrance.enter(), seed=self._seed, step=batch.step, samples=samples)
            if targets is not None:
                outputs = (self._take_loss(outputs, batch, k, targets),)
            self._device.computed(span)
            if torch.is_grad_enabled():
                self._kept[index, k] = _Kept(entrance=entrance, exit=Exit(outputs))
            if index < self._last:
                along = self._along(stage, incoming, inputs, outputs, len(places))
                self._dealing.send_activations(
                    index,
                    k,
                    batch.microbatches[k],
                    outputs,
                    per_sample=along,
                    producer=stage.last,
                    ready=span.end,
                )
            del outputs  # what is sent lies in the message now
            self._transport.look_ahead(len(self._kept))
            self._spare(span.end)
        self.intervals.append(Interval(action, self._rank, span.start, span.end))

    def _keeping(self, stage: int) -> AbstractContextManager[None]:
        """Within this block, a forward of the stage, activations go where they wait for the backward."""
        if stage in self._host and torch.is_grad_enabled():
            return self._host[stage].keeping()
        return nullcontext()

    def _inputs(self, incoming: Sequence[Message], batch: Batch, k: int) -> tuple[Tensors, float | None]:
        """Inputs of a forward, and since when the device could work on them."""
        if incoming:
            return self._dealing.receive(incoming), self._dealing.arrival
        assert batch.samples is not None
        return batch.samples.inputs(k), batch.ready

    def _along(
        self, stage: StageModule, incoming: Sequence[Message], inputs: Tensors, outputs: Tensors, samples: int
    ) -> tuple[bool, ...]:
        """Which outputs run over the samples; taken for granted where nobody has to deal them."""
        if not self._dealing.crew.replicated:
            return (True,) * len(outputs)
        key = stage.index, stage.layers.training
        if key not in self._per_sample:
            over = self._dealing.per_sample(incoming[0]) if incoming else (True,) * len(inputs)
            self._per_sample[key] = per_sample(stage, inputs, over, outputs, samples=samples)
        return self._per_sample[key]

    def _targets(self, batch: Batch, k: int) -> Tensor:
        """Targets of a microbatch, read before the device starts: that is none of its work."""
        assert batch.samples is not None
        return batch.samples.targets(k)

    def _take_loss(self, outputs: Tensors, batch: Batch, k: int, targets: Tensor) -> Tensor:
        outputs = tuple(t.float() if t.is_floating_point() and t.element_size() < 4 else t for t in outputs)
        output = outputs[0] if len(outputs) == 1 else outputs
        loss = self._loss(output, targets) / batch.total  # type: ignore[arg-type]
        self._losses[k] = loss.detach()
        return loss

    def _backward(self, action: Action, batch: Batch) -> None:
        index, _, k = action
        kept = self._kept.pop((index, k))
        incoming = self._incoming(action, batch)
        gradients = self._dealing.receive(incoming) if incoming else (torch.ones_like(self._losses[k]),)
        kept.exit.give(gradients)
        del gradients
        with self._device.action(self._dealing.arrival if incoming else batch.ready) as span:
            with self._host[index].link() if index in self._host else nullcontext():
                kept.exit.backward()
            found = kept.entrance.gradients()
            self._device.computed(span)
            if index > 0:
                producer = self._stages[index].first
                self._dealing.send_gradients(index, k, batch.microbatches[k], found, producer=producer, ready=span.end)
            del found
            self._transport.look_ahead(len(self._kept))
            self._spare(span.end)
        self.intervals.append(Interval(action, self._rank, span.start, span.end))
