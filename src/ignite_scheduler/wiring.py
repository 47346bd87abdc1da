"""The composition root: the one place where controller, planner, journal and executor meet to run jobs for real.

:func:`run` begins a run in a directory of its own and drives it in the foreground to its end; :func:`resume` goes on
with one whose process was interrupted or killed. Both return the same report.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ignite_scheduler import zoo
from ignite_scheduler.control import FINAL, Controller, Options
from ignite_scheduler.control.events import JobSubmitted
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.outlook import checkpoint_seconds
from ignite_scheduler.daemon.clock import WallClock
from ignite_scheduler.daemon.directory import Asked, Request, RunDirectory
from ignite_scheduler.daemon.estimate import STARTUP
from ignite_scheduler.daemon.eventlog import EventLogs
from ignite_scheduler.daemon.observing import Observer
from ignite_scheduler.daemon.pace import Paces
from ignite_scheduler.daemon.planning import CataloguePlanning
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.pump import Mismatch, recover, replay
from ignite_scheduler.daemon.report import RunReport, bars, job_report
from ignite_scheduler.daemon.shell import Outcome, Shell
from ignite_scheduler.daemon.story import Chronicle
from ignite_scheduler.daemon.view import Pace, Snapshot, snapshot
from ignite_scheduler.engine.abilities import abilities_of
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.executors import ProcessExecutor, check_playable, load_engine
from ignite_scheduler.model import Cluster, Job, Profile
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.problem import DEFAULT_WORK, Objective
from ignite_scheduler.policy import DEFAULT_POLICY, make_policy
from ignite_scheduler.store import SqlJournal

Watcher = Callable[[Snapshot], None]
"""Shown how the run stands, now and then and once at the end."""

OPTIONS: Final = Options(start_grace=0.0, missing_grace=0.0, promises=True)
"""The controller's options in a live run. No grace: the shell's listings are exact (see :class:`Executor`)."""

WATCH_EVERY: Final = 0.25
"""Seconds between two looks of a watcher, if a look is quick."""

WATCH_REST: Final = 9.0
"""Rest after a look ÷ time that it took, at least: watching takes at most a tenth of the loop's time."""


def ask(
    job: Job,
    profile: Profile,
    *,
    submitted: float = 0.0,
    startup: float | None = None,
    checkpoint_cost: float | None = None,
    calibration: Calibration | None = None,
) -> Asked:
    """The job as a run takes it: ``submitted`` seconds after the run's start, with its work in steps.

    ``startup`` and ``checkpoint_cost`` are the seconds that the scheduler reckons with for each start and save. None =
    what the calibration measured, with its range; without one :data:`~ignite_scheduler.daemon.estimate.STARTUP` and
    nothing.

    Raises
    ------
    InputError
        The job has neither steps nor epochs, or no data or model to train.
    """
    data = zoo.check_trainable(job)
    if job.steps is not None:
        steps = job.steps
    else:
        from ignite_scheduler.engine.data import num_steps

        steps = num_steps(job, len(zoo.dataset(data)))
    measured = None if calibration is None else calibration.startup
    if checkpoint_cost is None:
        checkpoint_cost = 0.0 if calibration is None else checkpoint_seconds(job, profile, calibration)
    return Asked(
        job=job,
        profile=profile,
        work=steps,
        submitted=submitted,
        startup=(STARTUP if measured is None else measured.middle) if startup is None else startup,
        startup_range=None if startup is not None or measured is None else (measured.low, measured.high),
        checkpoint_cost=checkpoint_cost,
    )


