"""Virtual workers whose chains have the same cuts: all-reduces of different stages then do not wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice
from ignite_scheduler.model import Device
from ignite_scheduler.planner.dealing import Worker
from ignite_scheduler.planner.kernel import Floats
from ignite_scheduler.planner.peers.cutting import best_cut, run_costs, runs
from ignite_scheduler.planner.peers.placing import choice, layers_of
from ignite_scheduler.planner.peers.view import View

Line = tuple[Device, ...]
"""Devices of one worker's stages, the first stage first."""


def lined_up(workers: Sequence[Worker], speeds: Mapping[str, float], count: int) -> Iterator[tuple[Line, ...]]:
    """Yield so many devices of each worker, the fastest of all first and the fastest last."""
    for step in (1, -1) if count > 1 else (1,):
        yield tuple(
            tuple(sorted(worker, key=lambda device: (-speeds[device.id], device.id))[:count][::step])
            for worker in workers
        )


def aligned(view: View, lines: Sequence[Line], shares: Sequence[int]) -> Assignment | None:
    """The workers' chains with the cut of the least slowest stage, its all-reduce included; None if no cut fits."""
    cut = best_cut([_stage_cost(view, lines, shares, s) for s in range(len(lines[0]))])
    if cut is None:
        return None
    return choice(
        view,
        [
            StageChoice(
                layers=layers_of(view, first, end),
                devices=(device.id,),
                samples=(share,),
                inputs=() if first == 0 else None,
            )
            for line, share in zip(lines, shares, strict=True)
            for (first, end), device in zip(runs(cut.bounds), line, strict=True)
        ],
    )


def _stage_cost(view: View, lines: Sequence[Line], shares: Sequence[int], s: int) -> Floats:
    """[first, end]: the slowest worker's seconds a microbatch, its input included, and 1 ÷ M of the all-reduce.

    Infinite where one of the devices does not hold the blocks.
    """
    count = view.num_microbatches
    held = count if view.family.schedule == "gpipe" else len(lines[0]) - s
    slowest = np.zeros((view.num_blocks + 1, view.num_blocks + 1))
    for line, share in zip(lines, shares, strict=True):
        own = run_costs(view.seconds(line[s], share).total)
        if s > 0:
            own = own + 2 * view.link(line[s - 1], line[s]).seconds(view.cuts * share / view.samples)[:, None]
        fits = view.need(held, share) <= line[s].memory
        slowest = np.maximum(slowest, np.where(fits, own, np.inf))
    found: Floats = slowest + view.reduce(tuple(line[s] for line in lines)) / count
    return found
