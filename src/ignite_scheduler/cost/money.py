"""Money and energy. What is unknown stays unknown: None, never 0."""

from __future__ import annotations

from collections.abc import Sequence

from ignite_scheduler.model import Device


def price_per_second(devices: Sequence[Device]) -> float | None:
    """Money per second for holding the devices, busy or idle; None if any price is unknown."""
    prices = [device.price for device in devices]
    return None if any(price is None for price in prices) else float(sum(p for p in prices if p is not None))


def energy_per_step(devices: Sequence[Device], busy: Sequence[float], step: float) -> float | None:
    """Joules of one step: busy power × busy time + idle power × idle time; None if any power is unknown."""
    total = 0.0
    for device, seconds in zip(devices, busy, strict=True):
        if device.busy_power is None or device.idle_power is None:
            return None
        total += device.busy_power * seconds + device.idle_power * (step - seconds)
    return total
