"""Money and energy. What is unknown stays unknown: None, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ignite_scheduler.model import Device


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum; None if any value is unknown.

    >>> known_sum([1.0, 2.5]), known_sum([1.0, None])
    (3.5, None)
    """
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def known_product(value: float | None, factor: float) -> float | None:
    """``value × factor``; None if the value is unknown."""
    return None if value is None else value * factor


def price_per_second(devices: Sequence[Device]) -> float | None:
    """Money per second for holding the devices, busy or idle; None if any price is unknown."""
    return known_sum(device.price for device in devices)


def energy_per_step(devices: Sequence[Device], busy: Sequence[float], step: float) -> float | None:
    """Joules of one step: busy power × busy time + idle power × idle time; None if any power is unknown."""
    total = 0.0
    for device, seconds in zip(devices, busy, strict=True):
        if device.busy_power is None or device.idle_power is None:
            return None
        total += device.busy_power * seconds + device.idle_power * (step - seconds)
    return total
