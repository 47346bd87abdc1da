"""Graphs of stages for branching models: branches side by side, so that the pipeline is shallower.

Theory of operation
-------------------
1. The layers are put in an order that depends on the graph and on names only; so does all that follows, and another
   listing of the same model gives the same plan.
2. A tiny model on few devices: every graph of stages is timed, and the best is proven.
3. Otherwise layers are put together to some tens of atoms (:mod:`.atoms`). First graphs come from packing the branches
   under caps (:mod:`.starts`); the best are improved by local search on the exact step time (:mod:`.moves`), then again
   over finer atoms.
4. The best few go through the full timeline, with shared wires, tied weights and exact memory.

The bound covers every graph of stages, chains included: pace and fill (:mod:`.bound`), and where a graph is better than
what was known, the stages along the heaviest path of layers (:mod:`.trunk`).

References
----------
B. Jeon et al., "GraphPipe: Improving Performance and Scalability of DNN Training with Graph Pipeline Parallelism",
ASPLOS 2025: graphs of stages, series-parallel decomposition, in-flight microbatches by depth. We search unlike devices
on an exact timeline instead of a dynamic program over equal ones, with one device a stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Infeasible
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.graphs.atoms import Atoms, coarsened
from ignite_scheduler.planner.graphs.bound import graph_bound
from ignite_scheduler.planner.graphs.dag import Tensor, branches, by_branch, reordered, tensors_of
from ignite_scheduler.planner.graphs.field import Field, field_of
from ignite_scheduler.planner.graphs.moves import every_graph, improved
from ignite_scheduler.planner.graphs.starts import decomposed, parts_of, starts
from ignite_scheduler.planner.graphs.timing import graph_value, make_graph
from ignite_scheduler.planner.graphs.trunk import raised
from ignite_scheduler.planner.instance import Arrays
from ignite_scheduler.planner.problem import Family, Problem
from ignite_scheduler.planner.request import Request
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.tree import TIE
from ignite_scheduler.planner.weighed import value_of_choice

COARSE, FINE = 40, 160
"""Atoms of the first search and of the second."""

MOST_DEVICES = 16
"""Of more devices the fastest of each kind in turn are looked at."""

EVERY = 60_000
"""Graphs of stages of all families that are timed one by one at most."""

SHARE_OF_WORK = 120
"""Graphs timed for the problem's work: one takes longer than a pipeline."""

SHARE_OF_PROOF = 200
"""The bound on graphs takes one part in so many of the problem's work, where a graph is better than all else."""

WORK_ACTIONS = 256
"""Timing a graph counts 1, and 1 more for each that many actions."""

CLIMBED, REFINED, JUDGED = 3, 3, 8
"""First graphs of a family that are improved, graphs that are refined, and those that the full timeline decides."""

HOPEFUL = 1.25
"""Families whose first graphs are worse than the best by more than this are not improved."""

HEATS = (0.03, 0.2, 0.08)
"""By what share graphs may get worse on the way: each climb its own, since models differ in what they need."""

SEED = 12345


