"""Which samples each step trains on: an endless stream of shuffled passes, cut into batches."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import seed_random_numbers
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Job, Reference
from ignite_scheduler.zoo.batches import stacked


class SampleOrder:
    """The order of samples that follows from the seed alone, whatever the split.

    Place p of the stream is sample ``permutation(p // n)[p % n]``; step t takes places t·B … t·B+B−1. So every batch is
    full, each sample comes once per pass, and any step can be computed without those before it.
    """

    def __init__(self, *, num_samples: int, batch: int, seed: int) -> None:
        if num_samples < 1:
            raise InputError("expected a data set of at least 1 sample, found an empty one")
        self.num_samples, self.batch, self.seed = num_samples, batch, seed
        self._passes: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """Indices of the samples of step ``step`` (from 0), shape [batch]."""
        places = torch.arange(step * self.batch, (step + 1) * self.batch)
        numbers = range(int(places[0]) // self.num_samples, int(places[-1]) // self.num_samples + 1)
        known = self._passes
        self._passes = {number: known[number] if number in known else self._shuffle(number) for number in numbers}
        parts = [self._passes[n][places[places // self.num_samples == n] % self.num_samples] for n in numbers]
        return torch.cat(parts)

    def _shuffle(self, number: int) -> Tensor:
        generator = torch.Generator()
        generator.manual_seed((self.seed * 1_000_003 + number) % (1 << 63))
        return torch.randperm(self.num_samples, generator=generator)


def num_steps(job: Job, num_samples: int) -> int:
    """Steps that the job trains; epochs count passes over the data, the last batch filled from the next pass."""
    if job.steps is not None:
        return job.steps
    if job.epochs is None:
        raise InputError(f"job {job.name!r} needs steps or epochs")
    return math.ceil(job.epochs * num_samples / job.batch.total)


class Samples:
    """A map-style data set, read by indices into whole batches of one element type."""

    def __init__(self, reference: Reference | None, *, dtype: torch.dtype, device: torch.device, owner: str) -> None:
        if reference is None:
            raise InputError(f"job {owner!r} has no data: give data: {{dataset: …}} to train it")
        self._dataset: Any = zoo.dataset(reference)
        self._dtype, self._device, self._owner = dtype, device, owner

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, indices: Tensor, key: str) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of these samples; several inputs where a sample's input is a tuple.

        Random numbers that a data set draws (to distort an image, say) start from ``key`` and the sample's place in the
        batch: ranks that read inputs and targets apart see the same samples, and a resumed run sees them again.
        """
        reading = self.begin(indices, key, (len(indices),))
        return reading.inputs(0), reading.targets(0)

    def begin(
        self, indices: Tensor, key: str, microbatches: Sequence[int], *, inputs: bool = True, targets: bool = True
    ) -> Reading:
        """The same batch, to be read microbatch by microbatch; ``inputs`` and ``targets`` say what is wanted of it."""
        ends = accumulate(microbatches)
        places = [range(end - size, end) for size, end in zip(microbatches, ends, strict=True)]
        return Reading(self, indices, key, places, inputs=inputs, targets=targets)

    def item(self, index: int, key: str) -> tuple[Any, Any]:
        """One sample."""
        seed_random_numbers(key, self._device)
        item = self._dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"job {self._owner!r}: expected sample {index} of its data as (input, target), found "
                f"{type(item).__name__}"
            )
        return item[0], item[1]

    def stack(self, items: list[Any]) -> tuple[Tensor, ...]:
        """A part of samples (inputs, or targets) as tensors with a first dimension over the samples."""
        columns = zip(*items, strict=True) if isinstance(items[0], tuple | list) else [items]
        noun = f"job {self._owner!r}: samples of its data"
        return tuple(self._convert(stacked([torch.as_tensor(item) for item in column], noun)) for column in columns)

    def stack_targets(self, items: list[Any]) -> Tensor:
        """Samples' targets as one tensor."""
        targets = self.stack(items)
        if len(targets) != 1:
            raise InputError(f"job {self._owner!r}: expected one target for each sample, found {len(targets)}")
        return targets[0]

    def _convert(self, tensor: Tensor) -> Tensor:
        dtype = self._dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(device=self._device, dtype=dtype)


class Reading:
    """A batch that is being read: a bit whenever the device has nothing else to do, the rest when it is needed.

    Of each microbatch only the samples at ``places`` of the batch are read, one run of them for each microbatch; a run
    may be empty. Where devices are played by waiting, samples are so read while actions are still due, as a loader
    beside a real device would. No thread is needed, and random numbers come in a fixed order. Inputs are held for one
    microbatch ahead of need, no more: they are what a device's memory is charged for. Targets alone take little room.
    """

    def __init__(
        self,
        samples: Samples,
        indices: Tensor,
        key: str,
        places: Sequence[range],
        *,
        inputs: bool,
        targets: bool,
    ) -> None:
        self._samples, self._indices, self.key = samples, indices.tolist(), key
        self._places, self._wants_inputs, self._wants_targets = tuple(places), inputs, targets
        self._items: list[tuple[Any, Any]] = []
        self._inputs: dict[int, tuple[Tensor, ...]] = {}
        self._targets: dict[int, Tensor] = {}
        self._microbatch = -1
        self._longest = 0.0
        self._go_on()

    @property
    def complete(self) -> bool:
        """Whether the last sample is read."""
        return self._microbatch == len(self._places)

    @property
    def waiting(self) -> bool:
        """Whether inputs lie ready that nobody has taken yet."""
        return bool(self._inputs)

    def inputs(self, k: int) -> tuple[Tensor, ...]:
        """Inputs of microbatch ``k``, for one caller: they are forgotten here."""
        self._read_through(k)
        return self._inputs.pop(k)

    def targets(self, k: int) -> Tensor:
        """Targets of microbatch ``k``, for one caller."""
        self._read_through(k)
        return self._targets.pop(k)

    def advance(self, until: float) -> None:
        """Read on as long as the slowest sample so far would be read by ``until`` on the monotonic clock."""
        now = time.monotonic()
        while not self.complete and not self._inputs and now + 2 * self._longest < until:
            self._read_one()
            began, now = now, time.monotonic()
            self._longest = max(self._longest, now - began)

    def finish(self) -> None:
        """Read all that is left."""
        self._read_through(len(self._places) - 1)

    def _read_through(self, k: int) -> None:
        while self._microbatch <= k:
            self._read_one()

    def _go_on(self) -> None:
        """Turn to the next microbatch of which samples are wanted."""
        self._microbatch += 1
        while not self.complete and not self._places[self._microbatch]:
            self._microbatch += 1

    def _read_one(self) -> None:
        places = self._places[self._microbatch]
        place = places[len(self._items)]
        sample, target = self._samples.item(self._indices[place], f"{self.key}/{place}")
        self._items.append((sample if self._wants_inputs else None, target if self._wants_targets else None))
        if len(self._items) < len(places):
            return
        if self._wants_inputs:
            self._inputs[self._microbatch] = self._samples.stack([item[0] for item in self._items])
        if self._wants_targets:
            self._targets[self._microbatch] = self._samples.stack_targets([item[1] for item in self._items])
        self._items.clear()
        self._go_on()
