"""The five objectives of a straight pipeline, compiled, beside the step time that the planner's kernel gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from ignite_scheduler.planner.compiled import compiled, inlined
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.kernel import Floats, Numbers, value_of
from ignite_scheduler.planner.problem import Family
from ignite_scheduler.planner.setup import Setup
from ignite_scheduler.planner.solve import Goal

TIME, MONEY, ENERGY, DEVICES, HEADROOM = range(5)

NUM_VALUES: Final = 5
"""Seconds, money and joules of a step, number of devices, and headroom with its sign changed: all to be made small."""


class Weights(NamedTuple):
    """What the objectives beside the step time are counted from, by class of devices.

    ``price``, ``idle`` and ``extra`` (busy above idle) are per second, unknown ones 0; ``extra_front[j]`` is the least
    extra of the layers before j. ``memory`` is infinite where it is unlimited; a stage of layers i…j−1 with K
    microbatches in flight needs ``fixed[i, j] + samples · (K · kept[i, j] + peak[i, j])`` bytes.
    """

    price: Floats
    idle: Floats
    extra: Floats
    extra_front: Floats
    memory: Floats
    samples: float
    fixed: Floats
    kept: Floats
    peak: Floats


def weighed(setup: Setup, family: Family, arrays: Arrays) -> tuple[Numbers, Weights]:
    """The family for the kernel, whose value is then the step time, and what the other objectives are counted from."""
    devices = setup.classes.devices
    price = np.array([device.price or 0.0 for device in devices], dtype=np.float64)
    known = [device.busy_power is not None and device.idle_power is not None for device in devices]
    idle = np.array([(device.idle_power or 0.0) if all(known) else 0.0 for device in devices], dtype=np.float64)
    busy = np.array([(device.busy_power or 0.0) if all(known) else 0.0 for device in devices], dtype=np.float64)
    zeros = np.zeros(len(devices))
    numbers = replace(setup, goal=Goal(1.0, zeros, busy - idle, price)).numbers(family, arrays)
    model = setup.model
    weights = Weights(
        price=price,
        idle=idle,
        extra=numbers.extra,
        extra_front=numbers.extra_front,
        memory=np.array([device.memory for device in devices], dtype=np.float64),
        samples=float(family.samples),
        fixed=np.ascontiguousarray(model.need_fixed),
        kept=np.ascontiguousarray(model.need_sample),
        peak=np.ascontiguousarray(model.need_peak),
    )
    return numbers._replace(extra=zeros, extra_front=np.zeros(len(numbers.extra_front))), weights


@inlined
def room_left(numbers: Any, weights: Any, q: int, c: int, first: int, end: int) -> float:
    """Share of its memory that a device of class c has left with these layers as the stage q from the end."""
    if weights.memory[c] == np.inf:
        return 1.0
    held = numbers.num_microbatches if numbers.gpipe else min(numbers.num_microbatches, q + 1)
    grown = held * weights.kept[first, end] + weights.peak[first, end]
    return float(1.0 - (weights.fixed[first, end] + weights.samples * grown) / weights.memory[c])


@compiled
def weigh(numbers: Any, weights: Any, room: Any, n: int, classes: Any, first: Any, out: Any) -> bool:
    """Write the values of a whole pipeline, given from the end, into ``out``; whether it is permitted."""
    step = value_of(numbers, room, n, classes, first)
    if step == np.inf:
        return False
    price, joules, left = 0.0, 0.0, 1.0
    last = numbers.num_microbatches - 1
    end = numbers.num_layers
    for q in range(n):
        c = classes[q]
        price += weights.price[c]
        busy = last * (room.forward[q, 0] + room.backward[q, 0]) + room.forward[q, 1] + room.backward[q, 1]
        joules += weights.idle[c] * step + weights.extra[c] * (busy + room.ready[q] - room.free[q])
        left = min(left, room_left(numbers, weights, q, c, first[q], end))
        end = first[q]
    out[TIME], out[MONEY], out[ENERGY], out[DEVICES], out[HEADROOM] = step, price * step, joules, n, -left
    return True
