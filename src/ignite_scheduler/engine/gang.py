"""The supervisor of one attempt: starts its ranks, reads their reports, and sees to it that all of them end.

Theory of operation
-------------------
Ranks are forked from one server process that has torch loaded already (0.3 s for a gang instead of seconds for each
rank). The supervisor hosts the store in which they meet; each attempt has a prefix of its own there, so remains of an
earlier one cannot be read. Everything that could take long happens in a starting thread or in the ranks: no call
blocks.

When a rank dies its neighbours lose their connections and end too, within a fraction of a second. So the first exit
is not always the cause: the supervisor listens for a short grace time, then blames, in this order, a rank that reported
an error of its own, a rank that was killed by a signal, and only then a rank that says it lost its peer. Survivors
are killed.
"""

from __future__ import annotations

import multiprocessing.connection
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Literal

from ignite_scheduler.engine.blame import Trouble, find_cause
from ignite_scheduler.engine.groups import ControlGroup, open_group
from ignite_scheduler.engine.processes import fork, meeting_point, new_scope
from ignite_scheduler.engine.rank import Stop, main
from ignite_scheduler.engine.reports import Ending, Failed, Finished, Report, Saved, Started, Stopped
from ignite_scheduler.engine.saved import latest, saved_steps
from ignite_scheduler.engine.specification import WIRES, GangSpec

_GRACE: Final = 0.7
"""Seconds from the first bad exit to the verdict; neighbours follow within 0.2 s."""


