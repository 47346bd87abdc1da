"""One choice, timed and weighed: from split, devices, microbatches and schedule to a plan with all its figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ignite_scheduler.cost.choice import Assignment, StageChoice
from ignite_scheduler.cost.gradients import reductions
from ignite_scheduler.cost.memory import byte_scale, resolved_precision
from ignite_scheduler.cost.money import energy_per_step, price_per_second
from ignite_scheduler.cost.replicas import last_shares
from ignite_scheduler.cost.stages import LayerClock, ReplicaSeconds, TimedStage
from ignite_scheduler.cost.topology import Route, topology
from ignite_scheduler.cost.transfers import edge_between
from ignite_scheduler.model import (
    Alternative,
    Bottleneck,
    Bound,
    Cluster,
    Device,
    Job,
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
    Interval,
    Schedule,
    Timeline,
    bottleneck,
    in_flight,
    make_schedule,
    timeline,
)
from ignite_scheduler.pipeline.actions import FORWARD
from ignite_scheduler.units import format_names

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
    choice = _Choice(job, profile, cluster, assignment)
    return choice.schedule, choice.durations


def replica_seconds(
    job: Job, profile: Profile, cluster: Cluster, assignment: Assignment
) -> tuple[tuple[tuple[ReplicaSeconds, ...], ...], ...]:
    """What each device computes: seconds by stage, by replica in the choice's order, by microbatch.

    Raises
    ------
    InputError
        As :func:`stage_durations`.
    """
    choice = _Choice(job, profile, cluster, assignment)
    by_microbatch = [choice.seconds[samples] for samples in assignment.microbatches]
    return tuple(tuple(zip(*replicas, strict=True)) for replicas in zip(*by_microbatch, strict=True))


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
    stages = choice.planned_stages(memory_margin)
    return Plan(
        job=job.name,
        schedule=assignment.schedule,
        precision=resolved_precision(job, profile),
        microbatches=assignment.microbatches,
        stages=stages,
        predicted=choice.prediction(timeline(choice.schedule, choice.durations)),
        bound=bound,
        unused=unused,
        alternatives=alternatives,
        warnings=(*warnings, *choice.warnings(stages)),
        resolved={**(resolved or {}), "times": choice.sources()},
    )


class _Choice:
    """Everything that belongs to one choice, looked up once."""

    def __init__(self, job: Job, profile: Profile, cluster: Cluster, assignment: Assignment) -> None:
        self.job, self.profile, self.cluster, self.assignment = job, profile, cluster, assignment
        self.topology = topology(profile, assignment)
        self.devices = [[cluster.device(each) for each in stage.devices] for stage in assignment.stages]
        self.schedule = make_schedule(
            assignment.schedule, len(self.devices), len(assignment.microbatches), depths=self.topology.depths
        )
        clock = LayerClock(job, profile)
        self.stages = [
            TimedStage(job, clock, stage, devices, held)
            for stage, devices, held in zip(assignment.stages, self.devices, in_flight(self.schedule), strict=True)
        ]
        self.shares = {samples: self._shares(samples) for samples in set(assignment.microbatches)}
        self.seconds = {samples: self._seconds(samples) for samples in self.shares}
        self.durations = self._durations()

    def _shares(self, samples: int) -> list[tuple[int, ...]]:
        """Of each stage, its replicas' samples of a microbatch of so many."""
        parts = zip(self.topology.workers, self.topology.worker_samples(samples), strict=True)
        part_of = {stage: part for worker, part in parts for stage in worker.stages}
        return [last_shares(stage.samples, part_of[index]) for index, stage in enumerate(self.assignment.stages)]

    def _seconds(self, samples: int) -> list[tuple[ReplicaSeconds, ...]]:
        return [
            tuple(stage.seconds(device, share) for device, share in zip(stage.devices, shares, strict=True))
            for stage, shares in zip(self.stages, self.shares[samples], strict=True)
        ]

    def _durations(self) -> Durations:
        sizes, stages = self.assignment.microbatches, range(len(self.stages))
        scale = byte_scale(self.job, self.profile)
        slowest = {
            samples: [max(replicas, key=lambda seconds: seconds.backward) for replicas in each]
            for samples, each in self.seconds.items()
        }
        return Durations(
            forward=tuple(tuple(max(r.forward for r in self.seconds[u][s]) for u in sizes) for s in stages),
            backward=tuple(tuple(slowest[u][s].backward for u in sizes) for s in stages),
            weight_backward=tuple(tuple(slowest[u][s].weight_backward for u in sizes) for s in stages),
            edges=tuple(self._edge(route, scale) for route in self.topology.routes),
            finish=tuple(max(stage.update(device) for device in stage.devices) for stage in self.stages),
            reductions=reductions(self.profile, self.cluster, self.topology.holders, self.devices, scale),
        )

    def _edge(self, route: Route, scale: float) -> Edge:
        shares = [(self.shares[u][route.source], self.shares[u][route.target]) for u in self.assignment.microbatches]
        return edge_between(
            self.cluster, route, (self.devices[route.source], self.devices[route.target]), shares, scale
        )

    def planned_stages(self, margin: float) -> tuple[Stage, ...]:
        durations = self.durations
        return tuple(
            Stage(
                index=index,
                layers=tuple(self.profile.layers[layer].name for layer in stage.choice.layers),
                devices=tuple(
                    Share(
                        device=device.id,
                        samples=samples,
                        memory=stage.memory(samples) * (1 + margin),
                        memory_limit=device.memory,
                    )
                    for device, samples in zip(stage.devices, stage.choice.samples, strict=True)
                ),
                forward=float(durations.forward[index][0]),
                backward=float(durations.backward[index][0]),
                in_flight=stage.held,
                recompute=bool(stage.choice.recompute),
                recompute_segments=self._segments(stage.choice),
                offload=stage.choice.offload,
                optimizer_shards=stage.shards,
                update=float(durations.finish[index]),
                allreduce=float(sum(each.seconds for each in durations.reductions if index in each.stages)),
                inputs=None if self.topology.is_chain else self.topology.inputs[index],
            )
            for index, stage in enumerate(self.stages)
        )

    def _segments(self, choice: StageChoice) -> tuple[tuple[str, str], ...]:
        """First and last layer of each recomputed segment; none where it is the whole stage."""
        if choice.recompute == ((choice.layers[0], choice.layers[-1] + 1),):
            return ()
        layers = self.profile.layers
        return tuple((layers[first].name, layers[end - 1].name) for first, end in choice.recompute)

    def prediction(self, timed: Timeline) -> Prediction:
        """What the plan is expected to do.

        A device is busy while it computes its own share and in the all-reduce; ``bubble_fraction`` is the idle share of
        the time of all devices held. ``transfer_bytes`` are activations and gradients between stages, whatever the
        number of messages; all-reduces come apart. The ``bottleneck`` is a whole stage or the wire between two.
        """
        step, devices = float(timed.step), [device for stage in self.devices for device in stage]
        busy, total = self._busy(timed)
        price = price_per_second(devices)
        energy = energy_per_step(devices, [busy[device.id] for device in devices], step)
        steps = self.job.steps
        duration = None if steps is None else steps * step
        busiest = bottleneck(self.schedule, self.durations)
        num_samples = sum(self.assignment.microbatches)
        return Prediction(
            step=step,
            step_low=step,
            step_high=step,
            samples_per_second=num_samples / step if step > 0 else math.inf,
            bubble_fraction=1 - total / (len(devices) * step) if step > 0 else 0.0,
            bottleneck=Bottleneck(kind=busiest.kind, index=busiest.stage_index, busy=float(busiest.busy)),
            transfer_bytes=self._transfer_bytes(),
            duration=duration,
            cost=None if price is None or duration is None else price * duration,
            energy=None if energy is None or steps is None else energy * steps,
        )

    def _busy(self, timed: Timeline) -> tuple[dict[str, float], float]:
        """Busy seconds of each device, and of all: those of its stage's actions, less what it waits for replicas."""
        busy = {device.id: 0.0 for stage in self.stages for device in stage.devices}
        acting = ending = 0.0
        for interval in timed.intervals:
            for device, part in self._parts(interval):
                busy[device.id] += part
                acting += part
        for stage, (start, end) in zip(self.stages, timed.finishes, strict=True):
            updates = [stage.update(device) for device in stage.devices]
            for device, seconds in zip(stage.devices, updates, strict=True):
                part = float(end - start) - (max(updates) - seconds)
                busy[device.id] += part
                ending += part
        return busy, acting + ending

    def _parts(self, interval: Interval) -> Iterator[tuple[Device, float]]:
        """Yield what each replica computes of an action: the slowest all of it, the others their own seconds."""
        index, kind, k = interval.action
        replicas = self.seconds[self.assignment.microbatches[k]][index]
        own = [each.forward if kind == FORWARD else each.backward for each in replicas]
        longest, length = max(own), float(interval.end - interval.start)
        for device, seconds in zip(self.stages[index].devices, own, strict=True):
            yield device, length * (seconds / longest) if longest else 0.0

    def _transfer_bytes(self) -> float:
        scale = byte_scale(self.job, self.profile)
        moved = 0.0
        parts = [self.topology.worker_samples(samples) for samples in self.assignment.microbatches]
        for index, worker in enumerate(self.topology.workers):
            own = sum(route.sample_bytes * scale for route in self.topology.routes if route.source in worker.stages)
            moved += 2.0 * sum(part[index] for part in parts) * own
        return moved

    def sources(self) -> dict[str, str]:
        """Which figures the layer times of each device come from."""
        return {device: source for stage in self.stages for device, source in stage.sources().items()}

    def warnings(self, stages: tuple[Stage, ...]) -> list[str]:
        warnings = []
        precision = resolved_precision(self.job, self.profile)
        if precision != self.profile.precision and any(layer.times for layer in self.profile.layers):
            warnings.append(
                f"the profile has no times in {precision}: its {self.profile.precision} times are used, bytes converted"
            )
        depth, count = max(self.topology.depths), len(self.assignment.microbatches)
        if self.job.batch.micro is not None and depth > 1 and count < 4 * depth:
            warnings.append(
                f"{count} microbatches for {depth} stages leave much idle time: "
                f"{4 * depth} or more would cut the bubble"
            )
        busy = [stage.forward + stage.backward for stage in stages]
        slowest = max(range(len(stages)), key=busy.__getitem__)
        others = [seconds for index, seconds in enumerate(busy) if index != slowest]
        if others and busy[slowest] >= PACE_RATIO * max(others) > 0:
            warnings.append(
                f"stage {slowest} on {format_names(self.assignment.stages[slowest].devices)} sets the pace: "
                f"{busy[slowest]:.4g} s a microbatch, the others need {max(others):.4g} s at most"
            )
        return warnings
