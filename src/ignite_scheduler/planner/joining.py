"""What a device that a plan leaves out would do in it: as one more device of a stage, or as a stage of its own.

Theory of operation
-------------------
Of interchangeable devices (same node, kind and figures) one is tried for all. It joins each of the busiest stages with
the samples that it would be the first to finish, and it takes over layers at either end of each of them, as many as
make the two equally long and one. All of these are timed exactly; the best that fits is the reason. That is a fixed,
small number of plans (:data:`MOST_STAGES` × 5 for each class), no search: "found" in a reason means among these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from math import floor, inf, log10
from typing import Final, NamedTuple

from ignite_scheduler.cost import Assignment, StageChoice, balanced_shares, layer_seconds, resolved_precision
from ignite_scheduler.model import Device, Plan, Unused
from ignite_scheduler.planner.neighbours import evaluated, overfull
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.units import format_memory

MOST_STAGES: Final = 2
"""Stages that an unused device is put into or beside, the busiest first."""

MAX_CLASSES: Final = 24
"""Classes of unused devices for which a plan is made; the others get a shorter reason."""

NOT_FASTER: Final = "no faster plan with it was found"

JOIN_WORK: Final = 40_000
"""Work for all classes together; classes for which none is left get a shorter reason."""

LAYER_WORK: Final = 3
"""Looking up one layer of a plan takes as long as timing so many actions or messages."""


class Joined(NamedTuple):
    """Reasons for devices that are left out, and a plan that is faster with one of them, where one was met."""

    reasons: tuple[Unused, ...]
    better: Assignment | None


class _Place(NamedTuple):
    """The choice with the device in it, and in words what the device does there."""

    assignment: Assignment
    text: str


def joined(request: Request, assignment: Assignment, plan: Plan, work: int = JOIN_WORK) -> Joined:
    """A reason for every allowed device that ``assignment`` leaves out, beside those that the request barred.

    Parameters
    ----------
    plan
        The evaluated plan of the assignment.
    work
        Actions and messages timed at most, and layers looked up, each for :data:`LAYER_WORK` of them.
    """
    held = set(assignment.devices)
    left_out: dict[object, list[Device]] = {}
    for device in request.devices:
        if device.id not in held:
            left_out.setdefault(replace(device, id=""), []).append(device)
    reasons, better, best = list(request.barred), None, plan.predicted.step - TIE
    events = 2 * len(assignment.microbatches) * (2 * len(assignment.stages) + 1)
    events += LAYER_WORK * len(request.problem.profile.layers)
    for position, devices in enumerate(left_out.values()):
        number = min(5 * MOST_STAGES, work // events)
        if position >= MAX_CLASSES or not number:
            text = NOT_FASTER
        elif request.any_of:
            text = "not among the devices that resources.any_of asks for"
        elif _no_room_for_devices(request, assignment):
            text = f"resources.max_devices is {request.max_devices}"
        else:
            work -= number * events
            text, place, step = _tried(request, assignment, plan, devices[0], number)
            if place is not None and step < best:
                better, best = place, step
        reasons += [Unused(device=device.id, reason=text) for device in devices]
    return Joined(tuple(sorted(reasons, key=lambda entry: entry.device)), better)


def _no_room_for_devices(request: Request, assignment: Assignment) -> bool:
    asked = request.problem.job.resources.max_devices
    return asked is not None and len(assignment.devices) >= asked


def _tried(
    request: Request, assignment: Assignment, plan: Plan, device: Device, number: int
) -> tuple[str, Assignment | None, float]:
    """The reason for one device, the best choice with it that fits, and its step."""
    problem = request.problem
    best: tuple[float, _Place] | None = None
    least: tuple[float, str] | None = None
    found = False
    for place in islice(_places(request, assignment, plan, device), number):
        made = evaluated(problem, place.assignment)
        if made is None:
            continue
        found = True
        over = overfull(made)
        if over:
            lack = max((missing, name) for name, missing, _ in over)
            least = lack if least is None else min(least, lack)
        elif best is None or made.predicted.step < best[0]:
            best = made.predicted.step, place
    if best is not None:
        step, place = best
        change = f"a step takes {seconds(step)} instead of {seconds(plan.predicted.step)}"
        return f"{place.text} {change}", place.assignment, step
    if least is not None:
        missing, name = least
        return f"it fits nowhere in the plan: {name} lacks at least {format_memory(missing)}", None, 0.0
    if found or not _has_a_place(request):
        return "the job leaves no place for it beside the plan", None, 0.0
    return "no place for it beside the plan: it has no links to its neighbours there", None, 0.0


def _has_a_place(request: Request) -> bool:
    return request.replicas != 1 or not request.split


def _places(request: Request, assignment: Assignment, plan: Plan, device: Device) -> Iterator[_Place]:
    """Choices with the device in or beside each of the busiest stages."""
    order = sorted(plan.stages, key=lambda stage: (-(stage.forward + stage.backward), stage.index))
    chain = all(stage.inputs is None or stage.inputs == () for stage in assignment.stages)
    more_stages = chain and not request.split and len(assignment.stages) < request.max_stages
    for stage in order[:MOST_STAGES]:
        if request.replicas is None:
            yield from _as_replica(request, assignment, stage.index, device)
        if more_stages and request.replicas in (None, 1):
            for onwards in (True, False):
                yield from _as_stage(request, assignment, stage.index, device, onwards=onwards)


def _as_replica(request: Request, assignment: Assignment, index: int, device: Device) -> Iterator[_Place]:
    """The device as one more of a group, each with the samples that finish first, one at least."""
    stage = assignment.stages[index]
    samples, holders = sum(stage.samples), [*stage.devices, device.id]
    if samples < len(holders):
        return
    clocks = [_clock(request, name, stage.layers, beside=1) for name in holders]
    spare = balanced_shares(samples - len(holders), clocks)
    assert spare is not None
    shares = tuple(share + 1 for share in spare)
    grown = replace(stage, devices=tuple(holders), samples=shares)
    text = f"as one more device of stage {index}, with {shares[-1]} of {samples} samples,"
    yield _Place(_with_stages(assignment, index, (grown,)), text)


def _as_stage(
    request: Request, assignment: Assignment, index: int, device: Device, *, onwards: bool
) -> Iterator[_Place]:
    """The device as a stage after or before another, with layers of that one's end: one, and as many as even it out."""
    stage = assignment.stages[index]
    samples = sum(stage.samples)
    layers = stage.layers[::-1] if onwards else stage.layers  # in the order in which they go over
    if len(layers) < 2:
        return
    mine = accumulate(_clock(request, device.id, (layer,))(samples) for layer in layers)
    shares = list(zip(stage.devices, stage.samples, strict=True))
    theirs = accumulate(max(_clock(request, name, (layer,))(share) for name, share in shares) for layer in layers[::-1])
    pairs = zip(list(mine)[:-1], list(theirs)[-2::-1], strict=True)  # the first one, two, … layers and the others
    evened = max(1, sum(here <= there for here, there in pairs))
    for count in dict.fromkeys((evened, 1)):
        given, left = tuple(sorted(layers[:count])), tuple(sorted(layers[count:]))
        new = StageChoice(
            layers=given,
            devices=(device.id,),
            samples=(samples,),
            recompute=_recompute(stage, given),
            offload=stage.offload and device.host_bandwidth is not None,
        )
        old = replace(stage, layers=left, recompute=_recompute(stage, left))
        pair = (old, new) if onwards else (replace(new, inputs=old.inputs), replace(old, inputs=None))
        noun = "one layer" if count == 1 else f"{count} layers"
        where = f"{'after' if onwards else 'before'} stage {index}"
        yield _Place(_with_stages(assignment, index, pair), f"with {noun} as a stage of its own {where}")


