"""Models of very many layers: planned in runs of neighbouring layers, with finer runs where the cuts are.

Theory of operation
-------------------
Searches take time and memory with the square of the number of layers. So a model of thousands is planned as one of
:data:`MOST_RUNS` runs of layers, each of about the same work and beginning where few bytes cross. The plan's cuts are
looked at again with finer runs around them and coarse ones elsewhere, until single layers stand at each cut. Every
plan met is timed and weighed on the real layers; the bound is that of :func:`ignite_scheduler.planner.pace.least_step`
on the real layers.

Memory of a chain's run is exact; tied layers stay runs of their own, so that no copy is counted twice or not at all.
Times that were measured at different numbers of samples are approximate: they guide the search and are not in the
figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

from ignite_scheduler.cost import Assignment, StageChoice, layer_seconds, resolved_precision
from ignite_scheduler.model import MODEL_INPUT, Infeasible, Layer, LayerInput, LayerTimes, Profile
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.pace import least_step
from ignite_scheduler.planner.problem import Problem
from ignite_scheduler.planner.request import Request, requested
from ignite_scheduler.planner.weighed import value_of_choice

MOST_LAYERS: Final = 300
"""Models of more layers are planned in runs."""

MOST_RUNS: Final = 80
"""Runs of layers that a model is planned in."""

ROUNDS: Final = 6
"""How often the model is planned, each time with finer runs around the cuts of the plan before."""

Starts = tuple[int, ...]
"""First layers of the runs, and at last the number of layers."""

Search = Callable[[Request, Assignment | None], Found | Infeasible]


def search_in_runs(request: Request, search: Search, known: Assignment | None = None) -> Found | Infeasible:
    """What ``search`` finds of a model of very many layers, in runs of layers; a refusal is of the first runs.

    Parameters
    ----------
    search
        Takes a request over runs and, where there is one, the best chain so far over them: what it has to beat.
    known
        A chain that is known already: its cuts are among the first. Nothing is found where none is better.

    Notes
    -----
    A refusal for want of memory is no proof: with finer runs there may be a plan. It says so and names no shortfall.
    """
    problem, size = request.problem, len(request.problem.profile.layers)
    if known is not None and any(stage.layers != _run(stage.layers) for stage in known.stages):
        known = None  # of another order of layers
    cell = -(-size // MOST_RUNS)
    starts = _spread(request, () if known is None else _cuts(known), 0)
    best: Found | None = None
    least = known
    refusal: Infeasible | None = None
    work = 0
    for _ in range(ROUNDS):
        asked = requested(merged(problem, starts))
        beaten = None if least is None else over_runs(least, starts)
        found = asked if isinstance(asked, Infeasible) else search(asked, beaten)
        if isinstance(found, Infeasible):
            refusal = found
            break
        work += found.work
        if found.best is not None:
            choice = unmerged(found.best, starts)
            value = value_of_choice(problem, choice)
            if best is None or value < best.value:
                least = choice
                best = Found(best=choice, value=value, others=tuple(unmerged(other, starts) for other in found.others))
        if least is None:
            break
        cuts = _cuts(least)
        if cell == 1 or not cuts or request.split:
            break
        starts, cell = _spread(request, cuts, 2 * cell), -(-4 * cell // _runs_at(cuts))
    if best is None and known is not None:
        return Found(best=None, work=work)
    if best is None or best.value == math.inf:
        return refusal if refusal is not None and refusal.code != "memory" else _not_proven(len(starts) - 1)
    bound = least_step(request) if problem.objective == "time" else 0.0
    return replace(best, bound=bound, method=f"{size} layers in runs, finer at the cuts", work=work)


def _not_proven(count: int) -> Infeasible:
    return Infeasible(
        code="memory",
        text=f"no plan was found with the layers in {count} runs; with so many it is not proven that there is none",
        cures=("more memory on the allowed devices", "allow or add another device", "smaller microbatches"),
    )


def merged(problem: Problem, starts: Starts) -> Problem:
    """The problem with each run of layers as one layer; a split of the job counts runs."""
    pipeline = problem.job.pipeline
    if pipeline.split != "auto":
        position = {start: index for index, start in enumerate(starts)}
        ends = [position[end] for end in accumulate(pipeline.split, initial=0)]
        pipeline = replace(pipeline, split=tuple(b - a for a, b in pairwise(ends)))
    return replace(
        problem, profile=_merged_profile(problem.profile, starts), job=replace(problem.job, pipeline=pipeline)
    )


def unmerged(assignment: Assignment, starts: Starts) -> Assignment:
    """A choice over runs as one over the layers in them."""

    def stage(choice: StageChoice) -> StageChoice:
        layers = tuple(layer for run in choice.layers for layer in range(starts[run], starts[run + 1]))
        return replace(choice, layers=layers, recompute=tuple((starts[a], starts[b]) for a, b in choice.recompute))

    return replace(assignment, stages=tuple(stage(choice) for choice in assignment.stages))


def over_runs(assignment: Assignment, starts: Starts) -> Assignment:
    """A choice over layers, whose cuts are between runs, as one over the runs."""
    run = {start: index for index, start in enumerate(starts)}

    def stage(choice: StageChoice) -> StageChoice:
        layers = tuple(range(run[choice.layers[0]], run[choice.layers[-1] + 1]))
        return replace(choice, layers=layers, recompute=tuple((run[a], run[b]) for a, b in choice.recompute))

    return replace(assignment, stages=tuple(stage(choice) for choice in assignment.stages))


def _merged_profile(profile: Profile, starts: Starts) -> Profile:
    run_of = [run for run, (a, b) in enumerate(pairwise(starts)) for _ in range(a, b)]
    names = {layer.name: profile.layers[starts[run_of[index]]].name for index, layer in enumerate(profile.layers)}
    inputs = _merged_inputs(profile, run_of)
    layers = tuple(
        _merged_layers(profile.layers[a:b], read) for (a, b), read in zip(pairwise(starts), inputs, strict=True)
    )
    tied = tuple(tuple(names[name] for name in group) for group in profile.tied)
    return replace(profile, layers=layers, tied=tied)


def _merged_layers(layers: Sequence[Layer], inputs: tuple[LayerInput, ...]) -> Layer:
    """Layers as one, under the first one's name."""
    kept = highest = 0.0
    for layer in layers:
        kept += layer.activation_bytes
        highest = max(highest, kept + layer.transient_bytes)
    forward, backward = ([getattr(layer, f"{part}_flops") for layer in layers] for part in ("forward", "backward"))
    return Layer(
        name=layers[0].name,
        parameter_bytes=sum(layer.parameter_bytes for layer in layers),
        output_bytes=layers[-1].output_bytes,
        activation_bytes=kept,
        carried_bytes=layers[-1].carried_bytes,
        transient_bytes=highest - kept,
        workspace_bytes=max(layer.workspace_bytes for layer in layers),
        forward_flops=None if None in forward else sum(forward),
        backward_flops=None if None in backward else sum(backward),
        times=_merged_times(layers),
        inputs=inputs,
        update={
            name: sum(layer.update.get(name, 0.0) for layer in layers)
            for name in sorted({name for layer in layers for name in layer.update})
        },
    )


