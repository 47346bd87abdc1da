"""``observation.json``: what a finished job shows of predictions, planned and measured side by side.

Written once, whole, when the job has finished, from its run directory and the records of the run. A process that is
killed just then leaves none; the next one, which reads the same records again, makes up for it. What is planned is
always the figure before any calibration, so that runs with and without one teach the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ignite_scheduler.control.events import GangFinished
from ignite_scheduler.control.records import Promise
from ignite_scheduler.cost import byte_scale, cut_bytes, stage_durations
from ignite_scheduler.cost.calibration import Calibration, Quantiles
from ignite_scheduler.cost.drift import Drift, drifts
from ignite_scheduler.cost.iteration import replica_seconds
from ignite_scheduler.cost.observation import (
    EdgeObservation,
    Observation,
    Promised,
    ReductionObservation,
    Sample,
    StageObservation,
)
from ignite_scheduler.cost.stages import ReplicaSeconds
from ignite_scheduler.daemon.directory import Asked, write_document
from ignite_scheduler.daemon.estimate import WARM_UP
from ignite_scheduler.daemon.placement import choice_of
from ignite_scheduler.daemon.ports import Record
from ignite_scheduler.daemon.report import lines_of, plan_of, read_metrics, summary
from ignite_scheduler.daemon.story import Attempt, JobStory
from ignite_scheduler.errors import IgniteError
from ignite_scheduler.formats.calibration import calibration_name
from ignite_scheduler.formats.observation import load_observation, observation_document
from ignite_scheduler.formats.run_files import (
    MEMORY_FILE,
    OBSERVATION_FILE,
    SAVES_FILE,
    TIMELINE_FILE,
    attempt_directory,
)
from ignite_scheduler.formats.timeline import StepTimes, load_timeline
from ignite_scheduler.model import Cluster, Plan
from ignite_scheduler.pipeline import Durations, timeline

Stories = Mapping[str, JobStory]


@dataclass(kw_only=True)
class Observer:
    """Told of each record of a run, leaves an observation of each job that has finished.

    Parameters
    ----------
    asked
        Job id → what was asked.
    cluster
        Before calibration.
    stories
        Job id → story, up to date with each record.
    promise
        Job id → what was promised.
    calibration
        What predictions were made with.
    directory_of
        Job id → run directory.
    num_sharing
        Of each device of a plan, how many of its devices are on the same real host.
    origin
        Time of the run's start, in seconds since 1970.
    """

    asked: Mapping[str, Asked]
    cluster: Cluster
    stories: Stories
    promise: Callable[[str], Promise | None]
    calibration: Calibration | None
    directory_of: Callable[[str], Path]
    num_sharing: Callable[[Plan], tuple[int, ...]]
    origin: float
    notices: list[str] = field(default_factory=list)

    def note(self, record: Record) -> None:
        """Take note of one more record."""
        event = record.event
        if not isinstance(event, GangFinished):
            return
        story = self.stories.get(event.job_id)
        path = self.directory_of(event.job_id) / OBSERVATION_FILE
        if story is None or story.finished != event.at or path.exists():
            return
        try:
            observation = self.observe(story)
            if observation is not None:
                write_document(path, observation_document(observation))
        except (IgniteError, OSError) as error:  # what one job shows is lost; the others' training goes on
            self.notices.append(f"{event.job_id}: no {OBSERVATION_FILE} was written: {error}")

    def slow(self) -> tuple[Drift, ...]:
        """Devices that computed slower than their range allows in the jobs that have finished."""
        found = []
        for job_id, story in self.stories.items():
            path = self.directory_of(job_id) / OBSERVATION_FILE
            if story.finished is None or not path.is_file():
                continue
            try:
                found.append(load_observation(path))
            except IgniteError as error:
                self.notices.append(f"{job_id}: {error}")
        return tuple(drift for drift in drifts(found, self.calibration) if drift.is_slow)

    def observe(self, story: JobStory) -> Observation | None:
        """What the finished job shows; None where no step after the warm-up was measured."""
        asked, directory, attempt = self.asked[story.job_id], self.directory_of(story.job_id), story.attempts[-1]
        plan, measured = plan_of(attempt), read_metrics(directory, story.attempts)
        if plan is None or measured.step is None or measured.step <= 0:
            return None
        choice = choice_of(plan, asked.profile)
        schedule, durations = stage_durations(asked.job, asked.profile, self.cluster, choice)
        replicas = replica_seconds(asked.job, asked.profile, self.cluster, choice)
        played = _Played.read(directory, plan)
        if asked.job.gradient_clip is not None:  # the norm of all gradients is waited for: lengths tell of others
            played = replace(played, updates=defaultdict(list))
        stages, others = self._stages(plan, replicas, durations, played, _peaks(directory))
        return Observation(
            job=story.job_id,
            model=str(asked.profile.provenance.get("structure") or asked.profile.name),
            schedule=plan.schedule,
            microbatches=plan.microbatches,
            stages=stages,
            others=others,
            edges=_edges(asked, plan, durations, played),
            reductions=tuple(
                ReductionObservation(stages=tuple(each.stages), planned=float(each.seconds))
                for each in durations.reductions
            ),
            planned_step=float(timeline(schedule, durations).step),
            step=Sample(median=measured.step, spread=measured.spread, count=measured.num_steps),
            startup=None if attempt.startup is None else attempt.startup + measured.slow_start,
            checkpoints=tuple(_saves(attempt_directory(directory, attempt.epoch) / SAVES_FILE)),
            beside_others=any(_beside(attempt, other) for other in self.stories.values() if other is not story),
            promised=self._promised(story, plan),
            provenance=self._provenance(story),
        )

    def _stages(
        self,
        plan: Plan,
        replicas: Sequence[Sequence[Sequence[ReplicaSeconds]]],
        durations: Durations,
        played: _Played,
        peaks: Mapping[str, float],
    ) -> tuple[tuple[StageObservation, ...], tuple[StageObservation, ...]]:
        """Of each stage the device that computes longest, and all the others."""
        rank_of = {device: rank for rank, device in enumerate(plan.device_ids)}
        num_sharing = self.num_sharing(plan)
        slowest, others = [], []
        for stage, of_stage in zip(plan.stages, replicas, strict=True):
            found = []
            for share, seconds in zip(stage.devices, of_stage, strict=True):
                device, rank = self.cluster.device(share.device), rank_of[share.device]
                found.append(
                    StageObservation(
                        device=device.id,
                        kind=device.kind,
                        speed=device.speed,
                        num_sharing=num_sharing[rank],
                        forward=tuple(each.forward for each in seconds),
                        backward=tuple(each.backward for each in seconds),
                        update=float(durations.finish[stage.index]),
                        measured_forward=summary(played.actions[rank, "F"]),
                        measured_backward=summary(played.actions[rank, "B"]),
                        # where gradients of replicas are added up, the end of a step is not the update alone
                        measured_update=summary(played.updates[rank]) if len(of_stage) == 1 else None,
                        planned_memory=share.memory,
                        peak_memory=peaks.get(device.id),
                    )
                )
            longest = max(found, key=lambda each: each.forward[0] + each.backward[0])
            slowest.append(longest)
            others += [each for each in found if each is not longest]
        return tuple(slowest), tuple(others)

    def _promised(self, story: JobStory, plan: Plan) -> Promised:
        promise, predicted = self.promise(story.job_id), plan.predicted
        assert story.finished is not None
        return Promised(
            calibration=None if self.calibration is None else calibration_name(self.calibration),
            step=Quantiles(low=predicted.step_low, middle=predicted.step, high=predicted.step_high),
            finish_low=None if promise is None else promise.finish_low - story.submitted,
            finish_high=None if promise is None else promise.finish_high - story.submitted,
            finished=story.finished - story.submitted,
        )

    def _provenance(self, story: JobStory) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.origin + (story.finished or 0.0), UTC)
        return {
            "finished": at.isoformat(timespec="seconds"),
            "cluster": self.cluster.name,
            "attempts": len(story.attempts),
        }


def _beside(attempt: Attempt, other: JobStory) -> bool:
    """Whether a gang of the other job held devices while the attempt did."""
    until = attempt.ended if attempt.ended is not None else float("inf")
    return any(
        each.commanded < until and (each.ended is None or each.ended > attempt.commanded) for each in other.attempts
    )


@dataclass(frozen=True, kw_only=True)
class _Played:
    """Measured seconds: of actions by (rank, ``F`` or ``B``), of messages by (source, target, kind), updates by rank.

    Of full microbatches only: the last one may be smaller. Where several devices send or receive a microbatch, that of
    the busiest pair.
    """

    actions: Mapping[tuple[int, str], list[float]]
    messages: Mapping[tuple[int, int, str], list[float]]
    updates: Mapping[int, list[float]]

    @classmethod
    def read(cls, directory: Path, plan: Plan) -> _Played:
        """From the measured timeline in the directory."""
        full = {k for k, samples in enumerate(plan.microbatches) if samples == plan.microbatches[0]}
        actions: dict[tuple[int, str], list[float]] = defaultdict(list)
        messages: dict[tuple[int, int, str], list[float]] = defaultdict(list)
        updates: dict[int, list[float]] = defaultdict(list)
        for step in _after_warm_up(load_timeline(directory / TIMELINE_FILE).steps):
            for interval in step.intervals:
                if interval.action.microbatch_index in full:
                    key = interval.row, interval.action.kind
                    actions[key].append(float(interval.end - interval.start))
            longest: dict[tuple[int, int, str, int], float] = defaultdict(float)
            for transfer in step.transfers:
                if transfer.microbatch_index in full:
                    message = transfer.source, transfer.target, transfer.kind, transfer.microbatch_index
                    longest[message] = max(longest[message], float(transfer.end - transfer.start))
            for (source, target, kind, _), seconds in longest.items():
                messages[source, target, kind].append(seconds)
            for row, start, end in step.finishes:
                updates[row].append(end - start)
        return cls(actions=actions, messages=messages, updates=updates)


def _after_warm_up(steps: tuple[StepTimes, ...]) -> tuple[StepTimes, ...]:
    """Without the first steps of a job, as far as that leaves any."""
    late = tuple(step for step in steps if step.step_index > WARM_UP)
    return late or steps


def _edges(asked: Asked, plan: Plan, durations: Durations, played: _Played) -> tuple[EdgeObservation, ...]:
    scale = byte_scale(asked.job, asked.profile) * plan.microbatches[0]
    cuts = [num_bytes * scale for num_bytes in cut_bytes(asked.profile, choice_of(plan, asked.profile).split)]
    found = []
    for edge, num_bytes in zip(durations.edges, cuts, strict=True):
        ways = (
            (edge.source, edge.target, "F", edge.forward_wire, edge.forward),
            (edge.target, edge.source, "B", edge.backward_wire, edge.backward),
        )
        found += [
            EdgeObservation(
                source=source,
                target=target,
                kind="F" if kind == "F" else "B",
                wire=str(wire),
                bytes=num_bytes,
                planned=tuple(map(float, planned)),
                measured=summary(played.messages[source, target, kind]),
            )
            for source, target, kind, wire, planned in ways
        ]
    return tuple(found)


def _saves(path: Path) -> Iterable[tuple[float, float]]:
    """Bytes and seconds of each checkpoint of the attempt."""
    for line in lines_of(path):
        num_bytes, seconds = line.get("bytes"), line.get("save_s")
        if isinstance(num_bytes, int | float) and isinstance(seconds, int | float):
            yield float(num_bytes), float(seconds)


def _peaks(directory: Path) -> dict[str, float]:
    """Device → bytes at its peak above an idle rank, where the engine measured them."""
    try:
        entries = json.loads((directory / MEMORY_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        device, idle, peak = (entry.get(key) for key in ("device", "idle_bytes", "peak_bytes"))
        if isinstance(device, str) and isinstance(idle, int | float) and isinstance(peak, int | float):
            found[device] = max(0.0, float(peak - idle))
    return found
