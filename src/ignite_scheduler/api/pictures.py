"""Gantt pictures as SVG: a pipeline step (planned, measured, or both on one time axis) and a cluster's day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import drawsvg

WIDTH: Final = 1100
LANE: Final = 26
LANE_GAP: Final = 4
LABEL_WIDTH: Final = 190
MARGIN: Final = 14
TITLE: Final = 24
AXIS: Final = 34
LEGEND: Final = 24
CHARACTER: Final = 6.6
"""Width of a character at font size 11, for deciding whether a text fits its bar."""
FONT: Final = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
INK: Final = "#1f2933"
PALE_INK: Final = "#7b8794"
RULE: Final = "#e4e7eb"
GROUND: Final = "#f5f7fa"

KIND_COLOURS: Final[Mapping[str, str]] = {
    "F": "#4c86c6",
    "B": "#e39a3b",
    "I": "#e3b23b",
    "W": "#9b7fc2",
    "send": "#9aa5b1",
    "finish": "#6aa84f",
}
KIND_NAMES: Final[Mapping[str, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "backward: inputs",
    "W": "backward: weights",
    "send": "transfer",
    "finish": "all-reduce and update",
}
JOB_COLOURS: Final = (
    "#4c86c6", "#e39a3b", "#6aa84f", "#c75d6a", "#9b7fc2", "#3aa6a0", "#b08a3c", "#d27ab0", "#70808f", "#8fb339",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time in a lane, in seconds; ``key`` chooses the colour, ``note`` appears under the mouse."""

    start: float
    end: float
    key: str
    text: str = ""
    note: str = ""
    faded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of the picture. ``thin`` rows (links) are drawn at half height."""

    label: str
    bars: tuple[Bar, ...]
    thin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows under one title; all panels of a picture share the time axis."""

    title: str
    lanes: tuple[Lane, ...]
    marks: Mapping[str, float] = field(default_factory=dict)
    """Text → instant of a vertical line."""


