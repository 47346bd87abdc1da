"""What a policy chooses from: for each job a few candidates, each a demand on pools of devices with its time and money.

A *pool* is a set of devices that a demand may draw from without telling them apart. Two levels are used: devices that are
interchangeable for a plan (same kind, speed, memory, price and the same links to everybody: ``node/kind`` as a rule) and, above
them, all devices of a kind, which is what a throughput-table job asks for. Taking a device takes it from both pools, so
capacities stay two lists of integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ignite_scheduler.model import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run a job.

    Parameters
    ----------
    demand
        (pool id, number of devices) pairs, sorted by pool id, each number ≥ 1.
    rate
        Units of work (training steps; or the throughput table's units) per second while running.
    rate_low
        Pessimistic rate, for the late end of a promise; equal to ``rate`` without calibration.
    price
        Money per second for the devices held; None = unknown.
    power
        Watts while running; None = unknown.
    plan
        The plan on representative devices of the pools; None for throughput-table jobs.
    """

    demand: tuple[tuple[str, int], ...]
    rate: float
    rate_low: float
    price: float | None = None
    power: float | None = None
    plan: Plan | None = None

    @property
    def num_devices(self) -> int:
        """Devices held."""
        return sum(count for _, count in self.demand)
