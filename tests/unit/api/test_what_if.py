"""Clusters with devices more or less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ignite_scheduler import api
from ignite_scheduler.api.planned import Planned
from ignite_scheduler.api.what_if import answers, changed
from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Cluster, Device, Infeasible, Job, Link, LinkRule, Node, Resources
from planner_cases import chain, job


def device(node: str, kind: str, index: int, speed: float = 1.0) -> Device:
    return Device(id=f"{node}/{kind}-{index}", node=node, kind=kind, memory=1e9, speed=speed)


CLUSTER = Cluster(
    name="c",
    nodes=(
        Node(name="a", devices=(device("a", "fast", 0), device("a", "fast", 1))),
        Node(name="b", devices=(device("b", "slow", 0, 0.25),)),
    ),
    links=(LinkRule(bandwidth=1e9, latency=0.0), LinkRule(bandwidth=1e10, latency=0.0, within=True)),
)


def ids(cluster: Cluster) -> list[str]:
    return [found.id for found in cluster.devices]


def test_more_of_a_kind_stand_beside_the_others_and_are_like_them() -> None:
    grown = changed(CLUSTER, "+2xslow")

    assert ids(grown) == ["a/fast-0", "a/fast-1", "b/slow-0", "b/slow-1", "b/slow-2"]
    assert grown.device("b/slow-2").speed == 0.25
    link = grown.link(grown.device("b/slow-1"), grown.device("b/slow-2"))
    assert link is not None
    assert link.bandwidth == 1e10


def test_a_kind_can_be_put_into_another_node() -> None:
    grown = changed(CLUSTER, "+1xslow@a")

    assert ids(grown) == ["a/fast-0", "a/fast-1", "a/slow-0", "b/slow-0"]
    assert grown.device("a/slow-0").node == "a"


def test_a_new_kind_comes_from_the_catalogue_in_a_node_of_its_own() -> None:
    grown = changed(CLUSTER, "+1xA100-40GB")

    assert ids(grown)[-1] == "what-if/A100-40GB-0"
    assert grown.device("what-if/A100-40GB-0").memory > 30e9
    assert grown.device("what-if/A100-40GB-0").price is None


def test_a_node_less() -> None:
    assert ids(changed(CLUSTER, "-node:a")) == ["b/slow-0"]


def test_a_device_less_and_its_empty_node_with_it() -> None:
    shrunk = changed(CLUSTER, "-device:b/slow-0")

    assert [node.name for node in shrunk.nodes] == ["a"]


def test_the_cluster_itself_stays() -> None:
    before = ids(CLUSTER)
    changed(CLUSTER, "+1xfast")

    assert ids(CLUSTER) == before


def link(cluster: Cluster, source: str, target: str) -> Link:
    found = cluster.link(cluster.device(source), cluster.device(target))
    assert found is not None
    return found


def test_a_link_between_nodes_is_another_both_ways_and_only_there() -> None:
    relinked = changed(CLUSTER, "links:a-b=40Gbit/s")

    for ends in (("a/fast-0", "b/slow-0"), ("b/slow-0", "a/fast-1")):
        assert (link(relinked, *ends).bandwidth, link(relinked, *ends).latency) == (5e9, 0.0)
    assert link(relinked, "a/fast-0", "a/fast-1").bandwidth == 1e10


def test_a_latency_may_follow_and_is_kept_where_it_does_not() -> None:
    slow = changed(CLUSTER, "links:a/fast-0-b/slow-0=8Gbit/s,50us")
    both = changed(slow, "links:a-b=16Gbit/s")

    assert link(slow, "b/slow-0", "a/fast-0").latency == 5e-5
    assert link(slow, "a/fast-1", "b/slow-0").latency == 0.0
    assert link(both, "a/fast-1", "b/slow-0") == Link(bandwidth=2e9, latency=5e-5, wire=("a/fast-1", "b/slow-0"))


def test_a_wire_that_pairs_share_stays_shared() -> None:
    shared = replace(CLUSTER, links=(replace(CLUSTER.links[0], shared=True),))

    relinked = changed(shared, "links:a-b=2GB/s")

    assert link(relinked, "a/fast-0", "b/slow-0").wire == link(relinked, "a/fast-1", "b/slow-0").wire


def test_links_within_a_node_and_the_default() -> None:
    relinked = changed(CLUSTER, "links:within:a=1MB/s,links:default=3GB/s,1ms")

    assert link(relinked, "a/fast-0", "a/fast-1").bandwidth == 1e6
    assert link(relinked, "a/fast-0", "b/slow-0").bandwidth == 3e9
    assert link(relinked, "a/fast-0", "b/slow-0").latency == 1e-3


def test_a_cluster_without_a_default_gets_one() -> None:
    bare = replace(CLUSTER, links=CLUSTER.links[1:])

    assert bare.link(bare.device("a/fast-0"), bare.device("b/slow-0")) is None
    assert link(changed(bare, "links:default=1GB/s"), "a/fast-0", "b/slow-0").bandwidth == 1e9
    assert link(changed(bare, "links:default=1GB/s"), "a/fast-0", "a/fast-1").bandwidth == 1e10


def test_several_changes_are_made_in_order() -> None:
    other = changed(CLUSTER, "-node:b,+1xA100-40GB,links:what-if-a=2GB/s,5us,memory:fast=3GB,price:a/fast-0=3600/h")

    assert ids(other) == ["a/fast-0", "a/fast-1", "what-if/A100-40GB-0"]
    assert link(other, "what-if/A100-40GB-0", "a/fast-1").latency == 5e-6
    assert [device.memory for device in other.devices[:2]] == [3e9, 3e9]
    assert [device.price for device in other.devices[:2]] == [1.0, None]


def test_a_name_with_two_readings_is_refused_with_both() -> None:
    names = ("x", "y", "x-y", "y-x")
    nodes = tuple(Node(name=name, devices=(device(name, "k", 0),)) for name in names)

    with pytest.raises(InputError, match="'x' and 'y-x' or 'x-y' and 'x'"):
        changed(Cluster(name="c", nodes=nodes, links=CLUSTER.links), "links:x-y-x=1GB/s")


JOB = job(total=4)
PROFILE = chain([1.0, 1.0])


def plan_it(asked: Job, cluster: Cluster) -> Planned:
    return api.plan(asked, cluster, profile=PROFILE)


def test_a_scenario_in_which_the_question_makes_no_sense_is_a_refusal() -> None:
    clusters = {change: changed(CLUSTER, change) for change in ("-node:a,-node:b", "-node:b", "+1xslow")}

    found = answers(plan_it, plan_it(JOB, CLUSTER), clusters)

    assert isinstance(found["-node:a,-node:b"].answer, Infeasible)
    assert found["-node:b"].feasible
    assert found["+1xslow"].cluster is clusters["+1xslow"]


def test_what_is_excluded_may_be_missing_in_a_scenario() -> None:
    asked = replace(JOB, resources=Resources(exclude=("b/slow-0",)))

    found = answers(plan_it, plan_it(asked, CLUSTER), {"-node:b": changed(CLUSTER, "-node:b")})

    assert found["-node:b"].feasible


def test_an_error_of_the_question_itself_is_the_scenarios_answer() -> None:
    def dear(asked: Job, cluster: Cluster) -> Planned:
        return api.plan(asked, cluster, profile=PROFILE, objective="cost")

    priced = changed(CLUSTER, "price:fast=1/h,price:slow=1/h")
    found = answers(dear, dear(JOB, priced), {"+1xT4": changed(priced, "+1xT4")})

    assert found["+1xT4"].feasible  # it has no times here, and so is no candidate
    unpriced = replace(CLUSTER.devices[0], id="a/new", price=None)
    grown = replace(priced, nodes=(replace(priced.nodes[0], devices=(unpriced,)), priced.nodes[1]))
    answer = answers(dear, dear(JOB, priced), {"new": grown})["new"].answer
    assert isinstance(answer, Infeasible)
    assert (answer.code, "a/new" in answer.text) == ("input", True)


@pytest.mark.parametrize(
    "change",
    [
        "links:a-b=16",
        "links:a-b=0GB/s",
        "links:a-b=1e99GB/s",
        "links:a-b=1GB/s,soon",
        "links:within:b=1GB/s",
        "links:a-a/fast-0",
        "memory:fast=-3GB",
        "memory:fast=0GB",
        "memory:fast=1e99GB",
        "price:fast=3",
        "+1xslow,",
        ",+1xslow",
        "+1xslow,speed:slow=2",
    ],
)
def test_figures_that_make_no_sense_are_refused(change: str) -> None:
    with pytest.raises(InputError):
        changed(CLUSTER, change)


@pytest.mark.parametrize("change", ["", "A100", "+A100", "+0xfast", "+99999xfast", "-lab2", "+1xA101-40GB", "1xfast"])
def test_what_is_no_change_is_refused(change: str) -> None:
    with pytest.raises(InputError):
        changed(CLUSTER, change)


@pytest.mark.parametrize(
    "change",
    [
        "-node:z",
        "-device:a/fast-7",
        "+1xfast@z",
        "links:a-z=1GB/s",
        "links:z=1GB/s",
        "links:within:z=1GB/s",
        "memory:T4=1GB",
        "price:z=1/h",
    ],
)
def test_what_is_not_there_is_named_with_what_is(change: str) -> None:
    with pytest.raises(NotFoundError, match="there are: a"):
        changed(CLUSTER, change)


def test_a_misspelt_kind_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match="A100-40GB"):
        changed(CLUSTER, "+1xA100-41GB")