def _merged_times(layers: Sequence[Layer]) -> dict[str, dict[int, LayerTimes]]:
    """Sums at the kinds and numbers of samples at which all of the layers were measured."""
    kinds = [kind for kind in layers[0].times if all(kind in layer.times for layer in layers)]
    found: dict[str, dict[int, LayerTimes]] = {}
    for kind in kinds:
        tables = [layer.times[kind] for layer in layers]
        sizes = [size for size in tables[0] if all(size in table for table in tables)]
        if sizes:
            found[kind] = {
                size: LayerTimes(
                    forward=sum(table[size].forward for table in tables),
                    backward=sum(table[size].backward for table in tables),
                )
                for size in sizes
            }
    return found


def _merged_inputs(profile: Profile, run_of: Sequence[int]) -> list[tuple[LayerInput, ...]]:
    """What each run reads from outside, by run that it comes from: all that it or a later run reads of that one.

    So a cut before the run costs what it does between the layers: each tensor once, for all its readers behind the cut.
    """
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    count = run_of[-1] + 1
    model_input = [False] * count
    read: dict[int, dict[int, float]] = {}  # by tensor's layer: runs that read it, and how much
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source == MODEL_INPUT:
                model_input[run_of[index]] = True
            elif run_of[position[edge.source]] < run_of[index]:
                source = position[edge.source]
                whole = profile.layers[source].output_bytes if edge.bytes is None else edge.bytes
                runs = read.setdefault(source, {})
                runs[run_of[index]] = max(runs.get(run_of[index], 0.0), whole)
    sums: list[dict[int, float]] = [{} for _ in range(count)]
    readers: dict[int, set[int]] = {}
    for source, runs in read.items():
        readers.setdefault(run_of[source], set()).update(runs)
    for source, runs in read.items():
        for run in readers[run_of[source]]:
            behind = max((num_bytes for reader, num_bytes in runs.items() if reader >= run), default=0.0)
            sums[run][run_of[source]] = sums[run].get(run_of[source], 0.0) + behind
    first = [profile.layers[run_of.index(run)].name for run in range(count)]
    return [
        (
            *([LayerInput(source=MODEL_INPUT)] if model_input[run] else []),
            *(LayerInput(source=first[source], bytes=sums[run][source]) for source in sorted(sums[run])),
        )
        for run in range(count)
    ]


