"""Unlike devices and slow links, played by this machine: what the measured timeline must show, whatever the load."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from engine_cases import make_job, make_plan, make_spec

from ignite_scheduler.engine import reference
from ignite_scheduler.engine.gang import Gang
from ignite_scheduler.engine.groups import open_group
from ignite_scheduler.engine.reports import Failed, Finished
from ignite_scheduler.engine.specification import RankDevice
from ignite_scheduler.model import Job, Link, Plan, Reference

pytestmark = pytest.mark.torch

SLOW = 0.06
"""Seconds of one message: far longer than any action of the tiny model."""


def train(job: Job, plan: Plan, directory: Path, **more: Any) -> dict[str, Any]:
    """Run the job to its end; the timeline of its last step."""
    gang = Gang.start(make_spec(job, plan, directory, **more))
    try:
        *_, ending = gang.wait(60)
    finally:
        gang.kill()
        list(gang.wait(30))
    assert isinstance(ending, Finished), ending
    step: dict[str, Any] = json.loads((directory / "timeline.json").read_text())["steps"][-1]
    return step


def start_of(step: dict[str, Any], action: str) -> float:
    (found,) = [interval["start_s"] for interval in step["intervals"] if interval["action"] == action]
    return found


def messages(step: dict[str, Any], source: int, target: int) -> list[tuple[float, float]]:
    return sorted(
        (t["start_s"], t["end_s"]) for t in step["transfers"] if (t["source"], t["target"]) == (source, target)
    )


def test_a_wire_is_serial_duplex_and_overlaps_with_computing(tmp_path: Path) -> None:
    job = make_job(steps=3)
    bandwidth = 2 * 16 * 4 / (SLOW - 0.01)  # two rows of 16 floats
    links = {(a, b): Link(bandwidth=bandwidth, latency=0.01, wire=(a, b)) for a, b in ((0, 1), (1, 0))}
    step = train(job, make_plan(job, [3, 2], [2, 2, 2, 2], "gpipe"), tmp_path, links=links)
    forward, backward = messages(step, 0, 1), messages(step, 1, 0)
    for sent in (forward, backward):
        assert len(sent) == 4
        assert all(end - start == pytest.approx(SLOW) for start, end in sent)
        assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in pairwise(sent)), "one message at a time"
    assert all(start_of(step, f"1F{k}") >= forward[k][1] for k in range(4)), "nobody reads what has not arrived"
    assert all(start_of(step, f"0B{k}") >= backward[k][1] for k in range(4))
    assert start_of(step, "0F3") < forward[0][1], "the sender computes on while its first message travels"
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert losses == list(reference.train(job, 3, (2, 2, 2, 2)).losses), "time is played, numbers are not touched"


def test_pairs_that_share_a_wire_take_turns(tmp_path: Path) -> None:
    job = make_job(steps=3)
    common = Link(bandwidth=1e12, latency=SLOW, wire="common")
    links = {(0, 1): common, (1, 2): common}
    step = train(job, make_plan(job, [2, 2, 1], [4, 4], "gpipe"), tmp_path, links=links)
    booked = sorted(messages(step, 0, 1) + messages(step, 1, 2))
    assert len(booked) == 4
    assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in pairwise(booked))
    assert not (tmp_path / ".wires").exists(), "nothing is left of the booking"


def test_paced_devices_say_what_they_are_and_change_no_number(tmp_path: Path) -> None:
    job = make_job(steps=4, args={"dropout": 0.2})
    devices = (RankDevice(id="rank-0", speed=0.5), RankDevice(id="rank-1", speed=0.25))
    train(job, make_plan(job, [3, 2], [3, 3, 2]), tmp_path, devices=devices)
    document = json.loads((tmp_path / "timeline.json").read_text())
    assert [device["description"] for device in document["devices"]] == [
        "CPU, one thread paced to 0.5 of a core (emulated)",
        "CPU, one thread paced to 0.25 of a core (emulated)",
    ]
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert losses == list(reference.train(job, 4, (3, 3, 2)).losses)


def test_tied_weights_wait_for_their_emulated_exchange(tmp_path: Path) -> None:
    job = make_job("field_models:tied", "field_models:tokens", steps=3)
    links = {pair: Link(bandwidth=1e12, latency=SLOW, wire=pair) for pair in ((0, 1), (1, 0), (1, 2), (2, 1))}
    links |= {pair: Link(bandwidth=1e12, latency=5 * SLOW, wire=pair) for pair in ((0, 2), (2, 0))}
    step = train(job, make_plan(job, [1, 1, 1], [8]), tmp_path, links=links)
    ends = {i["action"]: i["end_s"] for i in step["intervals"]}
    updates = {f["row"]: f["start_s"] for f in step["finishes"]}
    exchange = 2 * 5 * SLOW  # a ring of two: there and back
    assert updates[0] >= ends["0B0"] + exchange
    assert updates[2] >= ends["0B0"] + exchange
    assert updates[1] < updates[0], "who shares nothing does not wait"


def test_control_groups_play_slow_devices_where_they_may_be_made(tmp_path: Path) -> None:
    """…and change no number either; where they may not be made, ranks are paced and say so."""
    job = make_job(steps=4)
    devices = (RankDevice(id="rank-0"), RankDevice(id="rank-1", speed=0.5, memory=4e9))
    train(job, make_plan(job, [3, 2], [4, 4]), tmp_path, devices=devices, emulation="groups")
    document = json.loads((tmp_path / "timeline.json").read_text())
    fast, slow = (device["description"] for device in document["devices"])
    assert fast == "CPU, one thread"
    assert slow in {
        "CPU, one thread held to 0.5 of a core by a control group (emulated)",
        "CPU, one thread paced to 0.5 of a core (emulated)",
    }
    losses = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert losses == list(reference.train(job, 4, (4, 4)).losses)
    assert not list(Path("/sys/fs/cgroup").glob("*/ignite-*")), "no group is left behind"


def test_the_kernel_ends_a_rank_that_outgrows_its_device(tmp_path: Path) -> None:
    probe = open_group("ignite-probe", speed=None, memory=1e9)
    if probe is None:
        pytest.skip("no right to make control groups here")
    probe.remove()
    job = make_job(args={"width": 2500, "depth": 3}, steps=1000)
    job = replace(job, data=Reference(module="field_models:rows", args={"width": 2500}))
    devices = (RankDevice(id="rank-0"), RankDevice(id="rank-1", memory=40e6))
    gang = Gang.start(make_spec(job, make_plan(job, [2, 2], [4, 4]), tmp_path, devices=devices, emulation="groups"))
    *_, ending = gang.wait(60)
    assert isinstance(ending, Failed)
    assert (ending.device, ending.fault) == ("rank-1", "device")
    assert ending.reason == "rank 1 on rank-1: out of memory, died: signal 9 (SIGKILL)"