def run(
    jobs: Sequence[Asked],
    cluster: Cluster,
    *,
    directory: Path,
    policy: str = DEFAULT_POLICY,
    objective: Objective = "time",
    memory_margin: float = 0.0,
    search_work: int = DEFAULT_WORK,
    calibration: Calibration | None = None,
    watch: Watcher | None = None,
) -> RunReport:
    """Plan, schedule and train the jobs now, in the foreground; the report when nothing is left to do.

    Parameters
    ----------
    directory
        Where the run is kept; must not hold anything yet.
    policy
        Who gets what; one of ``POLICIES``.
    search_work
        Budget of each search for plans, see :class:`~ignite_scheduler.planner.Problem`.
    calibration
        What earlier runs taught; charged to each prediction, which gets a range. None = the documents alone.
    watch
        Called with a snapshot every :data:`WATCH_EVERY` seconds, in the thread of the loop: it should be quick. If it
        raises, the run is saved and stopped, and the error comes out here.

    Raises
    ------
    InputError
        No job, two jobs of one name, no such policy, or a device that this machine cannot play; nothing was written
        then.
    ConflictError
        The directory is in use or not empty.
    ExternalError
        PyTorch is missing.
    """
    if not jobs:
        raise InputError("expected at least one job to run, found none")
    make_policy(policy)
    check_playable(cluster)
    request = Request(
        jobs=tuple(jobs),
        cluster=cluster,
        policy=policy,
        objective=objective,
        memory_margin=memory_margin,
        search_work=search_work,
        origin=0.0,
        calibration=calibration,
    )
    place = RunDirectory(directory)
    place.check(request)
    load_engine()  # before the clock starts: what it takes is no job's start-up
    request = replace(request, origin=time.time())
    with place.locked():
        place.begin(request)
        return _Session(place, request).drive(watch)


def resume(directory: Path, *, watch: Watcher | None = None) -> RunReport:
    """Go on with the run in ``directory`` where its journal ends; finished jobs are not run again.

    Raises
    ------
    NotFoundError
        There is no run.
    ConflictError
        Another process drives it, or this version would have decided otherwise.
    """
    place = RunDirectory(directory)
    request = place.request()
    load_engine()
    with place.locked():
        return _Session(place, request).drive(watch)


def check_replay(directory: Path) -> tuple[Mismatch, ...]:
    """Events of the run in ``directory`` on which a fresh controller decides otherwise than recorded; empty = none."""
    place = RunDirectory(directory)
    request = place.request()
    if not place.journal.is_file():
        raise NotFoundError(f"no journal in {directory}")
    journal = SqlJournal.at(place.journal)
    try:
        return replay(journal.records(), _controller(request))
    finally:
        journal.close()


def _controller(request: Request) -> Controller:
    return Controller(request.cluster, make_policy(request.policy), OPTIONS)