class _Shape(NamedTuple):
    """A graph of stages by layers, with its objective as the search sees it."""

    value: float
    family: Family
    stage_of: tuple[int, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """The problem in its canonical order. ``whole``: all devices that may be used are looked at."""

    setup: Setup
    order: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    device_ids: tuple[str, ...]
    whole: bool


@dataclass(slots=True)
class _State:
    """Shapes met, the work done, and what nothing goes below."""

    budget: int
    work: int = 0
    shapes: list[_Shape] = field(default_factory=list)
    bound: float = math.inf
    sketches: list[tuple[float, Family, Arrays]] = field(default_factory=list)

    @property
    def value(self) -> float:
        return min((shape.value for shape in self.shapes), default=math.inf)


def search(problem: Problem, request: Request, incumbent: Assignment | None) -> Found:
    """The best graph of stages, one device a stage, for a branching model; nothing where the request wants a chain.

    ``incumbent``, a plan without replicas or memory actions, is one more start. Without it what is found does not
    depend on the order in which the profile lists its layers.
    """
    free = request.straight and not request.split and problem.job.pipeline.stages == "auto"
    if not free or not branches(problem.profile):
        return Found(best=None)
    world = _world(problem)
    if world is None:
        return Found(best=None)
    state = _State(budget=max(1, problem.work // SHARE_OF_WORK))
    complete = _enumerated(world, state) if _tiny(world) else False
    if not complete:
        _look(world, state, _of_incumbent(world, incumbent))
    found = _settled(problem, world, state, complete)
    beaten = math.inf if incumbent is None else _value(problem, incumbent)
    if found.best is None or not state.sketches or found.value >= beaten - TIE:
        return found
    bound, work = raised(world.setup, state.sketches, world.tensors, found.value, problem.work // SHARE_OF_PROOF)
    bound = max(found.bound, min(bound, found.value))
    return replace(found, bound=bound if world.whole else 0.0, work=found.work + work)


def _world(problem: Problem) -> _World | None:
    order = by_branch(problem.profile)
    problem = replace(problem, profile=reordered(problem.profile, order))
    setup = prepare(problem)
    if isinstance(setup, Infeasible):
        return None
    members = setup.classes.members
    whole = sum(map(len, members)) <= MOST_DEVICES and not setup.narrowed
    if sum(map(len, members)) > MOST_DEVICES:
        turns = sorted((place, c, device) for c, devices in enumerate(members) for place, device in enumerate(devices))
        problem = replace(problem, devices=tuple(device for _, _, device in turns[:MOST_DEVICES]))
        setup = prepare(problem)
        if isinstance(setup, Infeasible):
            return None
    return _World(
        setup=setup,
        order=order,
        tensors=tensors_of(problem.profile),
        device_ids=tuple(device for devices in setup.classes.members for device in devices),
        whole=whole,
    )


def _tiny(world: _World) -> bool:
    """Whether every graph of stages can be timed: partitions of the layers times choices of devices, all families."""
    layers, devices = len(world.order), len(world.device_ids)
    rows = [[1]]  # Stirling numbers of the second kind
    for n in range(1, layers + 1):
        if n > 10:
            return False
        last = rows[-1]
        rows.append([0, *((k * last[k] if k < len(last) else 0) + last[k - 1] for k in range(1, n + 1))])
    graphs: int = sum(count * devices**stages for stages, count in enumerate(rows[-1]) if stages <= devices)
    return graphs * len(world.setup.families) <= EVERY


def _enumerated(world: _World, state: _State) -> bool:
    """Time every graph of stages; whether that proves the best of them."""
    atoms: Atoms = tuple((layer,) for layer in range(len(world.order)))
    for family in world.setup.families:
        arrays = world.setup.arrays(family)
        known = _field(world, family, arrays, atoms)
        graph = make_graph(known.max_stages + 1, known.num_microbatches)
        stage_of = np.zeros(len(atoms), np.int64)
        device_of = np.zeros(known.max_stages + 1, np.int64)
        n, value = every_graph(known, graph, stage_of, device_of)
        state.work += EVERY // len(world.setup.families)
        if n:
            state.shapes.append(_shape(world, family, atoms, value, n, stage_of, device_of))
    profile = world.setup.problem.profile
    plain = all(layer.carried_bytes == layer.transient_bytes == 0 for layer in profile.layers)
    state.bound = 0.0 if profile.tied else state.value
    return bool(plain and not profile.tied and not world.setup.classes.contended and state.shapes)


def _look(world: _World, state: _State, known: _Shape | None) -> None:
    """First graphs and local search, family by family, then over finer atoms."""
    sketches = []
    for family in world.setup.families:
        arrays = world.setup.arrays(family)
        bound = world.setup.as_value(graph_bound(world.setup, arrays, family, world.tensors))
        sketches.append((bound, family, arrays))
    sketches.sort(key=lambda sketch: sketch[0])
    state.bound, state.sketches = sketches[0][0], sketches
    begun = []
    for bound, family, arrays in sketches:
        if bound > state.value + TIE or (state.shapes and state.work >= state.budget // 3):
            break
        begun.append(_begin(world, state, family, arrays))
    for climb in begun:
        if climb.first and climb.first[0].value <= HOPEFUL * state.value:
            _climb(world, state, climb, climb.first[:CLIMBED], state.budget // (2 * len(begun)), 0)
    _refine(world, state, {family: arrays for _, family, arrays in sketches}, known)


def _refine(world: _World, state: _State, arrays_of: dict[Family, Arrays], known: _Shape | None) -> None:
    """Improve the best shapes over finer atoms, under every schedule of their microbatches."""
    best = sorted(set(state.shapes))[:REFINED] + ([] if known is None else [known])
    tried = {
        (shape.stage_of, shape.devices, family): shape._replace(family=family)
        for shape in best
        for family in arrays_of
        if family.samples == shape.family.samples
    }
    made: dict[tuple[tuple[int, ...], int], Atoms] = {}  # the schedule changes nothing about them
    for turn, shape in enumerate(tried.values()):
        arrays = arrays_of[shape.family]
        key = (shape.stage_of, shape.family.samples)
        if key not in made:
            made[key] = coarsened(_work(arrays), world.tensors, FINE, shape.stage_of)
        atoms = made[key]
        finer = _Climb(shape.family, atoms, _field(world, shape.family, arrays, atoms), [shape])
        _climb(world, state, finer, [shape], state.budget // (2 * len(tried)), turn)


def _of_incumbent(world: _World, incumbent: Assignment | None) -> _Shape | None:
    """A plan of another search as a shape; None where it has what this search does not, or other devices."""
    if incumbent is None:
        return None
    stages, sizes = incumbent.stages, incumbent.microbatches
    plain = all(len(s.devices) == 1 and not (s.recompute or s.offload or s.shard) for s in stages)
    held = [stage.devices[0] for stage in stages]
    family = Family(incumbent.schedule, sizes[0], len(sizes), sizes[-1])
    if not plain or not set(held) <= set(world.device_ids) or family not in world.setup.families:
        return None
    stage_of = {layer: index for index, stage in enumerate(stages) for layer in stage.layers}
    return _Shape(math.inf, family, tuple(stage_of[layer] for layer in world.order), tuple(held))


class _Climb(NamedTuple):
    """A family over coarse atoms with its first graphs, the best first."""

    family: Family
    atoms: Atoms
    known: Field
    first: list[_Shape]


def _begin(world: _World, state: _State, family: Family, arrays: Arrays) -> _Climb:
    """The first graphs of one family."""
    atoms = coarsened(_work(arrays), world.tensors, COARSE)
    known = _field(world, family, arrays, atoms)
    graph = make_graph(known.max_stages + 1, known.num_microbatches)
    found = set()
    for stage_of, device_of, n in starts(known, decomposed(known.reach, range(len(atoms)))):
        state.work += _cost(known, n)
        value = graph_value(known, graph, n, stage_of, device_of)
        if value < math.inf:
            found.add(_shape(world, family, atoms, value, n, stage_of, device_of))
    first = sorted(found)
    state.shapes += first[:CLIMBED]
    return _Climb(family, atoms, known, first)


def _climb(world: _World, state: _State, climb: _Climb, shapes: Sequence[_Shape], budget: int, turn: int) -> None:
    """Improve each of the shapes with an equal share of the budget."""
    known = climb.known
    graph = make_graph(known.max_stages + 1, known.num_microbatches)
    for place, shape in enumerate(shapes):
        rounds = max(1, budget // len(shapes) // _cost(known, len(shape.devices)))
        stage_of = np.array([shape.stage_of[atom[0]] for atom in climb.atoms], dtype=np.int64)
        device_of = np.zeros(known.max_stages + 1, np.int64)
        n = len(shape.devices)
        device_of[:n] = [world.device_ids.index(device) for device in shape.devices]
        value = graph_value(known, graph, n, stage_of, device_of)
        if value == math.inf:  # the bytes here are those at most, and an incumbent may be at its limit
            continue
        seed = np.array([SEED + place], dtype=np.int64)
        heat = HEATS[(turn + place) % len(HEATS)]
        n, value = improved(known, graph, n, stage_of, device_of, value, rounds, heat, seed)
        state.work += rounds * _cost(known, n)
        state.shapes.append(_shape(world, climb.family, climb.atoms, value, n, stage_of, device_of))


def _work(arrays: Arrays) -> list[float]:
    """Seconds of each layer on its fastest device."""
    return [float(seconds) for seconds in np.diff(arrays.forward[:, 0] + arrays.backward[:, 0], axis=1).min(axis=0)]


def _field(world: _World, family: Family, arrays: Arrays, atoms: Atoms) -> Field:
    known = field_of(world.setup, family, arrays, atoms, world.tensors, (), len(world.device_ids))
    line = decomposed(known.reach, range(len(atoms)))
    return known._replace(parts=np.ascontiguousarray(parts_of(line, len(atoms))))


def _cost(known: Field, n: int) -> int:
    """Work of timing one graph of n stages."""
    return 1 + (2 * n * known.num_microbatches + len(known.kept)) // WORK_ACTIONS


def _shape(world: _World, family: Family, atoms: Atoms, value: float, n: int, stage_of: Any, device_of: Any) -> _Shape:
    """The shape in layers; stages by their first layer."""
    by_layer = [0] * len(world.order)
    for atom, stage in zip(atoms, stage_of, strict=True):
        for layer in atom:
            by_layer[layer] = int(stage)
    numbers = {stage: place for place, stage in enumerate(dict.fromkeys(by_layer))}
    devices = [world.device_ids[int(device_of[stage])] for stage in numbers]
    assert len(devices) == n
    return _Shape(float(value), family, tuple(numbers[stage] for stage in by_layer), tuple(devices))


def assignment_of(world: _World, shape: _Shape) -> Assignment:
    """The shape as a choice over the profile's own positions; stages in a topological order."""
    n = len(shape.devices)
    inputs: list[set[int]] = [set() for _ in range(n)]
    for tensor in world.tensors:
        source = shape.stage_of[tensor.producer]
        for reader, _ in tensor.readers:
            if shape.stage_of[reader] != source:
                inputs[shape.stage_of[reader]].add(source)
    place: dict[int, int] = {}
    while len(place) < n:
        place[next(s for s in range(n) if s not in place and inputs[s] <= place.keys())] = len(place)
    samples = min(shape.family.samples, world.setup.problem.job.batch.total)
    layers: list[list[int]] = [[] for _ in range(n)]
    for layer, stage in enumerate(shape.stage_of):
        layers[stage].append(world.order[layer])
    chain = all(inputs[s] == {t for t in place if place[t] == place[s] - 1} for s in place)
    return Assignment(
        stages=tuple(
            StageChoice(
                layers=tuple(sorted(layers[s])),
                devices=(shape.devices[s],),
                samples=(samples,),
                inputs=None if chain else tuple(sorted(place[source] for source in inputs[s])),
            )
            for s in sorted(place, key=place.__getitem__)
        ),
        microbatches=microbatch_sizes(world.setup.problem.job.batch.total, shape.family.samples),
        schedule=shape.family.schedule,
    )


def _settled(problem: Problem, world: _World, state: _State, complete: bool) -> Found:
    """The best of the shapes met, by the full timeline and exact memory."""
    judged = []
    for shape in sorted(set(state.shapes))[:JUDGED]:
        assignment = assignment_of(world, shape)
        value = _value(problem, assignment)
        if value < math.inf:
            judged.append(((value, len(assignment.devices), assignment.devices), assignment))
    if not judged:
        return Found(best=None, work=state.work)
    judged.sort(key=lambda entry: entry[0])
    (value, *_), best = judged[0]
    return Found(
        best=best,
        value=value,
        bound=min(state.bound, value),
        method="every graph of stages timed"
        if complete
        else "local search over graphs of stages; bound: pace and fill",
        complete=complete,
        others=tuple(assignment for _, assignment in judged[1:]),
        work=state.work,
    )


def _value(problem: Problem, assignment: Assignment) -> float:
    """The objective by the full timeline; infinite where a device has too little memory or no link."""
    try:
        return value_of_choice(problem, assignment)
    except InputError:
        return math.inf
