"""What a gang must know to run: the job, the plan, and what stands for each device and link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from pathlib import Path
from typing import Final, Literal

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Cluster, Job, Link, Plan

DEFAULT_TIMEOUT: Final = 120.0
"""Seconds of silence of a peer after which a rank gives up: for one that is frozen; a killed one is noticed at once."""
Emulation = Literal["pacing", "groups"]
"""How a slower device is played."""

PRECISIONS: Final = ("fp32", "bf16", "fp64")
"""What the engine trains in. ``fp64`` is for checks; fp16 would need a loss scale."""

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
    held
        Whether a control group holds the rank to ``speed`` and ``memory``; otherwise it paces and watches itself. The
        supervisor sets it.
    """

    id: str
    speed: float | None = None
    place: str = "cpu"
    memory: float | None = None
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
        By rank; rank r executes row r of the plan's schedule.
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
        if self.plan.precision not in PRECISIONS:
            raise InputError(
                f"this engine trains in {', '.join(PRECISIONS)}; the plan for {self.plan.job!r} is in "
                f"{self.plan.precision}"
            )
        for stage in self.plan.stages:
            if len(stage.devices) != 1:
                raise InputError(
                    f"stage {stage.index} of the plan for {self.plan.job!r} has {len(stage.devices)} devices: this "
                    "engine runs one device per stage; plan with replicas: 1"
                )
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
        A speed above 1 (a core of this machine cannot play a faster device), or a pair of stages that no link joins.
    """
    held = [cluster.device(device_id) for device_id in plan.device_ids]
    devices = tuple(
        RankDevice(id=device.id, speed=device.speed, memory=device.memory if watch_memory else None) for device in held
    )
    links = {
        (a, b): link
        for (a, source), (b, target) in permutations(enumerate(held), 2)
        if (link := cluster.link(source, target)) is not None
    }
    rank_of = {device.id: rank for rank, device in enumerate(held)}
    for before, after in pairwise(plan.stages):
        pair = rank_of[before.devices[0].device], rank_of[after.devices[0].device]
        for a, b in (pair, pair[::-1]):
            if a != b and (a, b) not in links:
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
