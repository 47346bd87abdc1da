"""Which stage feeds which, what goes over each edge between them, and who holds a layer: the shape of a choice.

Stages that are joined by edges are one *worker*: usually there is one, and every microbatch goes through it whole. Of
virtual workers there are several; each of them holds the same layers and sees its part of every microbatch. A worker
is a *chain* where each of its stages feeds at most one and is fed by at most one. Along a chain a tensor goes from hop
to hop until the last stage that reads it; in any other graph it goes straight from the stage that makes it to each
stage that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ignite_scheduler.cost.choice import Assignment, StageChoice
from ignite_scheduler.cost.communication import hop_bytes, tensors_read
from ignite_scheduler.cost.replicas import last_shares
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Profile
from ignite_scheduler.pipeline import graph_depths


class Route(NamedTuple):
    """Activations from stage ``source`` to ``target``, in the profile's bytes for one sample."""

    source: int
    target: int
    sample_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Stages that are joined by edges, their layers (both rising), and their part of a full microbatch."""

    stages: tuple[int, ...]
    layers: tuple[int, ...]
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The shape of a choice.

    ``inputs`` and ``depths`` are by stage: which stages feed it, and how many stages there are on the longest way from
    it to the end. ``routes`` are sorted by their ends. ``holders`` are the stages that hold each layer.
    """

    inputs: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]
    workers: tuple[Worker, ...]
    routes: tuple[Route, ...]
    holders: tuple[tuple[int, ...], ...]

    @property
    def is_chain(self) -> bool:
        """Whether stage 0 feeds stage 1, that feeds stage 2, and so on to the last."""
        return all(sources == ((stage - 1,) if stage else ()) for stage, sources in enumerate(self.inputs))

    def worker_samples(self, samples: int) -> tuple[int, ...]:
        """Each worker's part of a microbatch of ``samples``, which may be smaller than a full one.

        Workers that hold the same layers share it as :func:`~ignite_scheduler.cost.replicas.last_shares` says.
        """
        alike: dict[int, list[int]] = {}
        for index, worker in enumerate(self.workers):
            alike.setdefault(worker.layers[0], []).append(index)
        found = [0] * len(self.workers)
        for indices in alike.values():
            parts = last_shares([self.workers[index].samples for index in indices], samples)
            for index, part in zip(indices, parts, strict=True):
                found[index] = part
        return tuple(found)


def topology(profile: Profile, assignment: Assignment) -> Topology:
    """The shape of the choice, checked against the model.

    Raises
    ------
    InputError
        A layer is missing, or its stages do not get all samples; stages feed each other in a circle; a stage reads a
        tensor that no stage brings it; a device comes twice; a segment is outside its stage.
    """
    stages = assignment.stages
    _check_stages(profile, assignment)
    inputs = tuple(_inputs(index, stage) for index, stage in enumerate(stages))
    depths = graph_depths(inputs)
    holders = _holders(profile, stages)
    workers = tuple(_worker(stages, members) for members in _joined(inputs))
    _check_workers(profile, workers, assignment.microbatches[0])
    routes = [route for worker in workers for route in _routes(profile, stages, inputs, worker)]
    return Topology(inputs=inputs, depths=depths, workers=workers, routes=tuple(sorted(routes)), holders=holders)


def _inputs(index: int, stage: StageChoice) -> tuple[int, ...]:
    if stage.inputs is None:
        return (index - 1,) if index else ()
    if len(set(stage.inputs)) != len(stage.inputs):
        raise InputError(f"stage {index} names one of its inputs twice: {stage.inputs}")
    return stage.inputs


def _check_stages(profile: Profile, assignment: Assignment) -> None:
    if min(assignment.microbatches, default=0) < 1:
        raise InputError(f"each microbatch needs at least 1 sample; found {assignment.microbatches}")
    seen: dict[str, int] = {}
    for index, stage in enumerate(assignment.stages):
        if not stage.layers or sorted(set(stage.layers)) != list(stage.layers):
            raise InputError(f"expected the layers of stage {index} to rise, at least one; found {stage.layers}")
        if stage.layers[0] < 0 or stage.layers[-1] >= len(profile.layers):
            raise InputError(
                f"stage {index} has layers {stage.layers}, but the profile's are 0 to {len(profile.layers) - 1}"
            )
        if not stage.devices or len(stage.samples) != len(stage.devices) or min(stage.samples) < 1:
            raise InputError(
                f"expected at least one device on stage {index} and at least 1 sample for each of them; "
                f"found devices {stage.devices} and samples {stage.samples}"
            )
        for device in stage.devices:
            if seen.setdefault(device, index) != index or stage.devices.count(device) > 1:
                raise InputError(
                    f"expected every device on one stage once; found {device!r} on stage {seen[device]} and "
                    f"on stage {index}"
                )
        _check_segments(index, stage)


