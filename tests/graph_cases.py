"""Small branching models, and every graph of stages over them, one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations

from hypothesis import strategies as st

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Optimizer, PipelineChoice, Profile
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.problem import Family, families
from ignite_scheduler.planner.weighed import value_of_choice
from planner_cases import clusters, job


def layer(name: str, seconds: float, sources: Sequence[str], *, output: float = 1.0, memory: float = 0.0) -> Layer:
    """A layer with forward : backward = 1 : 2 on kind ``ref``; without sources it reads the sample."""
    return Layer(
        name=name,
        parameter_bytes=memory,
        output_bytes=output,
        activation_bytes=memory,
        times={"ref": {1: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
        inputs=tuple(LayerInput(source=source) for source in sources) or (LayerInput(source=MODEL_INPUT),),
    )


def profile(layers: Sequence[Layer]) -> Profile:
    """A profile of these layers."""
    return Profile(name="graph", precision="fp32", reference="ref", layers=tuple(layers))


def forked(branches: int, length: int, *, seconds: float = 3.0, output: float = 1.0) -> Profile:
    """Branches of equal layers that all read the sample, and one layer that joins them."""
    made = [
        layer(f"b{b}l{i}", seconds, [f"b{b}l{i - 1}"] if i else [], output=output)
        for b in range(branches)
        for i in range(length)
    ]
    return profile([*made, layer("join", seconds, [f"b{b}l{length - 1}" for b in range(branches)], output=output)])


@st.composite
def branching_problems(draw: st.DrawFn, *, most_layers: int, most_devices: int) -> Problem:
    """A small problem over a model in which layers read one or two layers before them."""
    layers = []
    for i in range(draw(st.integers(2, most_layers))):
        sources = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        layers.append(
            layer(
                f"l{i}",
                3.0 * draw(st.integers(0, 4)),
                [f"l{source}" for source in sorted(sources)],
                output=float(draw(st.integers(0, 4))),
                memory=float(draw(st.integers(0, 2))),
            )
        )
    return Problem(
        job=job(
            total=draw(st.integers(1, 4)),
            micro=draw(st.sampled_from([1, 2])),
            pipeline=PipelineChoice(schedule=draw(st.sampled_from(["auto", "1f1b", "gpipe"]))),
            optimizer=Optimizer(name="sgd"),
        ),
        profile=profile(layers),
        cluster=draw(clusters(most_devices)),
    )


def shuffled(problem: Problem, numbers: Sequence[float]) -> tuple[int, ...]:
    """A topological order of the profile's layers, of those that may come next the one with the least number."""
    layers = problem.profile.layers
    position = {each.name: index for index, each in enumerate(layers)}
    sources = [{position[e.source] for e in each.inputs if e.source != MODEL_INPUT} for each in layers]
    order: list[int] = []
    while len(order) < len(layers):
        ready = [i for i in range(len(layers)) if i not in order and sources[i] <= set(order)]
        order.append(min(ready, key=lambda i: (numbers[i], i)))
    return tuple(order)


def partitions(count: int) -> Iterator[list[int]]:
    """For each partition of ``count`` things, the part of each; parts are numbered by their first thing."""
    if not count:
        yield []
        return
    for rest in partitions(count - 1):
        for part in range(max(rest, default=-1) + 2):
            yield [*rest, part]


def graph_of(problem: Problem, family: Family, stage_of: Sequence[int], devices: Sequence[str]) -> Assignment:
    """The choice in which the layers are on these stages, each fed by those that make what it reads."""
    layers = problem.profile.layers
    position = {each.name: index for index, each in enumerate(layers)}
    inputs: list[set[int]] = [set() for _ in devices]
    for index, each in enumerate(layers):
        for edge in each.inputs:
            if edge.source != MODEL_INPUT and stage_of[position[edge.source]] != stage_of[index]:
                inputs[stage_of[index]].add(stage_of[position[edge.source]])
    return Assignment(
        stages=tuple(
            StageChoice(
                layers=tuple(index for index in range(len(layers)) if stage_of[index] == stage),
                devices=(device,),
                samples=(family.samples,),
                inputs=tuple(sorted(inputs[stage])),
            )
            for stage, device in enumerate(devices)
        ),
        microbatches=microbatch_sizes(problem.job.batch.total, family.samples),
        schedule=family.schedule,
    )


def best_graph(problem: Problem) -> float:
    """The least objective over every graph of stages of every family; infinite where none is permitted."""
    best = math.inf
    ids = sorted(device.id for device in problem.cluster.devices)
    for family in families(problem.job):
        for stage_of in partitions(len(problem.profile.layers)):
            for devices in permutations(ids, max(stage_of) + 1):
                try:
                    best = min(best, value_of_choice(problem, graph_of(problem, family, stage_of, devices)))
                except InputError:  # stages in a circle, or devices without a link
                    continue
    return best
