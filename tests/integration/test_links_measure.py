"""Links measured between real processes: played ones give what the file declares, joined ones meet and agree."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from typing import Any

import pytest

pytest.importorskip("torch")

from ignite_scheduler.engine.processes import fork
from ignite_scheduler.formats import parse_cluster
from ignite_scheduler.profiler.links import (
    Endpoint,
    LineFit,
    LinksMeasured,
    Meeting,
    Options,
    PairLink,
    fit_line,
    links_section,
    measure_here,
)
from ignite_scheduler.profiler.links.analysis import are_unlike
from ignite_scheduler.profiler.links.meeting import measure_joined

pytestmark = pytest.mark.torch

PLAYED: dict[str, Any] = {
    "version": 1,
    "name": "played",
    "nodes": [
        {"name": "a", "devices": [{"kind": "box", "count": 2, "speed": 1, "memory": "1GB"}]},
        {"name": "b", "devices": [{"kind": "box", "speed": 1, "memory": "1GB"}]},
    ],
    "links": {
        "pairs": [
            {"within": "a", "bandwidth": "8MB/s", "latency": "4ms"},
            {"from": "a", "to": "b", "bandwidth": "6MB/s", "latency": "6ms"},
            {"from": "b", "to": "a", "bandwidth": "4MB/s", "latency": "12ms"},
        ]
    },
}
"""Messages take far longer than a busy machine takes to wake a process."""


def undisturbed(pair: PairLink) -> LineFit:
    """The line through the fastest messages: a busy machine delays some, and speeds up none."""
    return fit_line({size: seconds.low for size, seconds in pair.by_size.items()})


def test_played_links_are_measured_as_declared() -> None:
    cluster = parse_cluster(PLAYED)
    options = Options(sizes=(65536, 524288), repeats=4, rounds=1, timeout=60)
    steps: list[tuple[int, int]] = []

    measured = measure_here(cluster, options, progress=lambda done, total: steps.append((done, total)))

    assert len(measured.pairs) == 6
    for pair in measured.pairs:
        link = cluster.link(cluster.device(pair.source.device), cluster.device(pair.target.device))
        assert link is not None
        assert pair.played is not None
        assert undisturbed(pair).bandwidth == pytest.approx(link.bandwidth, rel=0.15)
        assert all(size.typical >= link.seconds(num_bytes) for num_bytes, size in pair.by_size.items())
    there, back = measured.pair("a/box-1", "b/box-0"), measured.pair("b/box-0", "a/box-1")
    assert there is not None
    assert back is not None
    assert are_unlike(undisturbed(there), undisturbed(back))
    assert links_section(measured)["pairs"]
    assert measured.one_clock
    assert steps[-1][0] == steps[-1][1] == len(steps)


def test_pairs_on_one_wire_are_found_out() -> None:
    wire = {"from": "a", "to": "b", "bandwidth": "10MB/s", "latency": "1ms", "shared": True}
    cluster = parse_cluster(PLAYED | {"links": {"pairs": [wire]}})
    options = Options(sizes=(65536, 262144), repeats=2, rounds=1, timeout=60)

    for _ in range(5):  # a process that was not woken in time hides it, not in every measurement
        measured = measure_here(cluster, options)
        if links_section(measured)["pairs"][0].get("shared"):
            break

    assert [(nodes.source, nodes.target) for nodes in measured.node_pairs] == [("a", "b")]
    assert measured.node_pairs[0].shared


def join(pipe: Connection, port: int, rank: int) -> None:
    """One process of a meeting, as another machine would start it."""
    try:
        pipe.send(
            measure_joined(
                Meeting(host="127.0.0.1", port=port, rank=rank, world=2),
                Endpoint(device=f"m{rank}/x", node=f"m{rank}"),
                Options(sizes=(1024, 65536), repeats=3, rounds=1, timeout=60),
            )
        )
    except Exception as error:
        pipe.send(repr(error))


def test_processes_that_were_started_apart_meet_and_agree() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    members = [fork(join, lambda pipe, rank=rank: (pipe, port, rank), f"joined {rank}") for rank in (1, 0)]  # type: ignore[misc]
    try:
        results = [pipe.recv() for _, pipe in members]
    finally:
        for process, pipe in members:
            pipe.close()
            process.kill()
            process.join()

    first, second = results
    assert isinstance(first, LinksMeasured), first
    assert first.pairs == second.pairs
    assert [pair.source.device for pair in first.pairs] == ["m0/x", "m1/x"]
    assert all(pair.played is None and pair.fit.bandwidth > 1e5 for pair in first.pairs)