def _check_segments(index: int, stage: StageChoice) -> None:
    last = -1
    for first, end in stage.recompute:
        if first < last or end <= first or first not in stage.layers or end - 1 not in stage.layers:
            raise InputError(
                f"expected segments to recompute on stage {index} to rise, each (first, end) from one of its layers to "
                f"behind another; found {stage.recompute} among layers {stage.layers[0]} to {stage.layers[-1]}"
            )
        last = end


def _holders(profile: Profile, stages: Sequence[StageChoice]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in profile.layers]
    for index, stage in enumerate(stages):
        for layer in stage.layers:
            found[layer].append(index)
    for layer, holding in enumerate(found):
        if not holding:
            raise InputError(
                f"a choice gives each of the {len(profile.layers)} layers to a stage; "
                f"found none for {profile.layers[layer].name!r}"
            )
    return tuple(map(tuple, found))


def _joined(inputs: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Stages that edges join, in whatever direction, in order of the first of each."""
    neighbours: list[set[int]] = [set(sources) for sources in inputs]
    for stage, sources in enumerate(inputs):
        for source in sources:
            neighbours[source].add(stage)
    found: list[list[int]] = []
    seen: set[int] = set()
    for stage in range(len(inputs)):
        if stage in seen:
            continue
        members = [stage]
        seen.add(stage)
        for member in members:  # grows while it is walked
            news = sorted(neighbours[member] - seen)
            seen.update(news)
            members += news
        found.append(sorted(members))
    return found


def _worker(stages: Sequence[StageChoice], members: Sequence[int]) -> Worker:
    totals = [sum(stages[index].samples) for index in members]
    if len(set(totals)) > 1:
        raise InputError(
            f"stages {', '.join(map(str, members))} feed each other, so they see equally many samples; found {totals}"
        )
    layers = sorted(layer for index in members for layer in stages[index].layers)
    return Worker(stages=tuple(members), layers=tuple(layers), samples=totals[0])


def _check_workers(profile: Profile, workers: Sequence[Worker], full: int) -> None:
    """Each layer once in a worker, on workers that hold the same layers and see all samples together."""
    totals: dict[int, int] = {}
    owners: dict[int, Worker] = {}
    for worker in workers:
        for layer, following in pairwise(worker.layers):
            if layer == following:
                name = profile.layers[layer].name
                raise InputError(f"expected layer {name!r} on one of stages {worker.stages}; found it on two of them")
        for layer in worker.layers:
            owner = owners.setdefault(layer, worker)
            if owner is not worker and owner.layers != worker.layers:
                raise InputError(
                    f"virtual workers hold the same layers each: stages {owner.stages} have {len(owner.layers)}, "
                    f"stages {worker.stages} share some of them but have {len(worker.layers)}"
                )
        totals[worker.layers[0]] = totals.get(worker.layers[0], 0) + worker.samples
    for layer, total in totals.items():
        if total != full:
            name = profile.layers[layer].name
            raise InputError(f"the stages with layer {name!r} share a microbatch of {full} samples; found {total}")


def _routes(
    profile: Profile, stages: Sequence[StageChoice], inputs: Sequence[tuple[int, ...]], worker: Worker
) -> list[Route]:
    """What goes over each edge of one worker, which may carry nothing and still make its target wait."""
    stage_of = {layer: stage for stage in worker.stages for layer in stages[stage].layers}
    read = tensors_read(profile, stage_of)
    line = _line(inputs, worker)
    if line is not None:
        position = {stage: index for index, stage in enumerate(line)}
        for producer, reader in read:
            if position[stage_of[producer]] > position[reader]:
                raise InputError(_not_brought(profile, producer, stage_of[producer], reader))
        hops = hop_bytes(read, stage_of, position)
        return [
            Route(source, target, num_bytes)
            for source, target, num_bytes in zip(line[:-1], line[1:], hops, strict=True)
        ]
    carried = {(source, stage): 0.0 for stage in worker.stages for source in inputs[stage]}
    for (producer, reader), num_bytes in read.items():
        edge = stage_of[producer], reader
        if edge not in carried:
            raise InputError(_not_brought(profile, producer, *edge))
        carried[edge] += num_bytes
    return [Route(source, target, num_bytes) for (source, target), num_bytes in carried.items()]


def _not_brought(profile: Profile, producer: int, source: int, target: int) -> str:
    name = profile.layers[producer].name
    return f"stage {target} reads {name!r} of stage {source}, which is not among its inputs: expected it there"


def _line(inputs: Sequence[tuple[int, ...]], worker: Worker) -> tuple[int, ...] | None:
    """The stages of a worker from first to last where it is a chain; None where it is not."""
    following: Mapping[int, int] = {source: stage for stage in worker.stages for source in inputs[stage]}
    num_edges = sum(len(inputs[stage]) for stage in worker.stages)
    starts = [stage for stage in worker.stages if not inputs[stage]]
    if len(starts) != 1 or len(following) != num_edges or num_edges != len(worker.stages) - 1:
        return None
    line = [starts[0]]
    while line[-1] in following:
        line.append(following[line[-1]])
    return tuple(line) if len(line) == len(worker.stages) else None
