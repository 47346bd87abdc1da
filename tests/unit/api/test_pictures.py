"""Pictures hold what they were given, on one time axis."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from ignite_scheduler.api.cluster_pictures import Holding, cluster_panel, cluster_svg
from ignite_scheduler.api.pictures import Bar, Lane, Panel, gantt, job_colours
from ignite_scheduler.api.pipeline_pictures import step_panel, step_svg
from ignite_scheduler.formats import chrome_trace
from ignite_scheduler.formats.timeline import StepTimes, parse_timeline, planned_document
from ignite_scheduler.pipeline import Durations, Edge, Timeline, make_schedule, timeline

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(found.itertext()) for found in ET.fromstring(svg).iter(f"{SVG}text")]


def tooltips(svg: str) -> list[str]:
    return [found.text or "" for found in ET.fromstring(svg).iter(f"{SVG}title")]


def line() -> Timeline:
    edge = Edge(source=0, target=1, forward=(1,) * 3, backward=(1,) * 3, forward_wire="a", backward_wire="b")
    durations = Durations(forward=((2,) * 3,) * 2, backward=((4,) * 3,) * 2, edges=(edge,), finish=(0, 1))
    return timeline(make_schedule("1f1b", 2, 3), durations)


def step() -> StepTimes:
    return parse_timeline(planned_document(line(), job="j", devices=["n/x-0", "n/y-0"])).steps[0]


def test_every_action_and_message_of_a_step_is_drawn() -> None:
    svg = step_svg([step_panel("a <step>", step(), ["n/x-0", "n/y-0"])])

    notes = tooltips(svg)
    assert len([note for note in notes if note.startswith("stage ")]) == 2 * 3 * 2
    assert len([note for note in notes if "→" in note]) == 2 * 3
    assert notes.count("all-reduce and update") == 1
    assert {"a <step>", "0  n/x-0", "1  n/y-0", "link 0 ⇄ 1", "forward", "backward", "transfer"} <= set(texts(svg))


def test_the_rows_of_groups_are_called_by_their_first_device() -> None:
    document = planned_document(line(), job="j", devices=["n/x-0, n/x-1, n/z-0", "n/y-0"])

    record = parse_timeline(document)
    drawn = texts(step_svg([step_panel("a step", record.steps[0], record.row_names)]))
    traced = [event["args"].get("name") for event in chrome_trace(record)["traceEvents"]]

    assert {"0  n/x-0 and 2 more", "1  n/y-0"} <= set(drawn)
    assert {"0: n/x-0 and 2 more", "1: n/y-0"} <= set(traced)
    assert record.devices[0] == "n/x-0, n/x-1, n/z-0"


def test_each_device_of_a_measured_group_has_its_row() -> None:
    planned = step()
    doubled = [interval._replace(row=2 * interval.row + twin) for interval in planned.intervals for twin in (0, 1)]
    measured = replace(planned, intervals=tuple(doubled), finishes=((3, 30.0, 31.0),))

    labels = texts(step_svg([step_panel("a step", measured, ["a", "b", "c", "d"])]))

    rows = [label for label in labels if label[:1] in "01" or label.startswith("link")]
    assert [row for row in rows if "  " in row or "link" in row] == ["0  a", "0  b", "link 0 ⇄ 1", "1  c", "1  d"]


def test_the_legend_names_only_what_is_there() -> None:
    lane = Lane(label="x", bars=(Bar(start=0, end=1, key="F"),))

    svg = gantt([Panel(title="t", lanes=(lane,))], colours={}, names={"F": "forward", "B": "backward"})

    assert "forward" in texts(svg)
    assert "backward" not in texts(svg)


@pytest.mark.parametrize("end", [1e-5, 3e-3, 0.5, 7, 137, 300, 7000, 86400])
def test_any_length_of_time_has_a_readable_axis(end: float) -> None:
    lane = Lane(label="x", bars=(Bar(start=0, end=end, key="F"),))

    ticks = [
        text for text in texts(gantt([Panel(title="", lanes=(lane,))], colours={}, names={})) if text[:1].isdigit()
    ]

    assert 4 <= len(ticks) <= 13
    assert len(set(ticks)) == len(ticks)


def test_an_empty_picture_is_still_one() -> None:
    assert ET.fromstring(gantt([Panel(title="nothing", lanes=())], colours={}, names={})) is not None


def test_a_cluster_shows_who_held_what_and_who_waited() -> None:
    holdings = [
        Holding(job="a", devices=("x", "y"), start=0, working=2, end=10),
        Holding(job="b", devices=("y",), start=10, end=20),
    ]

    svg = cluster_svg([cluster_panel("cluster", ["x", "y"], holdings, submissions={"a": 0, "b": 5})], ["a", "b"])

    notes = tooltips(svg)
    assert notes.count("a: 10s on x, y (starting)") == 2
    assert notes.count("b: 10s on y") == 1
    assert notes.count("b waits 5s") == 1


def test_each_job_has_its_colour() -> None:
    colours = job_colours(["a", "b", "a", "c"])

    assert list(colours) == ["a", "b", "c"]
    assert len(set(colours.values())) == 3
