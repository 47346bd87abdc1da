"""Which samples each step trains on: an endless stream of shuffled passes, cut into batches."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from ignite_scheduler import zoo
from ignite_scheduler.engine.chain import seed_random_numbers
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Job, Reference


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
        return self.begin(indices, key).finish()

    def begin(self, indices: Tensor, key: str) -> Reading:
        """The same batch, to be read bit by bit."""
        return Reading(self, indices, key)

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

    def stack(self, items: list[tuple[Any, Any]]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Samples as one batch."""
        inputs, targets = (self._stack([item[part] for item in items]) for part in (0, 1))
        if len(targets) != 1:
            raise InputError(f"job {self._owner!r}: expected one target for each sample, found {len(targets)}")
        return inputs, targets[0]

    def _stack(self, items: list[Any]) -> tuple[Tensor, ...]:
        columns = zip(*items, strict=True) if isinstance(items[0], tuple | list) else [items]
        return tuple(self._convert(torch.stack([torch.as_tensor(item) for item in column])) for column in columns)

    def _convert(self, tensor: Tensor) -> Tensor:
        dtype = self._dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(device=self._device, dtype=dtype)


class Reading:
    """A batch that is being read: a bit whenever the device has nothing else to do, the rest when it is needed.

    Where devices are played by waiting, the next step's samples are so read while this step's actions are still due,
    as a loader beside a real device would. No thread is needed, and random numbers come in a fixed order.
    """

    def __init__(self, samples: Samples, indices: Tensor, key: str) -> None:
        self._samples, self._indices, self.key = samples, indices.tolist(), key
        self._items: list[tuple[Any, Any]] = []
        self._longest = 0.0

    def advance(self, until: float) -> None:
        """Read on as long as the slowest sample so far would be read by ``until`` on the monotonic clock."""
        now = time.monotonic()
        while len(self._items) < len(self._indices) and now + 2 * self._longest < until:
            self._read_one()
            began, now = now, time.monotonic()
            self._longest = max(self._longest, now - began)

    def finish(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of the whole batch."""
        while len(self._items) < len(self._indices):
            self._read_one()
        return self._samples.stack(self._items)

    def _read_one(self) -> None:
        place = len(self._items)
        self._items.append(self._samples.item(self._indices[place], f"{self.key}/{place}"))
