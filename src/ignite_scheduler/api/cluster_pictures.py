"""A cluster in time as a picture: a lane for each device, a bar for each gang that held it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ignite_scheduler.api.pictures import Bar, Lane, Panel, gantt, job_colours
from ignite_scheduler.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A gang that held devices from ``start`` to ``end`` and did work from ``working`` on (seconds; None = at once)."""

    job: str
    devices: tuple[str, ...]
    start: float
    end: float
    working: float | None = None
    note: str = ""


def cluster_panel(
    title: str, devices: Sequence[str], holdings: Iterable[Holding], *, submissions: Mapping[str, float] | None = None
) -> Panel:
    """A lane for each device; start-up is drawn pale. ``submissions`` (job → instant) become lanes of waiting below."""
    found = list(holdings)
    lanes = [
        Lane(
            label=device,
            bars=tuple(bar for holding in found if device in holding.devices for bar in _bars(holding)),
        )
        for device in devices
    ]
    waits = submissions or {}
    return Panel(title=title, lanes=(*lanes, *_waiting_lanes(found, waits)))


def _bars(holding: Holding) -> Iterable[Bar]:
    working = holding.start if holding.working is None else min(holding.working, holding.end)
    length = format_duration(holding.end - holding.start)
    note = holding.note or f"{holding.job}: {length} on {', '.join(holding.devices)}"
    if working > holding.start:
        yield Bar(start=holding.start, end=working, key=holding.job, note=f"{note} (starting)", faded=True)
    if holding.end > working:
        yield Bar(start=working, end=holding.end, key=holding.job, text=holding.job, note=note)


def _waiting_lanes(holdings: Sequence[Holding], submissions: Mapping[str, float]) -> Iterable[Lane]:
    for job, instant in submissions.items():
        mine = sorted((holding for holding in holdings if holding.job == job), key=lambda holding: holding.start)
        bars = []
        free = instant
        for holding in mine:
            if holding.start > free:
                note = f"{job} waits {format_duration(holding.start - free)}"
                bars.append(Bar(start=free, end=holding.start, key=job, faded=True, note=note))
            bars.append(Bar(start=holding.start, end=holding.end, key=job, note=f"{job} holds devices"))
            free = holding.end
        yield Lane(label=job, bars=tuple(bars), thin=True)


def cluster_svg(panels: Sequence[Panel], jobs: Iterable[str]) -> str:
    """The panels on one time axis, a colour for each job."""
    names = list(dict.fromkeys(jobs))
    return gantt(panels, colours=job_colours(names), names={name: name for name in names})
