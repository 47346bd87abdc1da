"""What is chosen for one job: stages with their layers, devices, shares and memory actions; nothing timed yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ignite_scheduler.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChoice:
    """What one stage holds, on which devices, and what it does to fit their memory.

    Parameters
    ----------
    layers
        Positions in the profile, rising.
    devices
        Distinct ids of its replicas, in the order in which the samples of a microbatch are dealt out.
    samples
        Each replica's share of every full microbatch, ≥ 1. They sum to the microbatch, or to the part of it that the
        stage sees where several stages hold the same layers (virtual workers).
    inputs
        Stages that feed this one; None = the stage before (a chain), () = it reads the model's input.
    recompute
        Segments of its layers, as (first, end) positions in the profile, whose activations are not kept but computed
        again before their backward; of each only its input is kept.
    offload
        Whether activations wait in host memory between a microbatch's forward and its backward.
    shard
        Whether each replica keeps 1/r of the optimizer's state (ZeRO-1).
    """

    layers: tuple[int, ...]
    devices: tuple[str, ...]
    samples: tuple[int, ...]
    inputs: tuple[int, ...] | None = None
    recompute: tuple[tuple[int, int], ...] = ()
    offload: bool = False
    shard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One choice for one job: stages, samples of each microbatch, and the name of the schedule."""

    stages: tuple[StageChoice, ...]
    microbatches: tuple[int, ...]
    schedule: str

    @property
    def split(self) -> tuple[int, ...]:
        """Number of layers of each stage."""
        return tuple(len(stage.layers) for stage in self.stages)

    @property
    def devices(self) -> tuple[str, ...]:
        """Ids of the devices held, in order of stages, each once."""
        return tuple(dict.fromkeys(device for stage in self.stages for device in stage.devices))


def straight(split: Sequence[int], devices: Sequence[str], microbatches: tuple[int, ...], schedule: str) -> Assignment:
    """A chain of stages with one device each.

    Parameters
    ----------
    split
        Numbers of layers per stage, consecutive in the profile's order.
    devices
        The device id of each stage.

    Raises
    ------
    InputError
        There are not as many devices as stages, or no microbatches.

    >>> [stage.layers for stage in straight((2, 1), ("a", "b"), (4, 4), "1f1b").stages]
    [(0, 1), (2,)]
    """
    if len(split) != len(devices) or not microbatches:
        raise InputError(
            f"expected one device for each of the {len(split)} stages and at least one microbatch; "
            f"found devices {tuple(devices)} and microbatches {microbatches}"
        )
    runs = pairwise(accumulate(split, initial=0))
    return Assignment(
        stages=tuple(
            StageChoice(layers=tuple(range(first, end)), devices=(device,), samples=(microbatches[0],))
            for (first, end), device in zip(runs, devices, strict=True)
        ),
        microbatches=microbatches,
        schedule=schedule,
    )