def _recompute(stage: StageChoice, layers: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """What is left of a stage's segments in some of its layers."""
    cut = ((max(first, layers[0]), min(end, layers[-1] + 1)) for first, end in stage.recompute)
    return tuple((first, end) for first, end in cut if first < end)


def _with_stages(assignment: Assignment, index: int, stages: Sequence[StageChoice]) -> Assignment:
    """The choice with other stages in the place of one; of a chain no input has to be renumbered."""
    every = (*assignment.stages[:index], *stages, *assignment.stages[index + 1 :])
    return replace(assignment, stages=every)


def _clock(request: Request, device_id: str, layers: tuple[int, ...], beside: int = 0) -> Callable[[int], float]:
    """Seconds of the layers, both passes, for ``beside`` samples and more on a device; infinite without times."""
    problem = request.problem
    device = problem.cluster.device(device_id)
    precision = resolved_precision(problem.job, problem.profile)

    def clock(samples: int) -> float:
        total = 0.0
        for layer in layers:
            found = layer_seconds(problem.profile, layer, device, beside + samples, precision)
            if found is None:
                return inf
            total += found.forward + found.backward
        return total

    return clock


def seconds(value: float) -> str:
    """Seconds with three figures, trailing zeros kept.

    >>> seconds(10.0), seconds(0.01234), seconds(1234.5)
    ('10.0 s', '0.0123 s', '1230 s')
    """
    if value == 0:
        return "0 s"
    digits = 2 - floor(log10(abs(value)))
    return f"{round(value, digits):.{max(digits, 0)}f} s"
