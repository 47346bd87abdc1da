"""One choice, timed and weighed: from split, devices, microbatches and schedule to a plan with all its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any, Final

from ignite_scheduler.cost.choice import Assignment
from ignite_scheduler.cost.communication import cut_bytes, ring_seconds
from ignite_scheduler.cost.compute import LayerSeconds, action_overhead, layer_seconds, update_seconds
from ignite_scheduler.cost.memory import byte_scale, memory_factors, resolved_precision, stage_memory
from ignite_scheduler.cost.money import energy_per_step, price_per_second
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import (
    Alternative,
    Bottleneck,
    Bound,
    Cluster,
    Device,
    Job,
    Link,
    Plan,
    Prediction,
    Profile,
    Share,
    Stage,
    Unused,
)
from ignite_scheduler.pipeline import (
    Durations,
    Edge,
    Reduction,
    Schedule,
    Timeline,
    bottleneck,
    bubble_fraction,
    in_flight,
    make_schedule,
    timeline,
)

UNBOUNDED: Final = Bound(step=0.0, gap=math.inf, method="none", optimal=False)
"""Says that nothing is known about better plans."""

PACE_RATIO: Final = 3.0
"""A stage that takes this many times as long as every other one is worth a warning."""


def microbatch_sizes(total: int, micro: int) -> tuple[int, ...]:
    """Samples of each of the ceil(total ÷ micro) microbatches; the last one may be smaller.

    >>> microbatch_sizes(8, 3)
    (3, 3, 2)
    """
    full, rest = divmod(total, micro)
    return (micro,) * full + ((rest,) if rest else ())


def stage_durations(job: Job, profile: Profile, cluster: Cluster, assignment: Assignment) -> tuple[Schedule, Durations]:
    """The schedule of the choice and the seconds of everything in it.

    Raises
    ------
    InputError
        The choice is malformed, a layer has no time on a device, or two neighbours have no link.
    """
    return _Choice(job, profile, cluster, assignment).timing()


def evaluate(
    job: Job,
    profile: Profile,
    cluster: Cluster,
    assignment: Assignment,
    *,
    bound: Bound = UNBOUNDED,
    unused: tuple[Unused, ...] = (),
    alternatives: tuple[Alternative, ...] = (),
    warnings: tuple[str, ...] = (),
    resolved: Mapping[str, Any] | None = None,
    memory_margin: float = 0.0,
) -> Plan:
    """The plan that the choice makes, with memory, step time, money and energy.

    Parameters
    ----------
    memory_margin
        Safety factor on memory: 0.05 counts 5 % more than the formula gives.

    Notes
    -----
    Memory above a device's limit is *reported*, not refused: which choices are permitted is the planner's business.
    Without calibration ``step_low`` = ``step_high`` = ``step``. ``cost``, ``energy`` and ``duration`` are for all
    steps of the job, ``transfer_bytes`` for one.
    """
    choice = _Choice(job, profile, cluster, assignment)
    schedule, durations = choice.timing()
    timed = timeline(schedule, durations)
    stages = choice.stages(schedule, durations, memory_margin)
    return Plan(
        job=job.name,
        schedule=assignment.schedule,
        precision=resolved_precision(job, profile),
        microbatches=assignment.microbatches,
        stages=stages,
        predicted=choice.prediction(schedule, durations, timed),
        bound=bound,
        unused=unused,
        alternatives=alternatives,
        warnings=(*warnings, *choice.warnings(stages)),
        resolved={**(resolved or {}), "times": choice.sources()},
    )


class _Choice:
    """Everything that belongs to one choice, looked up once."""

    def __init__(self, job: Job, profile: Profile, cluster: Cluster, assignment: Assignment) -> None:
        _check(profile, assignment)
        self.job, self.profile, self.assignment = job, profile, assignment
        self.devices = [cluster.device(device_id) for device_id in assignment.devices]
        self.bounds = [0, *accumulate(assignment.split)]
        self.scale = byte_scale(job, profile)
        self.precision = resolved_precision(job, profile)
        self.cuts = [num_bytes * self.scale for num_bytes in cut_bytes(profile, assignment.split)]
        self.links = [(_link(cluster, a, b), _link(cluster, b, a)) for a, b in pairwise(self.devices)]
        self.cluster = cluster
        self.by_size = {u: self._stage_seconds(u) for u in set(assignment.microbatches)}

    def _stage_seconds(self, samples: int) -> list[list[LayerSeconds]]:
        return [
            [self._layer_seconds(index, device, samples) for index in range(first, last)]
            for device, (first, last) in zip(self.devices, pairwise(self.bounds), strict=True)
        ]

    def _layer_seconds(self, index: int, device: Device, samples: int) -> LayerSeconds:
        seconds = layer_seconds(self.profile, index, device, samples, self.precision)
        if seconds is None:
            name = self.profile.layers[index].name
            raise InputError(
                f"layer {name!r} has no time on kind {device.kind!r} (device {device.id}): measure it there, or give "
                f"the device a speed relative to the profile's reference {self.profile.reference!r}"
            )
        return seconds

    def _per_microbatch(self, part: str) -> tuple[tuple[float, ...], ...]:
        sums = {
            u: [sum(getattr(layer, part) for layer in stage) for stage in stages] for u, stages in self.by_size.items()
        }
        overheads = [
            action_overhead(self.profile, device) if part != "weight_backward" else 0.0 for device in self.devices
        ]
        return tuple(
            tuple(sums[u][stage] + overhead for u in self.assignment.microbatches)
            for stage, overhead in enumerate(overheads)
        )

    def timing(self) -> tuple[Schedule, Durations]:
        sizes = self.assignment.microbatches
        edges = tuple(
            Edge(
                source=s,
                target=s + 1,
                forward=tuple(there.seconds(self.cuts[s] * u) for u in sizes),
                backward=tuple(back.seconds(self.cuts[s] * u) for u in sizes),
                forward_wire=there.wire,
                backward_wire=back.wire,
            )
            for s, (there, back) in enumerate(self.links)
        )
        durations = Durations(
            forward=self._per_microbatch("forward"),
            backward=self._per_microbatch("backward"),
            weight_backward=self._per_microbatch("weight_backward"),
            edges=edges,
            finish=tuple(self._update(s) for s in range(len(self.devices))),
            reductions=tuple(self._reductions()),
        )
        return make_schedule(self.assignment.schedule, len(self.devices), len(sizes)), durations

    def _update(self, stage: int) -> float:
        first, last = self.bounds[stage : stage + 2]
        return update_seconds(self.profile, first, last, self.devices[stage], self.job.optimizer.name)

    def _reductions(self) -> list[Reduction]:
        """Tied weights whose holders are on several stages are summed over all of them before the update."""
        stage_of = [s for s, count in enumerate(self.assignment.split) for _ in range(count)]
        found = []
        for group in self.profile.tied:
            indices = [self.profile.index(name) for name in group]
            holders = sorted({stage_of[index] for index in indices})
            if len(holders) > 1:
                num_bytes = min(self.profile.layers[index].parameter_bytes for index in indices) * self.scale
                pairs = [(self.devices[a], self.devices[b]) for a in holders for b in holders if a != b]
                links = [_link(self.cluster, source, target) for source, target in pairs]
                seconds = ring_seconds(
                    num_bytes, min(link.bandwidth for link in links), max(link.latency for link in links), len(holders)
                )
                found.append(Reduction(stages=tuple(holders), seconds=seconds))
        return found

    def stages(self, schedule: Schedule, durations: Durations, margin: float) -> tuple[Stage, ...]:
        factors = memory_factors(self.job, self.profile)
        full = self.assignment.microbatches[0]
        stages = []
        for index, (device, (first, last), held) in enumerate(
            zip(self.devices, pairwise(self.bounds), in_flight(schedule), strict=True)
        ):
            need = stage_memory(self.profile, first, last, factors, in_flight=held, samples=full, scale=self.scale)
            share = Share(device=device.id, samples=full, memory=need * (1 + margin), memory_limit=device.memory)
            stages.append(
                Stage(
                    index=index,
                    layers=tuple(layer.name for layer in self.profile.layers[first:last]),
                    devices=(share,),
                    forward=float(durations.forward[index][0]),
                    backward=float(durations.backward[index][0]),
                    in_flight=held,
                    update=float(durations.finish[index]),
                    allreduce=float(sum(r.seconds for r in durations.reductions if index in r.stages)),
                )
            )
        return tuple(stages)

    def prediction(self, schedule: Schedule, durations: Durations, timed: Timeline) -> Prediction:
        step = float(timed.step)
        busy = [0.0] * len(self.devices)
        for interval in timed.intervals:
            busy[interval.row] += float(interval.end - interval.start)
        for stage, (start, end) in enumerate(timed.finishes):
            busy[stage] += float(end - start)
        price = price_per_second(self.devices)
        energy = energy_per_step(self.devices, busy, step)
        steps = self.job.steps
        duration = None if steps is None else steps * step
        busiest = bottleneck(schedule, durations)
        total = sum(self.assignment.microbatches)
        return Prediction(
            step=step,
            step_low=step,
            step_high=step,
            samples_per_second=total / step if step > 0 else math.inf,
            bubble_fraction=bubble_fraction(timed),
            bottleneck=Bottleneck(kind=busiest.kind, index=busiest.stage_index, busy=float(busiest.busy)),
            transfer_bytes=2.0 * total * sum(self.cuts),
            duration=duration,
            cost=None if price is None or duration is None else price * duration,
            energy=None if energy is None or steps is None else energy * steps,
        )

    def sources(self) -> dict[str, str]:
        """Which figures the layer times of each device come from."""
        stages = self.by_size[self.assignment.microbatches[0]]
        return {
            device.id: "; ".join(dict.fromkeys(layer.source for layer in stage))
            for device, stage in zip(self.devices, stages, strict=True)
        }

    def warnings(self, stages: tuple[Stage, ...]) -> list[str]:
        warnings = []
        precision = resolved_precision(self.job, self.profile)
        if precision != self.profile.precision and any(layer.times for layer in self.profile.layers):
            warnings.append(
                f"the profile has no times in {precision}: its {self.profile.precision} times are used, bytes converted"
            )
        num_stages, count = len(stages), len(self.assignment.microbatches)
        if self.job.batch.micro is not None and num_stages > 1 and count < 4 * num_stages:
            warnings.append(
                f"{count} microbatches for {num_stages} stages leave much idle time: "
                f"{4 * num_stages} or more would cut the bubble"
            )
        busy = [stage.forward + stage.backward for stage in stages]
        slowest = max(range(num_stages), key=busy.__getitem__)
        others = [seconds for index, seconds in enumerate(busy) if index != slowest]
        if others and busy[slowest] >= PACE_RATIO * max(others) > 0:
            warnings.append(
                f"stage {slowest} on {stages[slowest].devices[0].device} sets the pace: "
                f"{busy[slowest]:.4g} s a microbatch, the others need {max(others):.4g} s at most"
            )
        return warnings


def _check(profile: Profile, assignment: Assignment) -> None:
    if sum(assignment.split) != len(profile.layers) or min(assignment.split, default=0) < 1:
        raise InputError(
            f"a split gives each of the {len(profile.layers)} layers to one stage and leaves no stage empty; "
            f"found {assignment.split}"
        )
    if len(assignment.devices) != len(assignment.split):  # one came twice
        raise InputError(f"expected {len(assignment.split)} distinct devices, one a stage; found {assignment.devices}")
    if min(assignment.microbatches, default=0) < 1:
        raise InputError(f"each microbatch needs at least 1 sample; found {assignment.microbatches}")


def _link(cluster: Cluster, source: Device, target: Device) -> Link:
    link = cluster.link(source, target)
    if link is None:
        raise InputError(f"no link from {source.id} to {target.id}: give the cluster's links a default or this pair")
    return link
