"""Choices next to a choice: one layer over a boundary, one sample within a group, a stage that does less to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ignite_scheduler.cost import Assignment, StageChoice, evaluate
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Plan
from ignite_scheduler.planner.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A choice next to another.

    ``stage`` is the one that gets more to hold; ``text`` says what would happen, to be read after "with more memory";
    ``at_any_price``: worth knowing however much memory it takes.
    """

    assignment: Assignment
    stage: int
    text: str
    at_any_price: bool = False


def evaluated(problem: Problem, assignment: Assignment) -> Plan | None:
    """The plan of a choice; None where it is none, such as for want of a link or of times on a device."""
    try:
        return evaluate(problem.job, problem.profile, problem.cluster, assignment, memory_margin=problem.memory_margin)
    except InputError:
        return None


def overfull(plan: Plan) -> list[tuple[str, float, float]]:
    """Devices that need more than their limit: how many bytes more, and the limit."""
    shares = [share for stage in plan.stages for share in stage.devices]
    return [(s.device, s.memory - s.memory_limit, s.memory_limit) for s in shares if s.memory > s.memory_limit]


def distinct(best: Assignment, others: Sequence[Assignment], most: int) -> tuple[Assignment, ...]:
    """Up to ``most`` of the other choices, in their order: those first that differ in devices or layers.

    A choice that only cuts the batch otherwise than one before it stands for little; it fills what is left.
    """
    known = {_places(best)}
    chosen = []
    for position, other in enumerate(others):
        if _places(other) not in known:
            known.add(_places(other))
            chosen.append(position)
    left = [position for position in range(len(others)) if position not in chosen]
    return tuple(others[position] for position in sorted([*chosen, *left][:most]))


def _places(assignment: Assignment) -> tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]:
    return tuple((stage.layers, stage.devices) for stage in assignment.stages)


def lighter_memory(assignment: Assignment) -> Iterator[Neighbour]:
    """Each stage that recomputes or offloads, without."""
    for index, stage in enumerate(assignment.stages):
        if stage.recompute:
            eased = replace(stage, recompute=())
            yield _changed(assignment, {index: eased}, index, f"stage {index} need not recompute", at_any_price=True)
        if stage.offload:
            eased = replace(stage, offload=False)
            yield _changed(assignment, {index: eased}, index, f"stage {index} need not offload", at_any_price=True)


def shifts(
    assignment: Assignment, names: Sequence[str], busy: Sequence[int], cuts: Sequence[tuple[int, int]]
) -> Iterator[Neighbour]:
    """Less work on busy stages, most binding first, and other places for busy cuts.

    Parameters
    ----------
    names
        Of the layers, by their positions.
    busy
        Stages that should have less to do: a layer goes to a stage beside, a sample to another device of the group.
    cuts
        Pairs of stages between which another boundary may move fewer bytes: a layer goes either way.
    """
    pairs = _boundaries(assignment)
    for stage in busy:
        for source, target in pairs:
            if stage == source:
                yield from _moved(assignment, names, source, target)
            elif stage == target:
                yield from _moved(assignment, names, target, source)
        yield from _dealt(assignment, stage)
    for source, target in cuts:
        if (source, target) in pairs:
            yield from _moved(assignment, names, source, target)
            yield from _moved(assignment, names, target, source)


def _boundaries(assignment: Assignment) -> list[tuple[int, int]]:
    """Pairs of stages of which one alone feeds the other, whose layers follow each other in the profile."""
    found = []
    for target, stage in enumerate(assignment.stages):
        sources = ((target - 1,) if target else ()) if stage.inputs is None else stage.inputs
        if len(sources) == 1 and assignment.stages[sources[0]].layers[-1] + 1 == stage.layers[0]:
            found.append((sources[0], target))
    return found


def _moved(assignment: Assignment, names: Sequence[str], giver: int, taker: int) -> Iterator[Neighbour]:
    """One layer from a stage to the one after or before it, where the giver keeps another."""
    from_stage, to_stage = assignment.stages[giver], assignment.stages[taker]
    if len(from_stage.layers) < 2:
        return
    onwards = from_stage.layers[0] < to_stage.layers[0]
    layer = from_stage.layers[-1 if onwards else 0]
    kept = from_stage.layers[:-1] if onwards else from_stage.layers[1:]
    grown = (layer, *to_stage.layers) if onwards else (*to_stage.layers, layer)
    stages = {giver: _with_layers(from_stage, kept), taker: _with_layers(to_stage, grown)}
    yield _changed(assignment, stages, taker, f"layer {names[layer]!r} of stage {giver} would fit there")


def _with_layers(stage: StageChoice, layers: tuple[int, ...]) -> StageChoice:
    """The stage with other layers: what is recomputed whole stays whole, segments keep what is left of them."""
    whole = stage.recompute == ((stage.layers[0], stage.layers[-1] + 1),)
    if whole:
        return replace(stage, layers=layers, recompute=((layers[0], layers[-1] + 1),))
    cut = [(max(first, layers[0]), min(end, layers[-1] + 1)) for first, end in stage.recompute]
    return replace(stage, layers=layers, recompute=tuple((first, end) for first, end in cut if first < end))


def _dealt(assignment: Assignment, index: int) -> Iterator[Neighbour]:
    """One sample from one device of a group to another."""
    stage = assignment.stages[index]
    for giver, taker in ((g, t) for g in range(len(stage.devices)) for t in range(len(stage.devices)) if g != t):
        if stage.samples[giver] < 2:
            continue
        samples = list(stage.samples)
        samples[giver] -= 1
        samples[taker] += 1
        text = f"a sample of {stage.devices[giver]} would fit there"
        yield _changed(assignment, {index: replace(stage, samples=tuple(samples))}, index, text)


def _changed(
    assignment: Assignment, stages: dict[int, StageChoice], stage: int, text: str, *, at_any_price: bool = False
) -> Neighbour:
    every = tuple(stages.get(index, one) for index, one in enumerate(assignment.stages))
    changed = replace(assignment, stages=every)
    return Neighbour(assignment=changed, stage=stage, text=text, at_any_price=at_any_price)
