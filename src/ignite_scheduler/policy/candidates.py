"""What a policy chooses from: for each job a few candidates, each a demand on pools of devices with its time and
money.

A *pool* is a set of devices that a demand may draw from without telling them apart. Two levels are used: devices that
are interchangeable for a plan (same kind, speed, memory, price and the same links to everybody: ``node/kind`` as a
rule) and, above them, all devices of a kind, which is what a throughput-table job asks for. Taking a device takes it
from both pools, so capacities stay two lists of integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ignite_scheduler.cost.money import known_product, known_sum, price_per_second
from ignite_scheduler.model import Cluster, Device, Plan
from ignite_scheduler.policy.pools import Pools, kind_pool

RangeEnd = Literal["early", "expected", "late"]
"""Where in the range of a prediction: its early end, what is expected, its late end."""


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
        Pessimistic rate, for the late end of a promise and for deadlines; equal to ``rate`` without calibration.
    rate_high
        Optimistic rate, for the early end of a promise; None = ``rate``.
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
    rate_high: float | None = None

    def pace(self, end: RangeEnd) -> float:
        """Units of work per second at that end of the range."""
        if end == "early":
            return self.rate if self.rate_high is None else self.rate_high
        return self.rate_low if end == "late" else self.rate

    @property
    def is_ranged(self) -> bool:
        """Whether it is known how far its rate may be off."""
        return self.pace("late") != self.rate or self.pace("early") != self.rate

    @property
    def num_devices(self) -> int:
        """Devices held."""
        return sum(count for _, count in self.demand)


def candidates_of_plans(plans: Iterable[Plan], cluster: Cluster, pools: Pools) -> tuple[Candidate, ...]:
    """One candidate a plan: its devices counted by fine pool, its rate in steps per second.

    The plan stays on its own devices, which stand for any free ones of the same pools. Power is the predicted energy
    spread over the predicted duration.
    """
    return tuple(_candidate_of_plan(plan, cluster, pools) for plan in plans)


def _candidate_of_plan(plan: Plan, cluster: Cluster, pools: Pools) -> Candidate:
    predicted = plan.predicted
    counts = Counter(pools.pool_of[device_id] for device_id in plan.device_ids)
    power = None
    if predicted.energy is not None and predicted.duration:
        power = predicted.energy / predicted.duration
    return Candidate(
        demand=tuple(sorted(counts.items())),
        rate=1.0 / predicted.step,
        rate_low=1.0 / predicted.step_high,
        price=price_per_second([cluster.device(device_id) for device_id in plan.device_ids]),
        power=power,
        plan=plan,
        rate_high=None if predicted.step_low == predicted.step else 1.0 / predicted.step_low,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """How many devices of a kind there are, and their mean price (money per second) and busy power (watts).

    None where one of them is unknown.
    """

    count: int
    price: float | None
    power: float | None


def figures_of_kinds(cluster: Cluster) -> dict[str, KindFigures]:
    """Kind → figures over the cluster's devices."""
    by_kind: dict[str, list[Device]] = {}
    for device in cluster.devices:
        by_kind.setdefault(device.kind, []).append(device)
    return {
        kind: KindFigures(
            count=len(devices),
            price=_mean_or_none([device.price for device in devices]),
            power=_mean_or_none([device.busy_power for device in devices]),
        )
        for kind, devices in by_kind.items()
    }


def candidates_of_rates(
    rates: Mapping[tuple[tuple[str, int], ...], float], kinds: Mapping[str, KindFigures]
) -> tuple[Candidate, ...]:
    """Candidates of a throughput-table job: one for each mix of kinds of which there are enough devices.

    Parameters
    ----------
    rates
        ((kind, count), …), each kind once → units of work per second, above 0.
    kinds
        The devices there are, see :func:`figures_of_kinds`.
    """
    return tuple(
        Candidate(
            demand=tuple(sorted((kind_pool(kind), count) for kind, count in mix)),
            rate=rate,
            rate_low=rate,
            price=known_sum(known_product(kinds[kind].price, count) for kind, count in mix),
            power=known_sum(known_product(kinds[kind].power, count) for kind, count in mix),
        )
        for mix, rate in rates.items()
        if all(kind in kinds and count <= kinds[kind].count for kind, count in mix)
    )


def _mean_or_none(values: list[float | None]) -> float | None:
    total = known_sum(values)
    return None if total is None else total / len(values)
