"""Choices of virtual workers next to one: another boundary, share, device or number of stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from ignite_scheduler.cost import Assignment, StageChoice

Chain = tuple[StageChoice, ...]


def chains_of(assignment: Assignment) -> tuple[Chain, ...]:
    """The stages of each worker; a worker begins with a stage that reads the model's input."""
    chains: list[list[StageChoice]] = []
    for stage in assignment.stages:
        if stage.inputs == () or not chains:
            chains.append([])
        chains[-1].append(stage)
    return tuple(tuple(chain) for chain in chains)


def reshaped(assignment: Assignment, idle: Sequence[str], *, cuts: bool, stages: bool) -> Iterator[Assignment]:
    """Yield the choices next to one, each with one change.

    Parameters
    ----------
    idle
        Devices that may be taken up.
    cuts, stages
        Whether boundaries may move, and whether a stage may be added or dropped.
    """
    chains = chains_of(assignment)
    for w, changed in _changes(chains, idle, cuts=cuts, stages=stages):
        yield _with(assignment, chains, {w: changed})
    if cuts:
        for a, b in permutations(range(len(chains)), 2):
            if len(chains[a]) == len(chains[b]) and _layers(chains[a]) != _layers(chains[b]):
                yield _with(assignment, chains, {b: _cut(chains[b], _layers(chains[a]))})
    yield from _together(assignment, chains, cuts=cuts)
    for a, b in permutations(range(len(chains)), 2):
        if chains[a][0].samples[0] > 1:
            yield _with(assignment, chains, {a: _shared(chains[a], -1), b: _shared(chains[b], 1)})
    for a, b in combinations(range(len(assignment.stages)), 2):
        held = [stage.devices for stage in assignment.stages]
        held[a], held[b] = held[b], held[a]
        yield _held(assignment, held)
    for a, stage in enumerate(assignment.stages):
        for device in idle:
            held = [other.devices for other in assignment.stages]
            held[a] = (device,)
            if (device,) != stage.devices:
                yield _held(assignment, held)


def _together(assignment: Assignment, chains: Sequence[Chain], *, cuts: bool) -> Iterator[Assignment]:
    """Yield the choice with the devices of every chain turned round, and with one boundary moved in all of them.

    Where all workers hold the same layers in a stage, all-reduces of different stages go on at the same time.
    """
    turned = [stage.devices for chain in chains for stage in reversed(chain)]
    yield _held(assignment, turned)
    layers = _layers(chains[0])
    if not cuts or any(_layers(chain) != layers for chain in chains):
        return
    for moved in _moved(layers):
        yield _with(assignment, chains, {w: _cut(chain, moved) for w, chain in enumerate(chains)})


def _moved(layers: Sequence[tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the layers of a chain's stages with one boundary moved by one."""
    for s in range(len(layers) - 1):
        left, right = layers[s], layers[s + 1]
        for before, after in (((*left, right[0]), right[1:]), (left[:-1], (left[-1], *right))):
            if before and after:
                yield (*layers[:s], before, after, *layers[s + 2 :])


def _changes(chains: Sequence[Chain], idle: Sequence[str], *, cuts: bool, stages: bool) -> Iterator[tuple[int, Chain]]:
    """Yield a worker's number and its chain with a boundary moved, a stage dropped, or one added on an idle device."""
    for w, chain in enumerate(chains):
        layers = _layers(chain)
        if cuts:
            yield from ((w, _cut(chain, moved)) for moved in _moved(layers))
        if not (cuts and stages):
            continue
        for s in range(len(chain) - 1):
            joined = (*layers[:s], layers[s] + layers[s + 1], *layers[s + 2 :])
            for dropped in (s, s + 1):
                yield w, _cut(chain[:dropped] + chain[dropped + 1 :], joined)
        for s, held in enumerate(layers):
            if len(held) > 1:
                parted = (*layers[:s], held[: len(held) // 2], held[len(held) // 2 :], *layers[s + 1 :])
                for device in idle:
                    added = replace(chain[s], devices=(device,))
                    for place in (s, s + 1):
                        yield w, _cut((*chain[:place], added, *chain[place:]), parted)


def _layers(chain: Chain) -> tuple[tuple[int, ...], ...]:
    return tuple(stage.layers for stage in chain)


def _cut(chain: Chain, layers: Sequence[tuple[int, ...]]) -> Chain:
    """The chain with these layers; its first stage reads the model's input."""
    return tuple(
        replace(stage, layers=held, inputs=None if s else ())
        for s, (stage, held) in enumerate(zip(chain, layers, strict=True))
    )


def _shared(chain: Chain, more: int) -> Chain:
    return tuple(replace(stage, samples=(stage.samples[0] + more,)) for stage in chain)


def _with(assignment: Assignment, chains: Sequence[Chain], changed: dict[int, Chain]) -> Assignment:
    kept = [changed.get(w, chain) for w, chain in enumerate(chains)]
    return replace(assignment, stages=tuple(stage for chain in kept for stage in chain))


def _held(assignment: Assignment, devices: Sequence[tuple[str, ...]]) -> Assignment:
    stages = zip(assignment.stages, devices, strict=True)
    return replace(assignment, stages=tuple(replace(stage, devices=held) for stage, held in stages))
