"""What a gang must know to run: the job, the plan, and what stands for each device and link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Final, Literal

from ignite_scheduler.engine.abilities import check_able
from ignite_scheduler.engine.crew import Crew
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster, Job, Link, Plan

DEFAULT_TIMEOUT: Final = 120.0
"""Seconds of silence of a peer after which a rank gives up: for one that is frozen; a killed one is noticed at once."""
Emulation = Literal["pacing", "groups"]
"""How a slower device is played."""

WIRES: Final = ".wires"
"""Folder in the run directory where wires that several ranks use are booked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDevice:
    """What one rank computes on.

    Parameters
    ----------
    id
        The cluster's id of the device.
    speed
        Pace at which the device is emulated, relative to a core of this machine, in (0, 1]; None = a real device at
        its own pace.
    place
        Where tensors live, in torch's words: ``cpu`` or ``cuda:0``.
    memory
        Bytes that the rank may fill beyond what an idle rank holds; None = not watched.
    host_bandwidth
        Bytes per second of an emulated link to the host's memory; None = a real one.
    held
        Whether a control group holds the rank to ``speed`` and ``memory``; otherwise it paces and watches itself. The
        supervisor sets it.
    """

    id: str
    speed: float | None = None
    place: str = "cpu"
    memory: float | None = None
    host_bandwidth: float | None = None
    held: bool = False

    def __post_init__(self) -> None:
        if self.speed is not None and not 0 < self.speed <= 1:
            raise InputError(
                f"device {self.id!r}: an emulated speed must be above 0 and at most 1 core, found {self.speed:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """One attempt to run one job.

    Parameters
    ----------
    devices
        By rank, in the order in which the plan holds them: of stages, and within a stage of its replicas. All ranks of
        a stage execute its row of the plan's schedule, each with its share of the samples.
    links
        (source rank, target rank) → link to emulate; a pair that is missing is real.
    directory
        The run directory: metrics, timeline, checkpoints.
    epoch
        Attempt number, from 1.
    resume
        Checkpoint to go on from; None = from the beginning.
    backend
        ``gloo`` (CPU) or ``nccl`` (CUDA).
    timeout
        Seconds, see :data:`DEFAULT_TIMEOUT`.
    emulation
        How slower devices are played: by ``pacing``, or by control ``groups`` of the kernel (see
        :mod:`ignite_scheduler.engine.groups`); where those cannot be made the rank is paced, and its description says
        which it is.
    """

    job: Job
    plan: Plan
    devices: tuple[RankDevice, ...]
    directory: Path
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    epoch: int = 1
    resume: Path | None = None
    backend: str = "gloo"
    timeout: float = DEFAULT_TIMEOUT
    emulation: Emulation = "pacing"

    def __post_init__(self) -> None:
        check_able(self.plan)
        ids = self.plan.device_ids
        if tuple(device.id for device in self.devices) != ids:
            raise InputError(
                f"the plan for {self.plan.job!r} names the devices {', '.join(ids)}; found "
                f"{', '.join(device.id for device in self.devices)}"
            )


def emulated(
    job: Job,
    plan: Plan,
    cluster: Cluster,
    *,
    directory: Path,
    epoch: int = 1,
    resume: Path | None = None,
    watch_memory: bool = False,
    emulation: Emulation = "pacing",
) -> GangSpec:
    """A specification in which this machine plays all devices and links of ``cluster``.

    A device without a ``speed`` runs unpaced; links follow the cluster's rules.

    Raises
    ------
    InputError
        A speed above 1 (a core of this machine cannot play a faster device), or no link between devices that talk.
    """
    held = [cluster.device(device_id) for device_id in plan.device_ids]
    devices = tuple(
        RankDevice(
            id=device.id,
            speed=device.speed,
            memory=device.memory if watch_memory else None,
            host_bandwidth=device.host_bandwidth,
        )
        for device in held
    )
    links = {
        (a, b): link
        for (a, source), (b, target) in permutations(enumerate(held), 2)
        if (link := cluster.link(source, target)) is not None
    }
    for a, b in sorted(_pairs(plan)):
        if (a, b) not in links:
            raise InputError(f"no link from {held[a].id!r} to {held[b].id!r}, which the plan needs")
    return GangSpec(
        job=job,
        plan=plan,
        devices=devices,
        directory=directory,
        links=links,
        epoch=epoch,
        resume=resume,
        emulation=emulation,
    )


def _pairs(plan: Plan) -> set[tuple[int, int]]:
    """Ranks that talk: those that pass samples on, both ways, and the replicas of a stage."""
    crew = Crew.of(plan)
    found = {pair for ranks in crew.ranks for pair in permutations(ranks, 2)}
    for stage in range(len(crew.ranks) - 1):
        for size in set(plan.microbatches):
            for piece in crew.pieces(stage, stage + 1, size):
                found |= {(piece.sender, piece.receiver), (piece.receiver, piece.sender)}
    return found
