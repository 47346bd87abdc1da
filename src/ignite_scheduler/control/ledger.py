"""The state of all jobs and devices, and the only operations that change it.

Each operation keeps the laws by itself (a step that the transition table lacks, work that un-saves itself or a device
given twice is refused on the spot); :meth:`Ledger.check_touched` then compares the books of the jobs that an event
touched, and :meth:`Ledger.check` all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from ignite_scheduler.control import limits
from ignite_scheduler.control.admission import late_seconds, run_seconds
from ignite_scheduler.control.events import JobSubmitted
from ignite_scheduler.control.inventory import Inventory
from ignite_scheduler.control.records import Gang, JobRecord
from ignite_scheduler.control.states import FINAL, HOLDING, TRANSITIONS, State
from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Cluster
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.view import (
    JobQueue,
    Option,
    QueuedJob,
    Reason,
    RunningJob,
    View,
    fits,
)

_FIELDS: Final = tuple(field.name for field in fields(JobRecord))
_values_of: Final = attrgetter(*_FIELDS)


class Ledger:
    """Jobs, queue, gangs and devices.

    ``jobs`` maps id → record for all jobs ever, ``queued`` id → what policies see of a queued job, ``running`` id →
    what they see of a job that holds devices; ``releases`` are their expected ends, sorted.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.inventory = Inventory(cluster)
        self.jobs: dict[str, JobRecord] = {}
        self.queue = JobQueue()
        self.queued: dict[str, QueuedJob] = {}
        self.running: dict[str, RunningJob] = {}
        self.releases: list[tuple[float, str]] = []
        self.touched: set[str] = set()

    def copy(self) -> Ledger:
        """An independent ledger in the same state; the records are shared, since they are frozen."""
        other = object.__new__(Ledger)
        other.inventory = self.inventory.copy()
        other.jobs = self.jobs.copy()
        other.queue = self.queue.copy()
        other.queued = self.queued.copy()
        other.running = self.running.copy()
        other.releases = self.releases.copy()
        other.touched = set()
        return other

    def add(self, spec: JobSubmitted) -> JobRecord:
        """Open the books of a new job, whose first planning is asked for."""
        record = JobRecord(spec=spec, serial=len(self.jobs), planning=1, planned_version=self.inventory.version)
        self.jobs[spec.job_id] = record
        self.touched.add(spec.job_id)
        return record

    def put(self, record: JobRecord, **changes: Any) -> JobRecord:
        """The record with changes, in the books.

        Raises
        ------
        InvariantError
            The transition table has no such step, or saved work or the epoch would go back.
        """
        new = JobRecord(**(dict(zip(_FIELDS, _values_of(record), strict=True)) | changes))  # half the cost of replace()
        if new.state is not record.state and new.state not in TRANSITIONS[record.state]:
            raise InvariantError(f"job {record.job_id!r} cannot go from {record.state} to {new.state}")
        if new.saved < record.saved or new.epoch < record.epoch or new.planning < record.planning:
            raise InvariantError(f"saved work, epoch or planning of job {record.job_id!r} would go back")
        self.jobs[record.job_id] = new
        self.touched.add(record.job_id)
        return new

    # -- waiting ------------------------------------------------------------------------------------------------------

    def enqueue(self, record: JobRecord, at: float, **changes: Any) -> JobRecord:
        """Let the job wait for devices: ``queued`` if some candidate fits the devices present, else ``waiting``."""
        candidates: tuple[Candidate, ...] = changes.get("candidates", record.candidates)
        changes.setdefault("queued_at", at)
        options = self._options(record.spec, record.spec.work - changes.get("saved", record.saved), candidates)
        if not options:
            reason = changes.pop("reason", None) or _nowhere(candidates)
            return self.put(record, state=State.WAITING, reason=reason, **changes)
        changes.pop("reason", None)
        record = self.put(record, state=State.QUEUED, reason=None, **changes)
        job = QueuedJob(
            job_id=record.job_id,
            serial=record.serial,
            submitted=record.spec.at,
            queued_at=changes["queued_at"],
            terms=record.spec.terms,
            options=options,
        )
        self.queue.add(job)
        self.queued[record.job_id] = job
        return record

    def dequeue(self, record: JobRecord) -> None:
        """Take the job out of the queue, if it is in."""
        job = self.queued.pop(record.job_id, None)
        if job is not None:
            self.queue.remove(job)

    def requeue(self, record: JobRecord, **changes: Any) -> JobRecord:
        """Reckon a waiting job's options anew: its candidates or the devices present have changed."""
        self.dequeue(record)
        return self.enqueue(record, record.spec.at, queued_at=record.queued_at, **changes)

    def _options(self, spec: JobSubmitted, work: float, candidates: tuple[Candidate, ...]) -> tuple[Option, ...]:
        inventory = self.inventory
        options = []
        for candidate in candidates:
            needs = inventory.needs(candidate)
            if fits(needs, inventory.capacity):
                seconds = run_seconds(spec, work, candidate.rate)
                margin = max(0.0, late_seconds(spec, work, candidate) - seconds)
                options.append(Option(candidate=candidate, needs=needs, seconds=seconds, margin=margin))
        if len(options) > 1:
            options.sort(key=lambda option: (option.seconds, option.candidate.num_devices))
        return tuple(options)

    # -- holding devices ----------------------------------------------------------------------------------------------

    def occupy(self, record: JobRecord, option: Option, at: float) -> JobRecord:
        """Give the job the devices of the option: its next epoch begins."""
        self.dequeue(record)
        device_ids = self.inventory.allocate(record.job_id, option.candidate)
        gang = Gang(candidate=option.candidate, device_ids=device_ids, commanded_at=at, heard_at=at)
        first = at if record.first_started is None else record.first_started
        record = self.put(
            record, state=State.STARTING, epoch=record.epoch + 1, gang=gang, done=record.saved, first_started=first
        )
        finish = at + option.seconds
        end = min(finish, limits.ends_by(record, at))
        self.running[record.job_id] = RunningJob(
            job_id=record.job_id,
            started=at,
            end=end,
            finish=finish,
            needs=self.inventory.needs_of_devices(device_ids),
            option=option,
            terms=record.spec.terms,
            stoppable=record.spec.terms.preemptible,
        )
        insort(self.releases, (end, record.job_id))
        return record

    def expect_finish(self, record: JobRecord, finish: float) -> None:
        """Note when all work of the job would now be done; it gives its devices back at its max_time at the latest."""
        job = self.running[record.job_id]
        self._expect_end(replace(job, finish=finish), min(finish, limits.ends_by(record, job.started)))

    def expect_stop(self, record: JobRecord, at: float) -> None:
        """Note that the job has been told to end."""
        self._expect_end(replace(self.running[record.job_id], stoppable=False), at)

    def _expect_end(self, job: RunningJob, end: float) -> None:
        if end != job.end:
            del self.releases[bisect_left(self.releases, (job.end, job.job_id))]
            insort(self.releases, (end, job.job_id))
        self.running[job.job_id] = replace(job, end=end)

    def vacate(self, record: JobRecord) -> None:
        """Take the devices of the job's gang back."""
        if record.gang is None:
            raise InvariantError(f"job {record.job_id!r} holds no devices to give back")
        job = self.running.pop(record.job_id)
        del self.releases[bisect_left(self.releases, (job.end, record.job_id))]
        self.inventory.release(record.gang.device_ids)

    def recount_running(self) -> None:
        """After a change of the set of devices: what each gang will give back."""
        for job_id, job in self.running.items():
            gang = self.jobs[job_id].gang
            if gang is not None:
                self.running[job_id] = replace(job, needs=self.inventory.needs_of_devices(gang.device_ids))

    # -- reading and checking -----------------------------------------------------------------------------------------

    def view(self, now: float, memory: Any) -> View:
        """What a policy may see."""
        return View(
            now=now,
            queue=self.queue,
            running=self.running,
            releases=self.releases,
            free=self.inventory.free,
            capacity=self.inventory.capacity,
            num_free=self.inventory.num_free,
            num_devices=self.inventory.num_present,
            memory=memory,
        )

    def check_touched(self) -> None:
        """Check the books of the jobs touched since the last time, and the sum over all devices. O(touched).

        Raises
        ------
        InvariantError
            A law is broken: this is a bug of the controller.
        """
        for job_id in self.touched:
            self._check_job(self.jobs[job_id])
        self.touched.clear()
        inventory = self.inventory
        out_and_held = sum(device_id in inventory.holder for device_id in inventory.out)
        idle_out = len(inventory.out) - out_and_held
        if len(inventory.holder) + inventory.num_free + idle_out != len(inventory.pools.pool_of):
            raise InvariantError(
                f"devices are not conserved: {len(inventory.holder)} held + {inventory.num_free} free + {idle_out} out "
                f"of service are not {len(inventory.pools.pool_of)}"
            )
        if len(self.running) != len(self.releases) or len(self.queued) != len(self.queue):
            raise InvariantError("the lists of running or queued jobs disagree with their indices")

    def _check_job(self, record: JobRecord) -> None:
        job_id, gang = record.job_id, record.gang
        holds = record.state in HOLDING
        if holds != (gang is not None):
            raise _broken(record, "a job holds devices exactly while it is starting, running or stopping")
        if holds != (job_id in self.running):
            raise _broken(record, "what policies see as running is what holds devices")
        if (record.state is State.QUEUED) != (job_id in self.queued):
            raise _broken(record, "a job is in the queue exactly while it is queued")
        if not 0 <= record.saved <= record.done <= record.spec.work:
            raise _broken(record, "saved ≤ done ≤ work")
        if (record.state in FINAL) != (record.ended_at is not None):
            raise _broken(record, "only ended jobs have an end")
        if gang is not None:
            holder = self.inventory.holder
            if len(set(gang.device_ids)) != len(gang.device_ids) or any(
                holder.get(d) != job_id for d in gang.device_ids
            ):
                raise _broken(record, "each device of a gang is held by its job, each once")

    def check(self) -> None:
        """Check all books. O(jobs + devices).

        Raises
        ------
        InvariantError
            A law is broken.
        """
        self.touched.update(self.jobs)
        self.check_touched()
        self.inventory.check()
        held = sum(len(record.gang.device_ids) for record in self.jobs.values() if record.gang is not None)
        if held != len(self.inventory.holder):
            raise InvariantError(f"gangs have {held} devices, but {len(self.inventory.holder)} are held")
        if sorted(self.releases) != sorted((job.end, job_id) for job_id, job in self.running.items()):
            raise InvariantError("the list of expected ends disagrees with the running jobs")


def _broken(record: JobRecord, law: str) -> InvariantError:
    return InvariantError(f"job {record.job_id!r} ({record.state}) breaks a law: {law}")


def _nowhere(candidates: tuple[Candidate, ...]) -> Reason:
    if not candidates:
        return Reason(code="devices", text="no permitted set of the devices that exist now can run it")
    smallest = min(candidates, key=lambda candidate: candidate.num_devices)
    wanted = " and ".join(f"{count} of {pool}" for pool, count in smallest.demand)
    return Reason(code="devices", text=f"needs {wanted}, which do not exist at present")