def _run(layers: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(layers[0], layers[-1] + 1))


def _cuts(assignment: Assignment) -> tuple[int, ...]:
    """Layers with which a stage begins, 0 apart."""
    return tuple(sorted({stage.layers[0] for stage in assignment.stages} - {0}))


def _spread(request: Request, cuts: Sequence[int], reach: int) -> Starts:
    """First layers of the runs: evenly by work, half of them within ``reach`` of given cuts, and what must be there.

    A split of the job leaves no choice of cuts.
    """
    profile, size = request.problem.profile, len(request.problem.profile.layers)
    wanted = {0, size, *cuts, *(request.cuts if request.split else ())}
    for name in (name for group in profile.tied for name in group):
        wanted |= {profile.index(name), profile.index(name) + 1}
    if not request.split:
        work, crossing = _work(request), _crossing(profile)
        even = MOST_RUNS // 2 if reach else MOST_RUNS
        wanted |= _evenly(0, size, even, work, crossing)
        for cut in cuts:
            first, end = max(0, cut - reach), min(size, cut + reach)
            wanted |= _evenly(first, end, _runs_at(cuts), work, crossing)
    return tuple(sorted(wanted))


def _runs_at(cuts: Sequence[int]) -> int:
    """Runs around each cut: their width is at least halved from round to round."""
    return max(8, MOST_RUNS // (2 * len(cuts)))


def _evenly(first: int, end: int, count: int, work: Sequence[float], crossing: Sequence[float]) -> set[int]:
    """Up to ``count`` − 1 cuts between two layers, of equal work apart; each the cheapest of those near its place."""
    if end - first <= count:
        return set(range(first + 1, end))
    found = set()
    total, place = work[end] - work[first], first
    for part in range(1, count):
        goal = work[first] + total * part / count
        low = place + 1
        while place < end - 1 and work[place + 1] <= goal:
            place += 1
        if low <= place:
            found.add(
                min(range(max(low, place - (place - low) // 2), place + 1), key=lambda cut: (crossing[cut], -cut))
            )
    return found


def _work(request: Request) -> list[float]:
    """Seconds of all layers before each one, forward and backward, on the first device that has times for it."""
    problem = request.problem
    precision = resolved_precision(problem.job, problem.profile)
    kinds = {device.kind: device for device in reversed(request.devices)}.values()
    each = []
    for index in range(len(problem.profile.layers)):
        times = (layer_seconds(problem.profile, index, device, 1, precision) for device in kinds)
        known = next((one for one in times if one is not None), None)
        each.append(0.0 if known is None else known.forward + known.backward)
    return list(accumulate(each, initial=0.0))


def _crossing(profile: Profile) -> list[float]:
    """Bytes of one sample over the cut before each layer; a tensor counts until its last reader."""
    position = {layer.name: index for index, layer in enumerate(profile.layers)}
    last: dict[int, tuple[int, float]] = {}
    for index, layer in enumerate(profile.layers):
        for edge in layer.inputs:
            if edge.source != MODEL_INPUT:
                source = position[edge.source]
                whole = profile.layers[source].output_bytes if edge.bytes is None else edge.bytes
                last[source] = (index, max(whole, last.get(source, (0, 0.0))[1]))
    change = [0.0] * (len(profile.layers) + 2)
    for source, (reader, num_bytes) in last.items():
        change[source + 1] += num_bytes
        change[reader + 1] -= num_bytes
    return list(accumulate(change))
