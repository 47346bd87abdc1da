"""Gangs as processes of this machine: the daemon's commands to the engine's supervisor, its reports to events.

Theory of operation
-------------------
A job has one run directory for all its attempts. Each attempt goes on from the newest whole checkpoint that it finds
there, whatever split wrote it, and notes its plan and its processes in ``attempts/EPOCH``. A newer attempt begins
only after every process of an older one is gone: those that this executor runs are killed and awaited, those that a
dead driver left behind are ended by :mod:`~ignite_scheduler.executors.orphans`.

Devices that are not in this machine are played by it (see :mod:`~ignite_scheduler.executors.places`); the engine
paces computing and transfers.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final, assert_never

from ignite_scheduler.control.commands import StartGang, StopGang
from ignite_scheduler.control.events import GangFailed, GangFinished, GangProgressed, GangStarted, GangStopped
from ignite_scheduler.daemon.directory import write_document
from ignite_scheduler.daemon.estimate import WARM_UP, WINDOW, StepClock
from ignite_scheduler.daemon.placement import on_devices
from ignite_scheduler.daemon.ports import Clock, GangReport, Vitals
from ignite_scheduler.engine.gang import Gang
from ignite_scheduler.engine.processes import fork, meeting_point, open_server
from ignite_scheduler.engine.reports import Failed, Finished, Progressed, Report, Saved, Started, Stopped
from ignite_scheduler.engine.saved import latest
from ignite_scheduler.engine.specification import GangSpec, emulated
from ignite_scheduler.errors import ExternalError, IgniteError, InputError
from ignite_scheduler.executors import orphans
from ignite_scheduler.executors.places import cuda_places, notices, on_real_devices
from ignite_scheduler.formats.plan import plan_document
from ignite_scheduler.formats.run_files import PLAN_FILE, SAVES_FILE, attempt_directory
from ignite_scheduler.model import Cluster, Job, Plan

PROGRESS_EVERY: Final = 0.5
"""Seconds between two progress events of one gang: each costs a write to the journal."""

_PATIENCE: Final = 30.0  # seconds until all gangs must have ended when the executor is closed


def load_engine() -> None:
    """Bring up what all gangs of this process share and what takes seconds: PyTorch, and the server that forks ranks.

    Raises
    ------
    ExternalError
        PyTorch is not installed.
    """
    open_server()
    meeting_point()
    process, pipe = fork(_do_nothing, lambda pipe: (pipe,), "warm-up")
    process.join()
    pipe.close()


def _do_nothing(_: object) -> None:
    pass


class ProcessExecutor:
    """An :class:`~ignite_scheduler.daemon.ports.Executor` that runs gangs on this machine.

    Parameters
    ----------
    jobs
        Job id → job.
    cluster
        Devices and links to play.
    directory_of
        Job id → its run directory.
    clock
        Time of the run, for the events.
    progress_every
        Seconds.
    """

    def __init__(
        self,
        *,
        jobs: Mapping[str, Job],
        cluster: Cluster,
        directory_of: Callable[[str], Path],
        clock: Clock,
        progress_every: float = PROGRESS_EVERY,
    ) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._directory_of = directory_of
        self._clock = clock
        self._progress_every = progress_every
        self._places = cuda_places(cluster)
        self._attempts: dict[str, _Attempt] = {}
        self._next: dict[str, StartGang] = {}
        self._called_off: set[tuple[str, int]] = set()

    def start(self, command: StartGang) -> None:
        """Begin the gang; if an older attempt of the job is still there, as soon as that one is gone."""
        present = self._attempts.get(command.job_id)
        if present is None:
            self._attempts[command.job_id] = self._begin(command)
        elif present.command.epoch < command.epoch:
            present.kill()
            self._next[command.job_id] = command

    def stop(self, command: StopGang) -> None:
        """Ask the gang to end at its next step boundary, after a checkpoint if the command says so."""
        attempt, successor = self._attempts.get(command.job_id), self._next.get(command.job_id)
        if attempt is not None and attempt.command.epoch == command.epoch:
            attempt.stop(save=command.save)
        elif successor is not None and successor.epoch == command.epoch:
            self._called_off.add((command.job_id, command.epoch))

    def poll(self) -> tuple[GangReport, ...]:
        """Reports since the last call."""
        now = self._clock.now()
        reports: list[GangReport] = []
        for job_id, attempt in list(self._attempts.items()):
            reports.extend(attempt.poll(now))
            if attempt.ended:
                del self._attempts[job_id]
                if job_id in self._next:
                    reports.extend(self._succeed(self._next.pop(job_id), now))
        return tuple(reports)

    def _succeed(self, command: StartGang, now: float) -> Iterator[GangReport]:
        """Begin the attempt that waited for an older one to be gone, unless it was told to stop meanwhile."""
        job_id, epoch = command.job_id, command.epoch
        if (job_id, epoch) in self._called_off:
            self._called_off.discard((job_id, epoch))
            yield GangStopped(at=now, job_id=job_id, epoch=epoch, saved=command.saved)
        else:
            self._attempts[job_id] = self._begin(command)

    def running(self) -> tuple[tuple[str, int], ...]:
        """(job id, epoch) of all gangs that hold devices; of a job whose attempts change, the newer one."""
        epochs = {job_id: attempt.command.epoch for job_id, attempt in self._attempts.items()}
        epochs |= {job_id: command.epoch for job_id, command in self._next.items()}
        return tuple(sorted(epochs.items()))

    def command(self, job_id: str) -> StartGang | None:
        """The command of the job's present gang; None if it has none."""
        attempt = self._attempts.get(job_id)
        return None if attempt is None else attempt.command

    def num_sharing(self, plan: Plan) -> tuple[int, ...]:
        """By device of the plan, how many of its devices are on the same real processor, itself included."""
        places = [self._places.get(device, "cpu") for device in plan.device_ids]
        return tuple(places.count(place) for place in places)

    def vitals(self, job_id: str) -> Vitals | None:
        """How the job's gang does; None if it has none."""
        attempt = self._attempts.get(job_id)
        return None if attempt is None else attempt.vitals

    def kill(self) -> None:
        """End all gangs at once, unsaved."""
        self._next.clear()
        for attempt in self._attempts.values():
            attempt.kill()

    def close(self) -> None:
        """End whatever still runs.

        Raises
        ------
        ExternalError
            Some processes cannot be ended.
        """
        self.kill()
        until = time.monotonic() + _PATIENCE
        while self._attempts:
            self.poll()
            if self._attempts and time.monotonic() > until:
                raise ExternalError(f"gangs of {', '.join(self._attempts)} did not end within {_PATIENCE:g} s")
            if self._attempts:
                time.sleep(0.01)

    def _begin(self, command: StartGang) -> _Attempt:
        directory = self._directory_of(command.job_id)
        own = attempt_directory(directory, command.epoch)
        try:
            gang = Gang.start(self._specification(command, directory, own))
        except (IgniteError, OSError) as error:
            return _Attempt(command, own, None, self._progress_every, refusal=str(error))
        return _Attempt(command, own, gang, self._progress_every)

    def _specification(self, command: StartGang, directory: Path, own: Path) -> GangSpec:
        for earlier in sorted(directory.glob("attempts/*")):
            orphans.end(earlier)
        if command.candidate.plan is None:
            raise InputError(f"job {command.job_id!r} has rates but no plan: it can be simulated, not run")
        plan = on_devices(command.candidate.plan, command.device_ids)
        write_document(own / PLAN_FILE, plan_document(plan))
        write_document(directory / PLAN_FILE, plan_document(plan))
        played = emulated(
            self._jobs[command.job_id],
            plan,
            self._cluster,
            directory=directory,
            epoch=command.epoch,
            resume=latest(directory),
        )
        return on_real_devices(played, self._places)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know of how this machine stands for the cluster."""
        return notices(self._cluster, self._places)


class _Attempt:
    """One gang and what it said so far."""

    def __init__(
        self,
        command: StartGang,
        directory: Path,
        gang: Gang | None,
        progress_every: float,
        *,
        refusal: str | None = None,
    ) -> None:
        self.command = command
        self._directory = directory
        self.ended = False
        self._gang = gang
        self._refusal = refusal
        self._progress_every = progress_every
        self._noted = False
        self._steps = StepClock()
        self._busy: deque[tuple[float, ...]] = deque(maxlen=WINDOW)
        self._pause = 0.0  # seconds of checkpoint for each step
        self._done = self._saved = int(command.saved)
        self._total = 0
        self._loss: float | None = None
        self._told_at = float("-inf")
        self._told = (float(self._done), float(self._saved))

    @property
    def vitals(self) -> Vitals:
        pace, busy = self._pace, tuple(self._busy)
        return Vitals(
            epoch=self.command.epoch,
            done=self._done,
            total=self._total,
            loss=self._loss,
            step=self._steps.step,
            remaining=None if pace is None else (self._total - self._done) * pace,
            busy=tuple(map(median, zip(*busy, strict=True))),
            num_busy=len(busy),
        )

    @property
    def _pace(self) -> float | None:
        """Seconds a step with its share of a checkpoint; None while estimating."""
        return None if self._steps.step is None else self._steps.step + self._pause

    def stop(self, *, save: bool) -> None:
        if self._gang is not None:
            self._gang.stop(save=save)

    def kill(self) -> None:
        if self._gang is not None:
            self._gang.kill()

    def poll(self, now: float) -> Iterator[GangReport]:
        if self._gang is None:
            self.ended = True
            job_id, epoch = self.command.job_id, self.command.epoch
            reason = self._refusal or "could not be started"
            yield GangFailed(at=now, job_id=job_id, epoch=epoch, saved=self._saved, reason=reason)
            return
        self._note_processes(self._gang)
        for report in self._gang.poll():
            yield from self._translate(report, now)
        if not self.ended and now - self._told_at >= self._progress_every:
            yield from self._progress(now)

    def _note_processes(self, gang: Gang) -> None:
        """Write down the ranks as soon as all of them exist, long before they say so themselves."""
        if not self._noted and len(gang.process_ids) == len(gang.spec.devices):
            orphans.note(self._directory, gang.process_ids)
            self._noted = True

    def _note_save(self, saved: Saved) -> None:
        """Write down what the checkpoint took: runs teach how long saving lasts."""
        with suppress(OSError):
            line = {"step": saved.done, "bytes": saved.num_bytes, "save_s": saved.seconds}
            with (self._directory / SAVES_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _progress(self, now: float) -> Iterator[GangProgressed]:
        """Where the gang stands, if that was not told yet."""
        present, pace = (float(self._done), float(self._saved)), self._pace
        if present != self._told:
            self._told, self._told_at = present, now
            yield GangProgressed(
                at=now,
                job_id=self.command.job_id,
                epoch=self.command.epoch,
                done=self._done,
                saved=self._saved,
                rate=None if not pace else 1.0 / pace,
            )

    def _translate(self, report: Report, now: float) -> Iterator[GangReport]:
        job_id, epoch = self.command.job_id, self.command.epoch
        match report:
            case Started():
                self._done = self._saved = report.done
                self._total = report.total
                yield GangStarted(at=now, job_id=job_id, epoch=epoch)
            case Progressed():
                self._done, self._loss = report.done, report.loss
                self._steps.add(report.step)
                if self._steps.count > WARM_UP and report.busy:
                    self._busy.append(report.busy)
            case Saved():
                self._note_save(report)
                self._pause = report.seconds / max(1, report.done - self._saved)
                self._saved = report.done
            case Finished():
                self.ended = True
                yield from self._progress(now)
                yield GangFinished(at=now, job_id=job_id, epoch=epoch)
            case Stopped():
                self.ended = True
                yield GangStopped(at=now, job_id=job_id, epoch=epoch, saved=report.saved)
            case Failed():
                self.ended = True
                device = report.device if report.fault == "device" else None
                reason = report.reason if report.layer is None else f"layer {report.layer!r}: {report.reason}"
                yield GangFailed(at=now, job_id=job_id, epoch=epoch, saved=report.saved, reason=reason, device=device)
            case _:
                assert_never(report)
