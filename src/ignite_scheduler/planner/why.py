"""Why a plan is not faster: which stage, link, all-reduce or device's memory binds, and by how much.

Theory of operation
-------------------
The step is a maximum over chains of actions of sums of their durations. So a small speed-up of one resource shortens
the step by the seconds that the resource has on *every* longest chain: with p % less of its seconds the step is
share · p % shorter. One longest chain, walked back from the end, names the few resources that can have a share at
all, and its seconds are an upper limit on it; for the largest of them the share is found exactly by timing the whole
step again with :data:`SPEED_UP` of the resource's durations. Where several chains are equally long no resource alone
has much of a share: the plan is balanced.

What memory keeps apart is found by trying: a layer more on the far side of a boundary, a sample from one device of a
group to another, a stage without its recomputation or offload. A neighbour that is faster and fails for the room on
one device only is the reason to name that device.

All work is counted in actions and messages timed, never in seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from ignite_scheduler.cost import Assignment, microbatch_sizes, stage_durations
from ignite_scheduler.model import Reason
from ignite_scheduler.pipeline import Durations, Timeline, timeline
from ignite_scheduler.pipeline.metrics import critical_path
from ignite_scheduler.pipeline.timeline import Interval, Number
from ignite_scheduler.planner.neighbours import Neighbour, evaluated, lighter_memory, overfull, shifts
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.units import format_memory

WHY_WORK: Final = 100_000
"""Actions and messages timed: about a second of one core."""

SPEED_UP: Final = 0.99
"""Factor on the durations of the resource that is made a little faster."""

MOST_TIMED: Final = 4
"""Resources whose share is found exactly."""

LEAST_SHARE: Final = 0.05
"""Resources that account for less of the step are not named, the first apart."""

BALANCED: Final = 0.5
"""Where the largest shares sum to less, several chains are equally long."""

MOST_TRIED: Final = 6
"""Neighbours of the plan that are looked at for want of memory."""

MORE_MEMORY: Final = 0.05
"""A move that needs more than this part of a device's memory is not worth a word."""

WORTH: Final = 0.001
"""Least part of the step that a neighbour must save."""

WORTH_BATCH: Final = 0.05
"""Least part of the time for a sample that a larger batch must save."""


class Resource(NamedTuple):
    """Something that is busy: a stage, the link of an edge (by the edge's position), or all all-reduces."""

    kind: str
    position: int


def reasons(problem: Problem, assignment: Assignment, work: int = WHY_WORK) -> tuple[Reason, ...]:
    """What binds the plan of ``assignment``: resources by their share of the step, then batch and memory.

    Parameters
    ----------
    work
        Actions and messages that may be timed; the step itself is timed in any case.
    """
    schedule, durations = stage_durations(problem.job, problem.profile, problem.cluster, assignment)
    timed = timeline(schedule, durations)
    events = len(timed.intervals) + len(timed.transfers)
    left = work // events - 1
    shares = _shares(timed, durations, min(left, MOST_TIMED))
    found = [_resource_reason(assignment, durations, resource, share) for resource, share in shares]
    if found and sum(share.part for _, share in shares) < BALANCED and all(share.exact for _, share in shares):
        found[0] = replace(found[0], text=f"{found[0].text}; others keep the same pace, so that none alone binds")
    left -= min(len(shares), MOST_TIMED)
    if left >= 2:
        found += _batch_reasons(problem, assignment, float(timed.step))
        left -= 2
    binding = [resource for resource, _ in shares]
    tries = islice(_neighbours(problem, assignment, durations, binding), min(max(left, 0), MOST_TRIED))
    return (*found, *_memory_reasons(problem, tries, float(timed.step)))


class Part(NamedTuple):
    """A resource's part of the step, or an upper limit on it where it was not timed again."""

    part: float
    exact: bool


def _shares(timed: Timeline, durations: Durations, most: int) -> list[tuple[Resource, Part]]:
    """Resources with their part of the step, the largest first."""
    step = float(timed.step)
    if step <= 0:
        return []
    limits = _on_longest_chain(timed, durations)
    ranked = sorted(limits, key=lambda resource: (-limits[resource], resource))
    found = []
    for position, resource in enumerate(ranked):
        part = Part(min(1.0, limits[resource] / step), exact=False)
        if position < most:
            faster = float(timeline(timed.schedule, _faster(durations, resource)).step)
            part = Part((step - faster) / ((1 - SPEED_UP) * step), exact=True)
        found.append((resource, part))
    found = sorted(found[: max(most, 1)], key=lambda entry: (-entry[1].part, entry[0]))
    return [entry for position, entry in enumerate(found) if position == 0 or entry[1].part >= LEAST_SHARE]


def _on_longest_chain(timed: Timeline, durations: Durations) -> dict[Resource, float]:
    """Seconds that each resource has on one longest chain."""
    edges = {(edge.source, edge.target): index for index, edge in enumerate(durations.edges)}
    seconds: dict[Resource, float] = defaultdict(float)
    for item in critical_path(timed):
        if isinstance(item, Interval):
            resource = Resource("stage", item.action.stage_index)
        else:
            ends = (min(item.source, item.target), max(item.source, item.target))
            resource = Resource("link", edges.get(ends, edges.get((ends[1], ends[0]), 0)))
        seconds[resource] += float(item.end - item.start)
    if durations.reductions:
        seconds[Resource("allreduce", 0)] += float(sum(each.seconds for each in durations.reductions))
    last = max(range(len(timed.finishes)), key=lambda stage: timed.finishes[stage][1])
    seconds[Resource("stage", last)] += float(durations.finish[last])
    return seconds


