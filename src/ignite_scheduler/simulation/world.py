"""The simulated cluster: gangs as remaining work and a rate, and the truth about how fast they really are.

The controller knows a candidate's predicted rate; the world runs the gang at that rate times the job's own factor (1
without noise). Start-up, restarts and checkpoints take the seconds that the job says, so that preemption is never
free.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

from ignite_scheduler.control.admission import run_seconds, startup_seconds
from ignite_scheduler.control.commands import StartGang
from ignite_scheduler.control.events import JobSubmitted


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A node that is lost at ``at`` and comes back at ``back`` (None = never). Seconds from the workload's start."""

    node: str
    at: float
    back: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One attempt as it happened: which devices a job held, from when to when, and the power meanwhile (watts)."""

    job: str
    epoch: int
    device_ids: tuple[str, ...]
    start: float
    end: float
    power: float | None

    @property
    def seconds(self) -> float:
        """How long the devices were held."""
        return self.end - self.start


@dataclass(slots=True, kw_only=True)
class SimulatedGang:
    """A gang that runs. ``rate`` is the true one, ``work`` what is left at its start."""

    command: StartGang
    spec: JobSubmitted
    start: float
    rate: float

    @property
    def work(self) -> float:
        """Units of work to do in this epoch."""
        return self.spec.work - self.command.saved

    @property
    def ready(self) -> float:
        """When the first unit of work begins."""
        return self.start + startup_seconds(self.spec, self.work)

    @property
    def finish(self) -> float:
        """When it will be done if nothing happens."""
        return self.start + run_seconds(self.spec, self.work, self.rate)

    def progress(self, at: float) -> tuple[float, float]:
        """(done, saved) units of work at a time, earlier epochs included.

        Work goes on at the rate, with a pause for each whole checkpoint; what is saved is the last whole checkpoint.
        """
        elapsed = max(0.0, at - self.ready)
        before = self.command.saved
        every = self.spec.checkpoint_every
        if not every:
            return before + min(self.work, elapsed * self.rate), before
        cycle = every / self.rate + self.spec.checkpoint_cost
        whole = math.floor(elapsed / cycle * (1 + 1e-12))
        done = whole * every + min(every, (elapsed - whole * cycle) * self.rate)
        return before + min(self.work, max(done, 0.0)), before + min(self.work, whole * every)


class World:
    """All gangs that run, and the devices of lost nodes."""

    def __init__(self, *, seed: int, noise: float) -> None:
        self._seed = seed
        self._noise = noise
        self._factors: dict[str, float] = {}
        self.gangs: dict[str, SimulatedGang] = {}
        self.segments: list[Segment] = []

    def factor(self, job_id: str) -> float:
        """True rate ÷ predicted rate of a job: log-normal with median 1, the same in each run with the same seed."""
        if not self._noise:
            return 1.0
        if job_id not in self._factors:
            self._factors[job_id] = math.exp(self._noise * random.Random(f"{self._seed}:{job_id}").gauss(0.0, 1.0))
        return self._factors[job_id]

    def start(self, command: StartGang, spec: JobSubmitted, at: float) -> SimulatedGang:
        """Let a gang begin."""
        rate = command.candidate.rate * self.factor(command.job_id)
        gang = SimulatedGang(command=command, spec=spec, start=at, rate=rate)
        self.gangs[command.job_id] = gang
        return gang

    def end(self, job_id: str, at: float) -> SimulatedGang:
        """Let the job's gang be over; what it held is kept for the report."""
        gang = self.gangs.pop(job_id)
        command = gang.command
        self.segments.append(
            Segment(
                job=job_id,
                epoch=command.epoch,
                device_ids=command.device_ids,
                start=gang.start,
                end=at,
                power=command.candidate.power,
            )
        )
        return gang

    def is_current(self, job_id: str, epoch: int) -> bool:
        """Whether that attempt runs."""
        gang = self.gangs.get(job_id)
        return gang is not None and gang.command.epoch == epoch

    def on_devices(self, device_ids: Iterable[str]) -> list[SimulatedGang]:
        """Gangs with a process on any of the devices, in order of their start."""
        wanted = set(device_ids)
        return [gang for gang in self.gangs.values() if not wanted.isdisjoint(gang.command.device_ids)]
