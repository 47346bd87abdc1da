"""Steps of Sailor's plans, predicted from its profiles and link models. Nothing is fitted.

What its runtime does (DeepSpeed's pipeline engine, deepspeed/runtime/pipe/schedule.py, and Sailor's copy of
pipe/engine.py) and how it is charged:

- 1F1B; each of the dp pipelines works on gbs ÷ dp samples in microbatches of mbs, and they meet at a barrier before
  the gradients are reduced. All pipelines and the all-reduces stand in one timeline.
- Between two passes a worker receives the gradient of its next backward pass *before* it sends its activations
  (``receive_first``). Sends are buffered.
- Each member of a tensor-parallel group sends its part of a boundary tensor to its counterpart; the receiving group
  gathers the parts before it computes.
- Gradients are reduced after the last backward pass, in fp32, by a ring over the replicas of each stage; then the
  optimizer updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ignite_scheduler.cost import (
    all_gather_seconds,
    group_seconds,
    group_transfer_seconds,
    microbatch_sizes,
    parallel_pipelines,
    ring_over,
    stage_memory,
)
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MemoryFactors
from ignite_scheduler.pipeline import Durations, Edge, Reduction, Timeline, in_flight, make_schedule, timeline
from published.sailor_files import Measured, Replica, Sailor, neighbours

ADAM = MemoryFactors(weights=1.0, gradients=1.0, optimizer=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A step and what it is made of: seconds that add up to ``step``.

    ``compute`` is the busy time of the busiest worker, ``bubble`` what it waits for others on free links, ``transfer``
    what links add, ``reduction`` the all-reduce, ``update`` the optimizer. ``waiting`` is how long the first pipeline
    that is done waits for the last one, before the all-reduce (it is part of the others' compute, not of the sum).
    ``floor`` is the step with layer times in proportion to those of the largest microbatch measured: what remains when
    the host's launches hide behind the GPU's work. ``memory`` is bytes of the fullest device.
    """

    step: float
    compute: float
    bubble: float
    transfer: float
    reduction: float
    update: float
    waiting: float
    floor: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A plan against the data: microbatches of each pipeline, and the replicas of each stage."""

    data: Sailor
    model: str
    plan: Measured

    @property
    def width(self) -> int:
        """Replicas of the stage that has most."""
        return max(len(replicas) for _, replicas in self.plan.stages)

    @property
    def parallel(self) -> bool:
        """Whether each pipeline has replicas of its own at every stage."""
        return all(len(replicas) == self.width for _, replicas in self.plan.stages)

    def microbatches(self) -> list[tuple[int, ...]]:
        """Samples of each microbatch, for each pipeline; with groups there is one pipeline of all samples."""
        if not self.parallel:
            return [microbatch_sizes(self.plan.batch, self.plan.micro * self.width)]
        each, rest = divmod(self.plan.batch, self.width)
        if each == 0:
            raise InputError(f"{self.plan.batch} samples are fewer than {self.width} replicas")
        sizes = [microbatch_sizes(each + (r < rest), self.plan.micro) for r in range(self.width)]
        longest = max(map(len, sizes))
        return [(*s, *(0,) * (longest - len(s))) for s in sizes]

    def pass_seconds(
        self, replica: Replica, stage: int, samples: int, *, full: bool, floor: bool
    ) -> tuple[float, float]:
        """Forward and backward of a stage on a replica; gathers of what comes in are part of it if ``full``."""
        if samples == 0:
            return 0.0, 0.0
        layers, _ = self.plan.stages[stage]
        taken = samples
        if floor:
            profile = self.data.profile(self.model, replica.degree)
            taken = max(*profile.layers[layers[0]].times.get(replica.gpu, ()), samples)
        times = [self.data.seconds(self.model, replica, layer, taken) for layer in layers]
        forward = sum(t.forward for t in times) * samples / taken
        backward = sum(t.backward for t in times) * samples / taken
        if full and stage > 0:
            forward += self.gather(replica, self.boundary(stage - 1) * samples)
        if full and stage + 1 < len(self.plan.stages):
            backward += self.gather(replica, self.boundary(stage) * samples)
        return forward, backward

    def boundary(self, stage: int) -> float:
        """Bytes for one sample that go from a stage to the next."""
        layers, replicas = self.plan.stages[stage]
        return self.data.profile(self.model, replicas[0].degree).layers[layers[-1]].output_bytes

    def gather(self, replica: Replica, num_bytes: float) -> float:
        """Seconds in which the members of a replica gather a tensor that each has a part of."""
        if replica.degree == 1:
            return 0.0
        part = num_bytes / replica.degree
        each = self.data.inside(replica).bandwidth(part) / replica.degree
        return all_gather_seconds(num_bytes, each, 0.0, replica.degree)

    def message(self, sender: Replica, receiver: Replica, num_bytes: float) -> float:
        """Seconds of a boundary tensor between two replicas, in as many parts as the smaller one has members."""
        return self.data.link(sender, receiver).seconds(num_bytes, min(sender.degree, receiver.degree))

    def shares(self, stage: int, samples: int) -> tuple[int, ...]:
        """Equal shares of a microbatch among the replicas of a stage, as the runtime gives them."""
        each, rest = divmod(samples, len(self.plan.stages[stage][1]))
        return tuple(each + (r < rest) for r in range(len(self.plan.stages[stage][1])))


def predict(data: Sailor, plan: Measured) -> Predicted:
    """The step of a plan.

    Raises
    ------
    InputError
        The data have no times, sizes or links for something in the plan; says what.
    """
    layout = _Layout(data=data, model=data.model_of(plan), plan=plan)
    timed, done = _timed(layout)
    free, free_done = _timed(layout, full=False)
    bare, _ = _timed(layout, floor=True)
    busy = [0.0] * len(free.schedule.rows)
    for interval in free.intervals:
        busy[interval.row] += float(interval.end - interval.start)
    updates = _updates(layout)
    return Predicted(
        step=float(timed.step),
        compute=max(busy),
        bubble=max(free_done) - max(busy),
        transfer=max(done) - max(free_done),
        reduction=max(float(timed.step) - max(done) - max(updates), 0.0),
        update=max(updates),
        waiting=max(done) - min(done),
        floor=float(bare.step),
        memory=_memory(layout),
    )


def _timed(layout: _Layout, *, full: bool = True, floor: bool = False) -> tuple[Timeline, list[float]]:
    """The timeline of all pipelines, and when each of them has done its last pass."""
    sizes = layout.microbatches()
    num_stages = len(layout.plan.stages)
    schedule = make_schedule("1f1b", num_stages, len(sizes[0]))
    replicas = [_durations(layout, r, sizes[r], full, floor) for r in range(len(sizes))]
    everyone = tuple(range(num_stages * len(replicas)))
    reductions = [Reduction(stages=everyone, seconds=0.0)]  # a barrier
    for stage in range(num_stages):
        members = tuple(r * num_stages + stage for r in range(len(replicas)))
        reductions.append(Reduction(stages=members, seconds=_reduction(layout, stage)))
    timed = timeline(*parallel_pipelines(schedule, replicas, reductions), receive_first=True)
    done = [
        max(float(start) for start, _ in timed.finishes[r * num_stages :][:num_stages]) for r in range(len(replicas))
    ]
    return timed, done


def _durations(layout: _Layout, pipeline: int, sizes: Sequence[int], full: bool, floor: bool) -> Durations:
    """What the stages and cuts of one pipeline take."""
    num_stages = len(layout.plan.stages)
    updates = _updates(layout)
    passes: list[dict[int, tuple[float, float]]] = []
    for stage in range(num_stages):
        of_size = {samples: _stage_seconds(layout, pipeline, stage, samples, full, floor) for samples in set(sizes)}
        passes.append(of_size)
    edges = []
    for cut in range(num_stages - 1):
        of_size = {
            samples: _cut_seconds(layout, pipeline, cut, samples) if full else (0.0, 0.0) for samples in set(sizes)
        }
        edges.append(
            Edge(
                source=cut,
                target=cut + 1,
                forward=tuple(of_size[samples][0] for samples in sizes),
                backward=tuple(of_size[samples][1] for samples in sizes),
                forward_wire=(cut, "forward"),
                backward_wire=(cut, "backward"),
            )
        )
    return Durations(
        forward=tuple(tuple(of_size[samples][0] for samples in sizes) for of_size in passes),
        backward=tuple(tuple(of_size[samples][1] for samples in sizes) for of_size in passes),
        edges=tuple(edges),
        finish=tuple(updates),
    )


def _stage_seconds(
    layout: _Layout, pipeline: int, stage: int, samples: int, full: bool, floor: bool
) -> tuple[float, float]:
    replicas = layout.plan.stages[stage][1]
    if layout.parallel:
        return layout.pass_seconds(replicas[pipeline], stage, samples, full=full, floor=floor)
    shares = layout.shares(stage, samples)

    def of_part(part: int) -> float:
        return float(
            group_seconds(
                shares,
                [
                    lambda u, replica=replica: layout.pass_seconds(replica, stage, u, full=full, floor=floor)[part]
                    for replica in replicas
                ],
            )
        )

    return of_part(0), of_part(1)


def _cut_seconds(layout: _Layout, pipeline: int, cut: int, samples: int) -> tuple[float, float]:
    """Activations forth and gradients back over the cut after a stage."""
    before, after = layout.plan.stages[cut][1], layout.plan.stages[cut + 1][1]
    per_sample = layout.boundary(cut)
    if layout.parallel:
        sender, receiver = before[pipeline], after[pipeline]
        num_bytes = per_sample * samples
        return layout.message(sender, receiver, num_bytes), layout.message(receiver, sender, num_bytes)
    there, here = layout.shares(cut, samples), layout.shares(cut + 1, samples)
    forth = group_transfer_seconds(there, here, per_sample, lambda i, j, n: layout.message(before[i], after[j], n))
    back = group_transfer_seconds(here, there, per_sample, lambda i, j, n: layout.message(after[i], before[j], n))
    return float(forth), float(back)


def _reduction(layout: _Layout, stage: int) -> float:
    """The ring over the replicas of a stage: every member of each group reduces its part, all at once."""
    layers, replicas = layout.plan.stages[stage]
    held = [
        sum(layout.data.profile(layout.model, replica.degree).layers[layer].parameter_bytes for layer in layers)
        * replica.degree
        for replica in replicas
    ]
    links = [
        lambda num_bytes, pair=pair: layout.data.link(*pair).seconds(num_bytes, min(pair[0].degree, pair[1].degree))
        for pair in neighbours(replicas)
    ]
    return ring_over(max(held), links)


def _updates(layout: _Layout) -> list[float]:
    """Seconds of the update of each stage, on its slowest replica."""
    return [
        max(sum(layout.data.update(layout.model, replica, layer) for layer in layers) for replica in replicas)
        for layers, replicas in layout.plan.stages
    ]


def _memory(layout: _Layout) -> float:
    """Bytes of the fullest device: weights, gradients, Adam's states, and activations of the microbatches in flight."""
    (sizes, *_), num_stages = layout.microbatches(), len(layout.plan.stages)
    schedule = make_schedule("1f1b", num_stages, len(sizes))
    needed = []
    for stage, ((layers, replicas), held) in enumerate(zip(layout.plan.stages, in_flight(schedule), strict=True)):
        samples = sizes[0] if layout.parallel else max(layout.shares(stage, sizes[0]))
        for replica in replicas:
            profile = layout.data.profile(layout.model, replica.degree)
            part = replace(profile, layers=tuple(profile.layers[layer] for layer in layers))
            needed.append(stage_memory(part, 0, len(layers), ADAM, in_flight=held, samples=samples))
    return max(needed)
