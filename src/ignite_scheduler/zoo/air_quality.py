"""Hourly weather and fine dust of a made-up city, in the shape of a well-known table of Beijing.

The table that it stands for is UCI's "Beijing PM2.5" (S. Chen, 2015): 43,824 hours of five years, each with the
concentration of fine dust, dew point, temperature, pressure, one of four wind directions, and the wind speed, snow and
rain added up over the hours that they last. None of it is used here: a seeded generator draws its own.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.datasets import Sample, part

NUM_FEATURES: Final = 11
"""Dust, dew point, temperature, pressure, wind speed, snow, rain, and one of four wind directions."""
_NUM_DIRECTIONS: Final = 4
_DAY: Final = 24
_YEAR: Final = 8766


class Windows(Dataset[Sample]):
    """Windows over a table of hours: the rows of some hours in a line, and the dust of the hour after them."""

    def __init__(self, table: Tensor, starts: Tensor, hours: int) -> None:
        self.table, self.starts, self.hours = table, starts, hours

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Sample:
        start = int(self.starts[index])
        end = start + self.hours
        return self.table[start:end].flatten(), self.table[end, :1]


def air_quality(
    hours: int = 24, length: int = 43_824, split: str = "train", held_out: float = 0.2, seed: int = 0
) -> Windows:
    """Float32 ``[hours · 11]``, the hours one after the other; target float32 ``[1]``, the dust of the next hour.

    ``length`` is the number of hours of the table. Every column has mean 0 and spread 1 over the whole of it.
    """
    if hours < 1 or length < hours + 2:
        raise InputError(
            f"air_quality: hours must be at least 1 and length above hours + 1, found hours={hours}, length={length}"
        )
    starts = part(length - hours, split=split, held_out=held_out, seed=seed)
    return Windows(_table(length, seed), starts, hours)


def _table(length: int, seed: int) -> Tensor:
    """Hours by features, float32, standardised."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(length, dtype=torch.float64)
    winter = torch.cos(2 * math.pi * time / _YEAR)
    night = torch.cos(2 * math.pi * (time / _DAY))
    slow, fast, damp, dust = (_drift(length, memory, generator) for memory in (120, 24, 48, 36))
    temperature = 12 - 15 * winter - 5 * night + 3 * slow
    dew_point = temperature - 8 - 6 * winter + 5 * damp
    pressure = 1016 + 10 * winter - 4 * slow + 2 * fast
    changes = torch.rand(length, generator=generator) < 1 / 6
    drawn = torch.randint(_NUM_DIRECTIONS, (length,), generator=generator)
    direction = drawn[torch.where(changes, torch.arange(length), 0).cummax(0).values]
    wind = _added_up((2 + fast).clamp_min(0.1), ~changes)
    falls = damp > 1.5
    snow, rain = (_added_up((falls & cold).double(), falls & cold) for cold in (temperature < 0, temperature >= 0))
    logarithm = 4 + 0.6 * dust + 0.3 * winter + 0.2 * damp - 0.25 * wind.log1p() - 0.1 * rain.log1p()
    columns = torch.stack((logarithm.exp(), dew_point, temperature, pressure, wind, snow, rain), dim=1)
    table = torch.cat((columns, torch.nn.functional.one_hot(direction, _NUM_DIRECTIONS).double()), dim=1)
    return ((table - table.mean(0)) / table.std(0).clamp_min(1e-12)).float()


def _drift(length: int, memory: float, generator: torch.Generator) -> Tensor:
    """A series that forgets within about ``memory`` hours, of mean 0 and spread 1."""
    keep = math.exp(-1 / memory)
    scale = math.sqrt(1 - keep * keep)
    value, values = 0.0, []
    for step in torch.randn(length, generator=generator, dtype=torch.float64).tolist():
        value = keep * value + scale * step
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)


def _added_up(amounts: Tensor, goes_on: Tensor) -> Tensor:
    """Amounts summed over each run of hours in which it goes on; an hour in which it does not begins anew."""
    total = amounts.cumsum(0)
    starts = torch.where(goes_on, 0, torch.arange(len(amounts))).cummax(0).values
    return total - total[starts] + amounts[starts]
