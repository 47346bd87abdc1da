"""Timelines and Chrome traces: one format for planned and measured, every action once in the trace."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import chrome_trace, load_timeline, parse_timeline, planned_document, write_json
from ignite_scheduler.pipeline import Durations, Edge, Timeline, make_schedule, timeline

DEVICES = ("lab1/a-0", "lab2/b-0")


def planned() -> Timeline:
    edge = Edge(source=0, target=1, forward=(0.5,) * 3, backward=(0.5,) * 3, forward_wire="a", backward_wire="b")
    durations = Durations(forward=((1,) * 3,) * 2, backward=((2,) * 3,) * 2, edges=(edge,), finish=(0, 0.25))
    return timeline(make_schedule("1f1b", 2, 3), durations)


def document() -> dict[str, Any]:
    return planned_document(planned(), job="j", devices=DEVICES)


def test_a_planned_step_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_json(path, document())
    record = load_timeline(path)

    line = planned()
    assert (record.measured, record.job, record.devices) == (False, "j", DEVICES)
    [step] = record.steps
    assert step.step == line.step
    assert step.intervals == line.intervals
    assert [transfer[:6] for transfer in step.transfers] == [transfer[:6] for transfer in line.transfers]
    assert step.finishes == tuple((row, *times) for row, times in enumerate(line.finishes))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": "ignite/timeline/v2"}, "schema"),
        ({"measured": 1}, "measured"),
        ({"steps": [{"step": 0, "step_s": -1, "intervals": []}]}, "steps[0].step_s"),
        (
            {"steps": [{"step": 0, "step_s": 1, "intervals": [{"action": "2X0", "row": 0, "start_s": 0, "end_s": 1}]}]},
            "steps[0].intervals[0].action",
        ),
    ],
)
def test_a_wrong_timeline_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_timeline(document() | change)
    assert caught.value.field == field


def measured() -> dict[str, Any]:
    found = document() | {"measured": True}
    [step] = found["steps"]
    return found | {"steps": [step | {"step": 7}, step | {"step": 8}]}


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_the_trace_has_every_action_and_message_once_a_step() -> None:
    trace = chrome_trace(parse_timeline(document()), parse_timeline(measured()))
    line = planned()
    names = Counter((event["pid"], event["name"]) for event in complete(trace))
    for interval in line.intervals:
        assert names[1, str(interval.action)] == names[2, str(interval.action)] == 2
    transfers = [event for event in complete(trace) if event["cat"] == "transfer"]
    assert len(transfers) == 4 * len(line.transfers)
    assert names[2, "update"] == 2  # only where it takes time


def test_threads_are_the_devices_and_the_directions_of_links() -> None:
    trace = chrome_trace(parse_timeline(document()))
    named = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert list(named.values()) == ["0: lab1/a-0", "1: lab2/b-0", "link 0 → 1", "link 1 → 0"]
    rows = {event["args"].get("stage"): named[event["tid"]] for event in complete(trace) if event["cat"] == "forward"}
    assert rows == {0: "0: lab1/a-0", 1: "1: lab2/b-0"}


def test_things_on_one_thread_do_not_overlap() -> None:
    trace = chrome_trace(parse_timeline(document()), parse_timeline(measured()))
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in complete(trace):
        assert event["dur"] >= 0
        threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(spans))


def test_measured_steps_follow_one_another_in_microseconds() -> None:
    trace = chrome_trace(None, parse_timeline(measured()))
    starts = sorted(event["ts"] for event in complete(trace) if event["name"] == "0F0")
    assert starts == [0.0, planned().step * 1e6]
    assert {event["args"]["step"] for event in complete(trace)} == {7, 8}


def test_the_trace_is_plain_json() -> None:
    json.dumps(chrome_trace(parse_timeline(document()), parse_timeline(measured())), allow_nan=False)
    assert chrome_trace(None)["traceEvents"] == []
