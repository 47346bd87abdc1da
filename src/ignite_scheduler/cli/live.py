"""A run while it goes on: a live table on a terminal, a line for each change elsewhere. All on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.output import console, seconds, span, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ignite_scheduler.daemon.view import JobView, Snapshot

LINE_EVERY: Final = 5.0
"""Seconds between two lines of one running job where there is no terminal."""
PROGRESS_WIDTH: Final = 24


@contextmanager
def watching() -> Iterator[Callable[[Snapshot], None]]:
    """A watcher of a run for as long as the block lasts."""
    out = console(err=True)
    if not out.is_terminal:
        yield PlainLines().show
        return
    from rich.live import Live

    with Live(console=out, refresh_per_second=4, transient=False) as live:
        yield lambda seen: live.update(live_view(seen))


class PlainLines:
    """Writes a line when a job changes its state, and one now and then while it runs."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._said_at: dict[str, float] = {}
        self._slow: set[tuple[str, str]] = set()

    def show(self, seen: Snapshot) -> None:
        """Say what is new."""
        for job in seen.jobs:
            state = str(job.state)
            changed = self._states.get(job.job_id) != state
            due = state == "running" and seen.now - self._said_at.get(job.job_id, seen.now) >= LINE_EVERY
            if changed or due:
                exits.say(f"{seen.now:7.1f} s  {job.job_id}: {sentence(job, seen.now)}")
                self._said_at[job.job_id] = seen.now
            self._states[job.job_id] = state
            for drift in job.pace.slow if job.pace is not None else ():
                if (job.job_id, drift.device) not in self._slow:
                    self._slow.add((job.job_id, drift.device))
                    exits.say(f"{seen.now:7.1f} s  {job.job_id}: {drift}")


def sentence(job: JobView, now: float) -> str:
    """How a job stands, in words."""
    parts = [str(job.state)]
    if job.device_ids:
        parts.append(f"on {placement(job)}")
    if job.pace is not None and job.work > 0:
        parts.append(f"step {job.done:.0f} of {job.work:.0f}")
        if job.pace.loss is not None:
            parts.append(f"loss {job.pace.loss:.4g}")
    elif not job.device_ids and job.reason is not None:
        parts.append(job.reason.text)
    outlook = eta(job, now)
    if outlook:
        parts.append(outlook)
    return ", ".join(parts)


def placement(job: JobView) -> str:
    """Layers at each device held, and the schedule where there is one: ``5@n/x │ 3@n/y, 1f1b ×8``."""
    if job.plan is None or len(job.plan.stages) != len(job.device_ids):
        return ", ".join(job.device_ids)
    pairs = zip(job.plan.stages, job.device_ids, strict=True)
    stages = " │ ".join(f"{len(stage.layers)}@{device}" for stage, device in pairs)
    return f"{stages}, {job.plan.schedule} ×{len(job.plan.microbatches)}"


def eta(job: JobView, now: float) -> str:
    """What is foretold of a job: time left, ``estimating``, or the time until it starts; empty if nothing can be."""
    if job.finished is not None:
        return f"took {seconds(job.finished - job.submitted)}"
    if job.pace is not None:
        if job.done >= job.work:
            return "finishing"
        left = "estimating" if job.pace.remaining is None else f"{seconds(job.pace.remaining)} left"
        return left + foretold_finish(job)
    if job.start is not None and job.started is None and job.start > now and not job.device_ids:
        return f"starts in {seconds(job.start - now)}" + foretold_finish(job)
    return ""


def foretold_finish(job: JobView) -> str:
    """When it is foretold to finish, where that is a range; empty elsewhere."""
    if job.finish_low is None or job.finish_high is None or job.finish_low == job.finish_high:
        return ""
    return f", done at {span(job.finish_low, job.finish_high)}"


def live_view(seen: Snapshot) -> RenderableType:
    """The run as a table of jobs with progress bars and a line of devices."""
    from rich.console import Group
    from rich.markup import escape
    from rich.progress_bar import ProgressBar

    rows: list[list[RenderableType]] = [
        [
            escape(job.job_id),
            _coloured(str(job.state)),
            escape(placement(job) or ("" if job.reason is None else job.reason.text)),
            ProgressBar(total=job.work or 1, completed=job.done, width=PROGRESS_WIDTH),
            f"{job.done:.0f}/{job.work:.0f}",
            "" if job.pace is None else seconds(job.pace.step),
            "" if job.pace is None or job.pace.loss is None else f"{job.pace.loss:.4g}",
            eta(job, seen.now),
        ]
        for job in seen.jobs
    ]
    rows += [
        [escape(name), "arriving", f"in {seconds(max(0.0, at - seen.now))}", "", "", "", "", ""]
        for name, at in seen.arriving
    ]
    columns = ["job", "state", "plan", "progress", "steps", "step", "loss", "outlook"]
    fleet = "   ".join(f"{device} [bold]{escape(job or '·')}[/]" for device, job in seen.holders.items())
    head = f"{seconds(seen.now)}   {fleet}" + ("   [yellow]saving and stopping[/]" if seen.stopping else "")
    slow = [
        f"[yellow]{escape(f'{job.job_id}: {drift}')}[/]"
        for job in seen.jobs
        if job.pace is not None
        for drift in job.pace.slow
    ]
    return Group(head, "", table(columns, rows, right="456"), *slow)


def _coloured(state: str) -> str:
    colours = {"running": "green", "finished": "blue", "failed": "red", "starting": "cyan", "stopping": "yellow"}
    return f"[{colours[state]}]{state}[/]" if state in colours else state