def _faster(durations: Durations, resource: Resource) -> Durations:
    """The durations with those of one resource made a little shorter."""
    kind, index = resource
    if kind == "allreduce":
        shorter = tuple(replace(each, seconds=each.seconds * SPEED_UP) for each in durations.reductions)
        return replace(durations, reductions=shorter)
    if kind == "link":
        edge = durations.edges[index]
        edge = replace(edge, forward=_scaled(edge.forward), backward=_scaled(edge.backward))
        return replace(durations, edges=(*durations.edges[:index], edge, *durations.edges[index + 1 :]))

    def scaled(rows: tuple[tuple[Number, ...], ...]) -> tuple[tuple[Number, ...], ...]:
        return (*rows[:index], _scaled(rows[index]), *rows[index + 1 :])

    finish = durations.finish
    return replace(
        durations,
        forward=scaled(durations.forward),
        backward=scaled(durations.backward),
        weight_backward=None if durations.weight_backward is None else scaled(durations.weight_backward),
        finish=(*finish[:index], finish[index] * SPEED_UP, *finish[index + 1 :]),
    )


def _scaled(values: tuple[Number, ...]) -> tuple[Number, ...]:
    return tuple(value * SPEED_UP for value in values)


def _resource_reason(assignment: Assignment, durations: Durations, resource: Resource, share: Part) -> Reason:
    kind, index = resource
    effect = f"made 1 % faster, the step is {'' if share.exact else 'at most '}{share.part:.2f} % shorter"
    if kind == "stage":
        count = len(assignment.stages[index].layers)
        layers = "one layer" if count == 1 else f"{count} layers"
        text = f"stage {index}, {layers} on {_devices(assignment, index)}: {effect}"
        return Reason(kind="stage", index=index, share=share.part, text=text)
    if kind == "link":
        edge = durations.edges[index]
        ends = " and ".join(f"stage {stage} ({_devices(assignment, stage)})" for stage in (edge.source, edge.target))
        return Reason(kind="link", index=edge.source, share=share.part, text=f"link between {ends}: {effect}")
    count = len(durations.reductions)
    noun = "the all-reduce" if count == 1 else f"the {count} all-reduces"
    return Reason(kind="allreduce", share=share.part, text=f"{noun} at the end of the step: {effect}")


DEVICES_NAMED: Final = 3


def _devices(assignment: Assignment, stage: int) -> str:
    devices = assignment.stages[stage].devices
    rest = len(devices) - DEVICES_NAMED
    return ", ".join(devices[:DEVICES_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _batch_reasons(problem: Problem, assignment: Assignment, step: float) -> Iterator[Reason]:
    """Whether a batch twice as large would take clearly less time a sample: then it is what keeps devices idle."""
    total, full = sum(assignment.microbatches), assignment.microbatches[0]
    twice = evaluated(problem, replace(assignment, microbatches=microbatch_sizes(2 * total, full)))
    if twice is None or overfull(twice):
        return
    saved = 1 - twice.predicted.step / (2 * step) if step > 0 else 0.0
    if saved >= WORTH_BATCH:
        count, stages = len(assignment.microbatches), len(assignment.stages)
        text = (
            f"batch: {count} microbatch{'es' if count > 1 else ''} for {stages} stage{'s' if stages > 1 else ''} leave "
            f"devices idle; a batch of {2 * total} samples would take {100 * saved:.1f} % less time a sample"
        )
        yield Reason(kind="batch", share=saved, text=text)


def _neighbours(
    problem: Problem, assignment: Assignment, durations: Durations, binding: list[Resource]
) -> Iterator[Neighbour]:
    """Choices next to the plan's, those first that relieve what binds most."""
    names = [layer.name for layer in problem.profile.layers]
    busy = [resource.position for resource in binding if resource.kind == "stage"]
    cuts = [durations.edges[resource.position] for resource in binding if resource.kind == "link"]
    yield from lighter_memory(assignment)
    yield from shifts(assignment, names, busy, [(cut.source, cut.target) for cut in cuts])


def _memory_reasons(problem: Problem, tries: Iterable[Neighbour], step: float) -> list[Reason]:
    """Devices whose memory keeps a faster neighbour of the plan from being one, the most worth first."""
    best: dict[str, Reason] = {}
    for neighbour in tries:
        reason = _wanting(problem, neighbour, step)
        if reason is not None and reason.device is not None:
            known = best.get(reason.device)
            if known is None or (known.share or 0.0) < (reason.share or 0.0):
                best[reason.device] = reason
    return sorted(best.values(), key=lambda reason: (-(reason.share or 0.0), reason.device))


def _wanting(problem: Problem, neighbour: Neighbour, step: float) -> Reason | None:
    """The reason that a neighbour gives: it is faster, and only one device is too small for it."""
    plan = evaluated(problem, neighbour.assignment)
    if plan is None or step <= 0:
        return None
    saved = 1 - plan.predicted.step / step
    over = overfull(plan)
    if saved < WORTH or len(over) != 1:
        return None
    ((device, missing, limit),) = over
    if not neighbour.at_any_price and missing > MORE_MEMORY * limit:
        return None
    text = (
        f"memory of {device}: with {format_memory(missing)} more ({100 * missing / limit:.1f} % of it) "
        f"{neighbour.text}, and the step would be {100 * saved:.1f} % shorter"
    )
    return Reason(kind="memory", index=neighbour.stage, device=device, share=saved, text=text)