class Gang:
    """The ranks of one attempt, seen from outside. Make one with :meth:`start`."""

    def __init__(self, spec: GangSpec) -> None:
        self.spec = spec
        self._scope = new_scope(f"{spec.job.name}/{spec.epoch}")
        self._group_name = "ignite-" + self._scope.rpartition("/")[2]
        self._groups: dict[int, ControlGroup] = {}
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._open: dict[int, Connection] = {}
        self._codes: list[int | None] = []
        self._reports: list[Report] = []
        self._troubles: dict[int, Trouble] = {}
        self._said: Finished | Stopped | None = None
        self._ending: Ending | None = None
        self._saved = 0
        self._wanted: Literal["run", "stop", "stopping", "kill"] = "run"
        self._save = False
        self._first_bad: float | None = None
        self._start_error: BaseException | None = None
        self._starting = threading.Thread(target=self._launch, daemon=True, name=f"start {spec.job.name}")

    @classmethod
    def start(cls, spec: GangSpec) -> Gang:
        """Begin to start the ranks; returns at once. :class:`Started` follows when they are all up."""
        gang = cls(spec)
        if spec.resume is not None:
            gang._saved = saved_steps(spec.resume)
        gang._starting.start()
        return gang

    def _launch(self) -> None:
        try:
            self._clear_wires()
            port = meeting_point()
            self._open_groups()
            for rank in range(len(self.spec.devices)):
                process, pipe = fork(main, partial(self._arguments, rank, port), f"{self.spec.job.name} rank {rank}")
                self._processes.append(process)
                self._pipes.append(pipe)
        except BaseException as error:
            self._start_error = error

    def _arguments(self, rank: int, port: int, pipe: Connection) -> tuple[Any, ...]:
        return self.spec, rank, pipe, port, self._scope, self._groups.get(rank)

    def _open_groups(self) -> None:
        """Make a control group for each slower device, if that is how they are to be played and the system lets us."""
        if self.spec.emulation != "groups":
            return
        devices = list(self.spec.devices)
        for rank, device in enumerate(devices):
            limited = device.speed is not None and device.speed < 1
            if limited or device.memory is not None:
                speed = device.speed if limited else None
                group = open_group(f"{self._group_name}-{rank}", speed=speed, memory=device.memory)
                if group is not None:
                    self._groups[rank], devices[rank] = group, replace(device, held=True)
        self.spec = replace(self.spec, devices=tuple(devices))

    @property
    def ended(self) -> bool:
        """Whether the ending has been reported."""
        return self._ending is not None

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Of the ranks that have been started so far."""
        return tuple(process.pid or 0 for process in self._processes)

    def stop(self, save: bool = True) -> None:
        """Ask all ranks to stop at their next common step boundary, after a checkpoint if ``save``."""
        if self._wanted == "run":
            self._wanted, self._save = "stop", save

    def kill(self) -> None:
        """End all ranks now, unsaved."""
        self._wanted = "kill"

    def poll(self) -> list[Report]:
        """Reports since the last call, oldest first; never waits for a rank. The last one is an ending."""
        if self.ended or self._starting.is_alive():
            return []
        if not self._open and self._pipes:
            self._open = dict(enumerate(self._pipes))
        self._read()
        if self._start_error is not None:
            self._end(Failed(reason=f"could not start: {self._start_error}", fault="job", saved=self._saved))
        elif self._wanted == "kill":
            self._end_processes()
            self._read()
            saved = self._surviving()
            self._end(Stopped(done=saved, saved=saved))
        elif self._wanted == "stop":
            self._pass_on_stop()
        if not self.ended:
            self._look_at_exits()
        reports, self._reports = self._reports, []
        return [*reports, self._ending] if self._ending is not None else reports

    def wait(self, timeout: float | None = None) -> Iterator[Report]:
        """Yield reports as they come until the ending; for callers that have nothing else to do.

        Raises
        ------
        TimeoutError
            No ending within ``timeout`` seconds; the gang is killed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            yield from self.poll()
            if self.ended:
                return
            if until is not None and time.monotonic() > until:
                self.kill()
                self.poll()
                raise TimeoutError(f"gang of {self.spec.job.name!r} did not end within {timeout:g} s")
            if self._open:
                multiprocessing.connection.wait(list(self._open.values()), timeout=0.05)
            else:
                time.sleep(0.01)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        for rank, pipe in list(self._open.items()):
            try:
                while pipe.poll():
                    self._take(rank, pipe.recv())
            except (EOFError, OSError):
                del self._open[rank]

    def _take(self, rank: int, message: Report | Trouble) -> None:
        match message:
            case Trouble():
                self._troubles[rank] = message
            case Finished() | Stopped():
                self._said = message
            case _:
                if isinstance(message, Started | Saved):
                    self._saved = message.done
                self._reports.append(message)

    def _pass_on_stop(self) -> None:
        for pipe in self._open.values():
            with suppress(OSError):
                pipe.send(Stop(save=self._save))
        self._wanted = "stopping"

    def _look_at_exits(self) -> None:
        codes = [process.exitcode for process in self._processes]
        if all(code == 0 for code in codes):
            self._read()
            self._end(self._said or self._wordless())
            return
        if not any(code for code in codes if code is not None) and not self._troubles:
            return
        now = time.monotonic()
        if self._first_bad is None:
            self._first_bad = now
        if now - self._first_bad >= _GRACE or all(code is not None for code in codes):
            self._end_processes()
            self._read()
            self._end(self._verdict())

    def _verdict(self) -> Ending:
        cause = find_cause(self._codes, self._troubles)
        lost = self._troubles.get(cause.rank)
        if self._said is not None and lost is not None and lost.kind == "peer":
            return self._said  # all was done and saved; who was last to leave found the others gone
        device, group = self.spec.devices[cause.rank].id, self._groups.get(cause.rank)
        full = group is not None and group.killed_for_memory()
        return Failed(
            reason=f"rank {cause.rank} on {device}: {'out of memory, ' if full else ''}{cause.reason}",
            fault=cause.fault,
            saved=self._surviving(),
            rank=cause.rank,
            device=device,
            layer=cause.layer,
        )

    def _wordless(self) -> Failed:
        """All ranks left with status 0, but rank 0, which speaks for all, never said how it ended.

        No fault of a device looks like that; code of the job that ends its process does.
        """
        device = self.spec.devices[0].id
        reason = f"rank 0 on {device}: exited with status 0 without saying that it had finished"
        return Failed(reason=reason, fault="job", saved=self._surviving(), rank=0, device=device)

    def _surviving(self) -> int:
        """Steps in the newest whole checkpoint; rank 0 may have died between writing one and saying so."""
        checkpoint = latest(self.spec.directory)
        return self._saved if checkpoint is None else saved_steps(checkpoint)

    def _end_processes(self) -> None:
        self._codes = [process.exitcode for process in self._processes]  # before our own signals end the others
        for process in self._processes:
            if process.exitcode is None:
                process.kill()
        for process in self._processes:
            process.join()

    def _end(self, ending: Ending) -> None:
        self._end_processes()
        for pipe in self._pipes:
            pipe.close()
        for group in self._groups.values():
            group.remove()
        self._open.clear()
        self._clear_wires()
        self._ending = ending

    def _clear_wires(self) -> None:
        """Forget until when shared wires were booked: an earlier boot's clock must not hold up this one's messages."""
        shutil.rmtree(self.spec.directory / WIRES, ignore_errors=True)
