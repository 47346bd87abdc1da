"""One pipeline step as a picture: lanes for stages and links, planned or measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ignite_scheduler.api.pictures import KIND_COLOURS, KIND_NAMES, Bar, Lane, Panel, gantt
from ignite_scheduler.formats.timeline import StepTimes
from ignite_scheduler.units import format_duration

_NOUNS: Mapping[str, str] = {"F": "forward", "B": "backward", "I": "input backward", "W": "weight backward"}


def step_panel(title: str, step: StepTimes, devices: Sequence[str]) -> Panel:
    """A lane for each stage (named by its device), a thin one for each pair of stages that talk."""
    stages = defaultdict[int, list[Bar]](list)
    for interval in step.intervals:
        stage, kind, k = interval.action
        stages[stage].append(_bar(float(interval.start), float(interval.end), kind, k, f"stage {stage}"))
    for stage, start, end in step.finishes:
        if end > start:
            stages[stage].append(Bar(start=float(start), end=float(end), key="finish", note="all-reduce and update"))
    links = defaultdict[tuple[int, int], list[Bar]](list)
    for send in step.transfers:
        if send.end > send.start:
            note = f"{send.source}→{send.target} {_NOUNS[send.kind]} of microbatch {send.microbatch_index}"
            pair = (min(send.source, send.target), max(send.source, send.target))
            links[pair].append(Bar(start=float(send.start), end=float(send.end), key="send", note=note))
    return Panel(title=title, lanes=tuple(_lanes(stages, links, devices)), marks=_step_mark(float(step.step)))


def _bar(start: float, end: float, kind: str, microbatch_index: int, where: str) -> Bar:
    note = f"{where}: {_NOUNS[kind]} of microbatch {microbatch_index}, {format_duration(end - start)}"
    return Bar(start=start, end=end, key=kind, text=str(microbatch_index), note=note)


def _lanes(
    stages: Mapping[int, list[Bar]], links: Mapping[tuple[int, int], list[Bar]], devices: Sequence[str]
) -> Iterable[Lane]:
    for stage, device in enumerate(devices):
        yield Lane(label=f"{stage}  {device}", bars=tuple(stages.get(stage, ())))
        for (first, second), bars in links.items():
            if first == stage:
                yield Lane(label=f"link {first} ⇄ {second}", bars=tuple(bars), thin=True)


def _step_mark(step: float) -> dict[str, float]:
    return {f"step {format_duration(step)}": step}


def step_svg(panels: Sequence[Panel]) -> str:
    """The panels on one time axis."""
    return gantt(panels, colours=KIND_COLOURS, names=KIND_NAMES)