class _Session:
    """One process's share of a run, from recovery to report."""

    def __init__(self, place: RunDirectory, request: Request) -> None:
        self._place = place
        self._request = request
        self._jobs = {asked.job.name: asked for asked in request.jobs}
        self._clock = WallClock(request.origin)
        self._controller = _controller(request)
        self._executor = ProcessExecutor(
            jobs={name: asked.job for name, asked in self._jobs.items()},
            cluster=request.cluster,
            directory_of=place.job,
            clock=self._clock,
        )
        self._chronicle = Chronicle()
        self._logs = EventLogs(place.job)
        self._observer = Observer(
            asked=self._jobs,
            cluster=request.cluster,
            stories=self._chronicle.jobs,
            promise=self._controller.promises.get,
            calibration=request.calibration,
            directory_of=place.job,
            num_sharing=self._executor.num_sharing,
            origin=request.origin,
        )
        self._last_at = 0.0
        self._drift = Paces(asked=self._jobs, cluster=request.cluster, calibration=request.calibration)
        self._shell: Shell | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False

    def drive(self, watch: Watcher | None) -> RunReport:
        """Recover what there is, go on to the end, and report."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            outcome = asyncio.run(self._live(watch))
        else:
            outcome = self._beside_a_loop(watch)
        return self._report(outcome)

    def _beside_a_loop(self, watch: Watcher | None) -> Outcome:
        """Called from within a loop, such as a notebook's: the run gets a thread and a loop of its own.

        An interrupt reaches us here, and counts as it does in the foreground.
        """
        with ThreadPoolExecutor(max_workers=1) as thread:
            running = thread.submit(lambda: asyncio.run(self._live(watch)))
            while True:
                try:
                    return running.result()
                except KeyboardInterrupt:
                    if self._loop is None:
                        self._stopping = True  # it has not come so far yet, and will see
                    else:
                        self._loop.call_soon_threadsafe(self._interrupt)

    async def _live(self, watch: Watcher | None) -> Outcome:
        self._loop = asyncio.get_running_loop()
        with self._signals():  # from the first moment on: a long journal takes a while to read
            return await self._recovered(watch)

    async def _recovered(self, watch: Watcher | None) -> Outcome:
        journal = SqlJournal.at(self._place.journal)
        problems = {name: self._problem(asked) for name, asked in self._jobs.items()}
        planning = CataloguePlanning(problems, lambda: self._controller.cluster, self._request.calibration)
        try:
            recovery = recover(journal, self._controller, self._note)
            self._shell = Shell(
                core=self._controller,
                journal=journal,
                executor=self._executor,
                planning=planning,
                clock=self._clock,
                settled=self._settled,
                observer=self._note,
                recovery=recovery,
            )
            if self._stopping:
                self._shell.interrupt()
            watching = None
            if watch is not None:
                watching = asyncio.create_task(self._watched(watch))
                watching.add_done_callback(self._watching_ended)
            try:
                return await self._shell.run([self._submission(asked) for asked in self._missing()])
            finally:
                if watching is not None:
                    watching.cancel()
                    with suppress(asyncio.CancelledError):
                        await watching
        finally:
            planning.close()
            journal.close()

    def _note(self, record: Record) -> None:
        self._chronicle.note(record)
        self._logs.note(record)
        self._observer.note(record)
        self._last_at = record.event.at

    def _problem(self, asked: Asked) -> Problem:
        request = self._request
        return Problem(
            job=asked.job,
            profile=asked.profile,
            cluster=request.cluster,
            objective=request.objective,
            memory_margin=request.memory_margin,
            abilities=abilities_of(asked.job),
            work=request.search_work,
        )

    def _missing(self) -> list[Asked]:
        """Jobs whose submission is not in the journal yet."""
        return [asked for name, asked in self._jobs.items() if name not in self._controller.jobs]

    def _submission(self, asked: Asked) -> JobSubmitted:
        return JobSubmitted(
            at=asked.submitted,
            job_id=asked.job.name,
            work=float(asked.work),
            terms=asked.job.queue,
            startup=asked.startup,
            startup_range=asked.startup_range,
            checkpoint_every=None if asked.job.checkpoint.every is None else float(asked.job.checkpoint.every),
            checkpoint_cost=asked.checkpoint_cost,
        )

    def _settled(self) -> bool:
        return all(record.state in FINAL for record in self._controller.jobs.values())

    # -- people --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C, or a request to terminate: once saves and stops, twice kills."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach the main thread only
            return
        loop = asyncio.get_running_loop()
        wanted = (signal.SIGINT, signal.SIGTERM)
        for number in wanted:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number in wanted:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self._stopping = True
        if self._shell is not None:
            self._shell.interrupt()

    async def _watched(self, watch: Watcher) -> None:
        try:
            while True:
                began = time.monotonic()
                watch(self._snapshot())
                took = time.monotonic() - began  # looking ahead over a long queue must not hold up the loop
                await asyncio.sleep(max(WATCH_EVERY, WATCH_REST * took))
        finally:
            watch(self._snapshot())

    def _watching_ended(self, watching: asyncio.Task[None]) -> None:
        """A watcher that fails must not leave the run going on unseen: save, stop, and let the error out at the end."""
        if not watching.cancelled() and watching.exception() is not None:
            self._interrupt()

    def _snapshot(self) -> Snapshot:
        return snapshot(
            self._controller,
            self._chronicle.jobs,
            dict(self._paces()),
            now=self._clock.now(),
            arriving=tuple((asked.job.name, asked.submitted) for asked in self._missing()),
            stopping=self._stopping,
        )

    def _paces(self) -> Iterator[tuple[str, Pace]]:
        for job_id, _ in self._executor.running():
            vitals, command = self._executor.vitals(job_id), self._executor.command(job_id)
            if vitals is not None and command is not None:
                yield job_id, self._drift.pace(command, vitals)

    def _report(self, outcome: Outcome) -> RunReport:
        stories, slow = self._chronicle.jobs, self._observer.slow()
        return RunReport(
            outcome=outcome,
            policy=self._request.policy,
            directory=self._place.root,
            jobs=tuple(
                job_report(story, self._controller, self._place.job(job_id), outcome)
                for job_id, story in stories.items()
            ),
            bars=bars(stories.values(), self._last_at),
            notices=(*self._executor.notices, *self._observer.notices),
            end=self._last_at,
            slow=slow,
        )
