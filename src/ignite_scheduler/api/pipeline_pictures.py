"""One pipeline step as a picture: lanes for stages and links, planned or measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ignite_scheduler.api.pictures import KIND_COLOURS, KIND_NAMES, Bar, Lane, Panel, gantt
from ignite_scheduler.formats.timeline import StepTimes
from ignite_scheduler.units import format_duration

_NOUNS: Mapping[str, str] = {"F": "forward", "B": "backward", "I": "input backward", "W": "weight backward"}


def step_panel(title: str, step: StepTimes, devices: Sequence[str]) -> Panel:
    """A lane for each row (named by its device), a thin one for each pair of stages that talk.

    A row is a stage; of a measured step, one of its devices.
    """
    rows, stage_of = defaultdict[int, list[Bar]](list), dict[int, int]()
    for interval in step.intervals:
        stage, kind, k = interval.action
        stage_of[interval.row] = stage
        rows[interval.row].append(_bar(float(interval.start), float(interval.end), kind, k, f"stage {stage}"))
    for row, start, end in step.finishes:
        if end > start:
            rows[row].append(Bar(start=float(start), end=float(end), key="finish", note="all-reduce and update"))
    links = defaultdict[tuple[int, int], list[Bar]](list)
    for send in step.transfers:
        if send.end > send.start:
            note = f"{send.source}→{send.target} {_NOUNS[send.kind]} of microbatch {send.microbatch_index}"
            pair = (min(send.source, send.target), max(send.source, send.target))
            links[pair].append(Bar(start=float(send.start), end=float(send.end), key="send", note=note))
    return Panel(title=title, lanes=tuple(_lanes(rows, stage_of, links, devices)), marks=_step_mark(float(step.step)))


def _bar(start: float, end: float, kind: str, microbatch_index: int, where: str) -> Bar:
    note = f"{where}: {_NOUNS[kind]} of microbatch {microbatch_index}, {format_duration(end - start)}"
    return Bar(start=start, end=end, key=kind, text=str(microbatch_index), note=note)


def _lanes(
    rows: Mapping[int, list[Bar]],
    stage_of: Mapping[int, int],
    links: Mapping[tuple[int, int], list[Bar]],
    devices: Sequence[str],
) -> Iterable[Lane]:
    """Links stand below the last row of the first of their stages."""
    for row, device in enumerate(devices):
        stage = stage_of.get(row, row)
        yield Lane(label=f"{stage}  {device}", bars=tuple(rows.get(row, ())))
        for (first, second), bars in links.items():
            if first == stage and stage_of.get(row + 1) != stage:
                yield Lane(label=f"link {first} ⇄ {second}", bars=tuple(bars), thin=True)


def _step_mark(step: float) -> dict[str, float]:
    return {f"step {format_duration(step)}": step}


def step_svg(panels: Sequence[Panel]) -> str:
    """The panels on one time axis."""
    return gantt(panels, colours=KIND_COLOURS, names=KIND_NAMES)
