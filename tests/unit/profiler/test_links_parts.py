"""From what ranks noted to rules of a cluster file; where ranks meet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats import parse_cluster
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.shapes.links import LinksMeasuredShape
from ignite_scheduler.formats.source import Source
from ignite_scheduler.profiler.links import LinksMeasured, Meeting, Options, links_document, links_section
from ignite_scheduler.profiler.links.analysis import Streams, Trips, are_unlike, conclude, ordered_pairs, sharing
from ignite_scheduler.profiler.links.fit import fit_line
from ignite_scheduler.profiler.links.nouns import Endpoint, Pair

SIZES = (1024, 65536, 1048576)
NODES = {
    "nodes": [
        {"name": "a", "devices": [{"kind": "box", "count": 2, "memory": "1GB"}]},
        {"name": "b", "devices": [{"kind": "box", "memory": "1GB"}]},
    ]
}
ENDPOINTS = (
    Endpoint(device="a/box-0", node="a"), Endpoint(device="a/box-1", node="a"), Endpoint(device="b/box-0", node="b"),
)  # fmt: skip


def found(
    speeds: dict[Pair, tuple[float, float]], *, together: dict[tuple[str, str], float] | None = None
) -> LinksMeasured:
    """Links of exactly these (latency, bandwidth) by pair; streams of 1 s alone, and longer together as said."""
    trips = {}
    for pair, (latency, bandwidth) in speeds.items():
        trips[pair] = Trips()
        for size in SIZES:
            trips[pair].add(size, latency + size / bandwidth, 2 * latency + size / bandwidth)
    groups = {(ENDPOINTS[a].node, ENDPOINTS[b].node): 1.0 for a, b in speeds}
    streams = Streams(
        alone=dict.fromkeys(speeds, 1.0),
        num_bytes=dict.fromkeys(speeds, 1e6),
        one_by_one=dict.fromkeys(speeds, 1.0),
        groups=groups | (together or {}),
        every=dict.fromkeys(speeds, 1.5),
    )
    return conclude(ENDPOINTS, trips, streams, {}, Options(sizes=SIZES), one_clock=True, provenance={})


EQUAL = dict.fromkeys(ordered_pairs(3), (1e-3, 1e8))


def cluster(measured: LinksMeasured) -> Any:
    return parse_cluster({"version": 1, "name": "c", **NODES, "links": links_section(measured)})


def test_equal_links_are_one_rule_a_pair_of_nodes() -> None:
    speed = {"bandwidth": "100MB/s", "latency": "1ms"}
    assert links_section(found(EQUAL)) == {
        "pairs": [{"within": "a", **speed}, {"between": ["a", "b"], **speed}],
    }


@given(st.lists(st.tuples(st.floats(1e-5, 1e-2), st.floats(1e6, 1e10)), min_size=6, max_size=6))
def test_the_rules_say_what_was_measured(speeds: list[tuple[float, float]]) -> None:
    measured = found(dict(zip(ordered_pairs(3), speeds, strict=True)))
    read = cluster(measured)

    for pair in measured.pairs:
        link = read.link(read.device(pair.source.device), read.device(pair.target.device))
        assert link is not None
        assert pair.fit.bandwidth / 1.2 <= link.bandwidth <= pair.fit.bandwidth * 1.2
        assert pair.fit.latency / 1.6 - 21e-6 <= link.latency <= pair.fit.latency * 1.6 + 21e-6


def test_unlike_directions_get_a_rule_each() -> None:
    slow = EQUAL | {(2, 0): (2e-3, 2e7), (2, 1): (2e-3, 2e7)}

    rules = links_section(found(slow))["pairs"]

    assert [sorted(set(rule) - {"bandwidth", "latency"}) for rule in rules] == [
        ["within"],
        ["from", "to"],
        ["from", "to"],
    ]
    assert rules[2] == {"from": "b", "to": "a", "bandwidth": "20MB/s", "latency": "2ms"}
    document = links_document(found(slow))
    assert [pair["asymmetric"] for pair in document["pairs"]] == [False, True, False, True, True, True]


def test_pairs_that_hinder_each_other_are_one_wire() -> None:
    measured = found(EQUAL, together={("a", "b"): 2.0, ("b", "a"): 1.0, ("a", "a"): 1.1})

    assert {(n.source, n.target): n.shared for n in measured.node_pairs} == {
        ("a", "a"): False, ("a", "b"): True, ("b", "a"): False,
    }  # fmt: skip
    rules = links_section(measured)["pairs"]
    assert [rule.get("shared", False) for rule in rules] == [False, True, False]
    read = cluster(measured)
    a, b, c = read.devices
    assert read.link(a, c).wire == read.link(b, c).wire
    assert read.link(c, a).wire != read.link(c, b).wire


def test_a_link_one_way_only_is_a_rule_one_way() -> None:
    rules = links_section(found({(0, 2): (1e-3, 1e8), (1, 2): (1e-3, 1e8)}))["pairs"]

    assert rules == [{"from": "a", "to": "b", "bandwidth": "100MB/s", "latency": "1ms"}]


@given(st.lists(st.floats(1e-3, 10), min_size=2, max_size=5))
def test_sharing_is_0_alone_and_1_in_turn(alone: list[float]) -> None:
    assert sharing(alone, max(alone)) == 0
    assert sharing(alone, sum(alone)) == pytest.approx(1)
    assert sharing(alone, 0.5 * max(alone)) == 0
    assert sharing(alone, 3 * sum(alone)) == 1


def test_without_a_common_clock_half_of_the_shortest_round_trip_is_the_way_back() -> None:
    trips = Trips()
    for size in SIZES:
        trips.add(size, 0.0, 3e-3 + size / 1e8 + 3e-3)

    line = fit_line({size: values[0] for size, values in trips.seconds(one_clock=False).items()})

    assert line.latency == pytest.approx(3e-3, rel=0.01)
    assert line.bandwidth == pytest.approx(1e8, rel=1e-6)


def test_small_differences_are_no_asymmetry() -> None:
    def line(latency: float, bandwidth: float) -> Any:
        return fit_line({size: latency + size / bandwidth for size in SIZES})

    assert not are_unlike(line(1e-3, 1e8), line(1.2e-3, 1.1e8))
    assert not are_unlike(line(2e-6, 1e8), line(15e-6, 1e8))
    assert are_unlike(line(1e-3, 1e8), line(1e-3, 1.5e8))
    assert are_unlike(line(1e-3, 1e8), line(2e-3, 1e8))


def test_the_document_is_json_and_says_how_well_the_line_holds() -> None:
    document = json.loads(json.dumps(links_document(found(EQUAL)), allow_nan=False))

    check(LinksMeasuredShape, Source(data=document))
    pair = document["pairs"][0]
    assert (pair["from"], pair["to"], pair["emulated"], pair["congestion"]) == ("a/box-0", "a/box-1", None, 1.5)
    assert pair["r_squared"] == pytest.approx(1)
    assert pair["worst_residual"] == pytest.approx(0, abs=1e-9)
    assert [entry["bytes"] for entry in pair["by_size"]] == list(SIZES)
    assert not document["emulated"]


@pytest.mark.parametrize(
    "wrong", [{"sizes": (1024,)}, {"sizes": (8, 1024)}, {"sizes": (1024, 2**31)}, {"repeats": 0}, {"rounds": 0}]
)
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected at least"):
        Options(**wrong)


def test_a_port_alone_means_loopback() -> None:
    assert Meeting.parse("29500", 0, 2) == Meeting(host="127.0.0.1", port=29500, rank=0, world=2)
    assert Meeting.parse(":29500", 0, 2).host == "127.0.0.1"
    assert Meeting.parse("10.0.0.1:29500", 1, 2).host == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "rank", "world", "said"),
    [("lab1", 0, 2, "HOST:PORT"), ("lab1:x", 0, 2, "HOST:PORT"), ("h:70000", 0, 2, "65535"), ("h:1", 2, 2, "2 of 2")],
)
def test_a_meeting_that_cannot_be_is_refused(address: str, rank: int, world: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Meeting.parse(address, rank, world)


def test_torchrun_tells_where_to_meet() -> None:
    told = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "3"}

    assert Meeting.from_environment(told) == Meeting(host="10.0.0.1", port=29501, rank=1, world=3)
    assert Meeting.from_environment({"RANK": "1"}) is None
    with pytest.raises(InputError, match="numbers"):
        Meeting.from_environment(told | {"RANK": "one"})