def gantt(panels: Sequence[Panel], *, colours: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The panels as one SVG document.

    Parameters
    ----------
    panels
        From top to bottom.
    colours
        Key of a bar → CSS colour.
    names
        Key of a bar → its name in the legend; keys that no bar has are left out.

    Notes
    -----
    O(bars). Texts that would not fit their bar are left out (they stay in the tooltip).
    """
    used = [bar.key for panel in panels for lane in panel.lanes for bar in lane.bars]
    legend = [key for key in names if key in set(used)]
    end = max(
        [b.end for p in panels for lane in p.lanes for b in lane.bars] + [m for p in panels for m in p.marks.values()],
        default=1.0,
    )
    end = end if end > 0 else 1.0
    height = MARGIN * 2 + LEGEND + sum(_panel_height(panel) for panel in panels)
    canvas = drawsvg.Drawing(WIDTH, height, origin=(0, 0), font_family=FONT)
    canvas.append(drawsvg.Rectangle(0, 0, WIDTH, height, fill="white"))
    _draw_legend(canvas, legend, colours, names)
    top = float(MARGIN + LEGEND)
    for panel in panels:
        _draw_panel(canvas, panel, top, end, colours)
        top += _panel_height(panel)
    return str(canvas.as_svg())


def _lane_height(lane: Lane) -> float:
    return LANE / 2 if lane.thin else LANE


def _panel_height(panel: Panel) -> float:
    return TITLE + AXIS + sum(_lane_height(lane) + LANE_GAP for lane in panel.lanes)


def _x(instant: float, end: float) -> float:
    return LABEL_WIDTH + (WIDTH - LABEL_WIDTH - MARGIN) * instant / end


def _text(text: str, size: float, x: float, y: float, **style: str) -> drawsvg.Text:
    # The baseline is lowered by hand: not every renderer knows dominant-baseline.
    return drawsvg.Text(text, size, x, y + 0.36 * size, **({"fill": INK} | style))


def _draw_legend(
    canvas: drawsvg.Drawing, keys: Iterable[str], colours: Mapping[str, str], names: Mapping[str, str]
) -> None:
    x = float(LABEL_WIDTH)
    for key in keys:
        canvas.append(drawsvg.Rectangle(x, MARGIN, 12, 12, rx=2, fill=colours.get(key, PALE_INK)))
        canvas.append(_text(names[key], 11, x + 17, MARGIN + 6))
        x += 17 + CHARACTER * len(names[key]) + 18


def _draw_panel(canvas: drawsvg.Drawing, panel: Panel, top: float, end: float, colours: Mapping[str, str]) -> None:
    canvas.append(_text(panel.title, 13, MARGIN, top + TITLE / 2, font_weight="bold"))
    y = top + TITLE
    bottom = y + sum(_lane_height(lane) + LANE_GAP for lane in panel.lanes)
    canvas.append(drawsvg.Rectangle(LABEL_WIDTH, y, WIDTH - LABEL_WIDTH - MARGIN, bottom - y, fill=GROUND))
    for instant in _ticks(end):
        x = _x(instant, end)
        canvas.append(drawsvg.Line(x, y, x, bottom + 4, stroke=RULE, stroke_width=1))
        anchor = "middle" if x < WIDTH - 3 * MARGIN else "end"
        canvas.append(_text(_instant(instant, end), 10, x, bottom + 12, text_anchor=anchor, fill=PALE_INK))
    for lane in panel.lanes:
        _draw_lane(canvas, lane, y, end, colours)
        y += _lane_height(lane) + LANE_GAP
    for text, instant in panel.marks.items():
        x = _x(instant, end)
        canvas.append(drawsvg.Line(x, top + TITLE, x, bottom + 4, stroke="#c75d6a", stroke_dasharray="4 3"))
        side = {"text_anchor": "end"} if x > WIDTH / 2 else {}
        canvas.append(_text(text, 10, x + (-4 if side else 4), top + TITLE / 2, fill="#c75d6a", **side))


def _draw_lane(canvas: drawsvg.Drawing, lane: Lane, y: float, end: float, colours: Mapping[str, str]) -> None:
    height = _lane_height(lane)
    size = 9 if lane.thin else 11
    room = int((LABEL_WIDTH - MARGIN - 8) / (CHARACTER * size / 11))
    label = lane.label if len(lane.label) <= room else "…" + lane.label[1 - room :]
    canvas.append(
        _text(label, size, LABEL_WIDTH - 8, y + height / 2, text_anchor="end", fill=PALE_INK if lane.thin else INK)
    )
    for bar in lane.bars:
        x, width = _x(bar.start, end), max(0.6, _x(bar.end, end) - _x(bar.start, end))
        box = drawsvg.Rectangle(
            x, y, width, height, rx=min(2.0, width / 4), fill=colours.get(bar.key, PALE_INK),
            fill_opacity=0.35 if bar.faded else 1, stroke="white", stroke_width=min(0.8, width / 6),
        )  # fmt: skip
        if bar.note:
            box.append_title(bar.note)
        canvas.append(box)
        if bar.text and CHARACTER * len(bar.text) + 4 <= width and not lane.thin:
            fill = INK if bar.faded else "white"
            canvas.append(_text(bar.text, 11, x + width / 2, y + height / 2, text_anchor="middle", fill=fill))


_UNITS: Final = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_LONGEST_AXIS: Final = 12
"""Ticks on one axis at most."""


def _unit(end: float) -> tuple[str, float]:
    return next((unit for unit in _UNITS if end >= 2 * unit[1]), _UNITS[-1])


def _ticks(end: float) -> list[float]:
    """Instants from 0 to ``end`` that are round numbers of the axis's unit."""
    name, factor = _unit(end)
    least = end / factor / _LONGEST_AXIS
    power = 10.0 ** math.floor(math.log10(least))
    rounds = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0) if name == "min" else (1.0, 2.0, 2.5, 5.0, 10.0)
    steps = rounds if name == "min" else [power * round_number for round_number in rounds]
    step = next((step for step in steps if step >= least * (1 - 1e-9)), steps[-1]) * factor
    return [step * index for index in range(math.floor(end / step * (1 + 1e-9)) + 1)]


def _instant(instant: float, end: float) -> str:
    name, factor = _unit(end)
    return f"{instant / factor:g} {name}"


def job_colours(jobs: Iterable[str]) -> dict[str, str]:
    """A colour for each job, by order of appearance (they repeat after ten)."""
    return {job: JOB_COLOURS[index % len(JOB_COLOURS)] for index, job in enumerate(dict.fromkeys(jobs))}
