"""What a run came to: for each job what was planned, promised, measured; for each device who held it when.

Built from the records, from the controller that they lead to, and from the metrics that the gangs left: so the report
of a run that was killed and continued is the report of one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from ignite_scheduler.control import FINAL, Controller, Promise, State
from ignite_scheduler.cost.drift import Drift
from ignite_scheduler.cost.observation import Sample
from ignite_scheduler.daemon.estimate import WARM_UP
from ignite_scheduler.daemon.placement import on_devices
from ignite_scheduler.daemon.shell import Outcome
from ignite_scheduler.daemon.story import Attempt, JobStory
from ignite_scheduler.formats.run_files import METRICS_FILE
from ignite_scheduler.model import Infeasible, Plan
from ignite_scheduler.policy.view import Reason

_CUT_SHORT: Final = Reason(code="interrupted", text="the run was interrupted; continue it with --resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the metrics of a job say.

    ``step`` is the median in seconds over ``num_steps`` steps: those of all attempts by the plan of the last one, each
    without its warm-up. ``spread`` is their interquartile range ÷ median. ``losses`` are by step. ``slow_start``:
    seconds that the warm-up of the last attempt took beyond as many such steps.
    """

    step: float | None
    num_steps: int
    losses: tuple[float, ...]
    spread: float = 0.0
    slow_start: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A device held by a gang from ``start`` to ``end``, in seconds of the run; its steps run from ``working`` on."""

    device_id: str
    job_id: str
    epoch: int
    start: float
    working: float | None
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job. Times are seconds since the run's origin, None for what did not happen.

    ``plans`` are those of its attempts, on the devices that they had. ``promise`` is what was foretold when it was
    admitted. ``directory`` is its run directory.
    """

    story: JobStory
    state: State
    reason: Reason | None
    refused: Infeasible | None
    promise: Promise | None
    plans: tuple[Plan, ...]
    measured: Measured
    directory: Path

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self.story.job_id

    @property
    def planned_step(self) -> float | None:
        """Predicted seconds of a step under the last attempt's plan."""
        return self.plans[-1].predicted.step if self.plans else None

    @property
    def step_error(self) -> float | None:
        """Measured ÷ planned step time − 1."""
        planned, measured = self.planned_step, self.measured.step
        return None if planned is None or measured is None else measured / planned - 1

    @property
    def promise_error(self) -> float | None:
        """(Real − promised) ÷ promised job completion time, the promise taken in the middle of its range."""
        if self.promise is None or self.story.finished is None:
            return None
        promised = (self.promise.finish_low + self.promise.finish_high) / 2 - self.story.submitted
        return (self.story.finished - self.story.submitted) / promised - 1 if promised > 0 else None

    @property
    def promise_kept(self) -> bool | None:
        """Whether it finished within the range that was promised; None where no range was, or it did not finish."""
        if self.promise is None or self.story.finished is None or self.promise.finish_low == self.promise.finish_high:
            return None
        return self.promise.finish_low <= self.story.finished <= self.promise.finish_high

    @property
    def startups(self) -> tuple[float, ...]:
        """Seconds from command to first step, of each attempt that got so far."""
        return tuple(attempt.startup for attempt in self.story.attempts if attempt.startup is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The whole run. ``notices`` say what was emulated. ``end`` is the time of the last event.

    ``slow`` are devices that computed slower than their range allows in the jobs that have finished.
    """

    outcome: Outcome
    policy: str
    directory: Path
    jobs: tuple[JobReport, ...]
    bars: tuple[Bar, ...]
    notices: tuple[str, ...]
    end: float
    slow: tuple[Drift, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether every job finished its work."""
        return all(job.state is State.FINISHED for job in self.jobs)


def job_report(story: JobStory, controller: Controller, directory: Path, outcome: Outcome) -> JobReport:
    """The report of one job that the controller knows, at the end of a run that ended so."""
    record = controller.job(story.job_id)
    cut_short = outcome in ("interrupted", "killed") and record.state not in FINAL
    return JobReport(
        story=story,
        state=record.state,
        reason=_CUT_SHORT if cut_short else controller.reason(story.job_id),
        refused=record.rejection,
        promise=controller.promises.get(story.job_id),
        plans=tuple(plan for plan in map(plan_of, story.attempts) if plan is not None),
        measured=read_metrics(directory, story.attempts),
        directory=directory,
    )


def plan_of(attempt: Attempt) -> Plan | None:
    """The attempt's plan on the devices that it had; None for a job without pipeline."""
    plan = attempt.candidate.plan
    return None if plan is None else on_devices(plan, attempt.device_ids)


def bars(stories: Iterable[JobStory], end: float) -> tuple[Bar, ...]:
    """Who held which device when, by device and time; what still holds one at ``end`` holds it until then."""
    found = [
        Bar(
            device_id=device_id,
            job_id=story.job_id,
            epoch=attempt.epoch,
            start=attempt.commanded,
            working=attempt.started,
            end=end if attempt.ended is None else attempt.ended,
        )
        for story in stories
        for attempt in story.attempts
        for device_id in attempt.device_ids
    ]
    return tuple(sorted(found, key=lambda bar: (bar.device_id, bar.start)))


def summary(seconds: Sequence[float]) -> Sample | None:
    """Median and relative spread of measurements; None if there are none."""
    if not seconds:
        return None
    middle = median(seconds)
    if len(seconds) == 1 or middle <= 0:
        return Sample(median=middle, spread=0.0, count=len(seconds))
    lower, _, upper = quantiles(seconds, n=4, method="inclusive")
    return Sample(median=middle, spread=(upper - lower) / middle, count=len(seconds))


def read_metrics(directory: Path, attempts: Sequence[Attempt]) -> Measured:
    """What ``metrics.jsonl`` says of the job; of a step that was done again only the last time counts there."""
    lines = [line for line in lines_of(directory / METRICS_FILE) if "step" in line and "step_s" in line]
    counted: set[int] = set()
    for number, attempt in enumerate(attempts, start=1):
        if plan_of(attempt) == plan_of(attempts[-1]):
            is_last = number == len(attempts)
            end = max((line["step"] for line in lines), default=0) if is_last else int(attempts[number].saved)
            counted.update(range(int(attempt.saved) + WARM_UP + 1, end + 1))
    steps = summary([line["step_s"] for line in lines if line["step"] in counted])
    first = int(attempts[-1].saved) + 1 if attempts else 1
    early = [line["step_s"] for line in lines if first <= line["step"] < first + WARM_UP]
    return Measured(
        step=None if steps is None else steps.median,
        num_steps=0 if steps is None else steps.count,
        spread=0.0 if steps is None else steps.spread,
        slow_start=0.0 if steps is None else max(0.0, sum(early) - len(early) * steps.median),
        losses=tuple(line["loss"] for line in lines if line.get("loss") is not None),
    )


def lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """Whole lines of a JSON-lines file, none where it does not exist; one that a crash cut off is passed over."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry
