"""Laws of the whole planner: better hardware never makes a plan worse, and listings do not matter."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ignite_scheduler import api
from ignite_scheduler.api import Planned
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.cluster import parse_cluster
from ignite_scheduler.formats.job import parse_job
from ignite_scheduler.formats.profile import parse_profile
from small_documents import Documents, small_documents

FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
SEEDS = st.integers(0, 10**6)


def documents_of(seed: int) -> Documents:
    """Small documents without what better hardware may break: exact counts of kinds, deadlines."""
    documents = small_documents(seed, most_layers=4, most_devices=3, most_samples=4)
    documents.job["resources"].pop("any_of", None)
    documents.job.pop("queue", None)
    return documents


def planned(documents: Documents) -> Planned:
    job, profile, cluster = documents
    try:
        return api.plan(parse_job(job), parse_cluster(cluster), profile=parse_profile(profile))
    except InputError:
        assume(False)
        raise


def step(answer: Planned) -> float:
    return answer.plan.predicted.step if answer.feasible else math.inf


def devices(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [device for node in cluster["nodes"] for device in node["devices"]]


def faster(cluster: dict[str, Any], which: int) -> None:
    found = devices(cluster)
    found[which % len(found)]["speed"] *= 2


def roomier(cluster: dict[str, Any], which: int) -> None:
    found = devices(cluster)
    device = found[which % len(found)]
    device["memory"] = f"{2 * int(device['memory'].removesuffix('B'))}B"


def nearer(cluster: dict[str, Any], which: int) -> None:
    del which
    links = cluster.get("links", {})
    for link in [*links.get("pairs", ()), *([links["default"]] if "default" in links else [])]:
        link["bandwidth"] = f"{2 * int(link['bandwidth'].removesuffix('B/s'))}B/s"
        link["latency"] = "0s"


def one_more(cluster: dict[str, Any], which: int) -> None:
    found = devices(cluster)
    cluster["nodes"][0]["devices"].append({**found[which % len(found)], "id": "more"})


@pytest.mark.parametrize("change", [faster, roomier, nearer, one_more])
@FEW
@given(seed=SEEDS, which=st.integers(0, 2))
def test_better_hardware_never_makes_a_plan_worse(change: Any, seed: int, which: int) -> None:
    documents = documents_of(seed)
    better = copy.deepcopy(documents.cluster)
    change(better, which)

    before, after = planned(documents), planned(documents._replace(cluster=better))

    complete = all(not answer.feasible or answer.plan.bound.optimal for answer in (before, after))
    assume(complete)
    assert step(after) <= step(before) * (1 + 1e-9) + 1e-9


@FEW
@given(seed=SEEDS)
def test_plan_never_goes_below_its_bound_and_scales_with_all_times(seed: int) -> None:
    documents = documents_of(seed)
    slower = copy.deepcopy(documents)
    for device in devices(slower.cluster):
        device["speed"] /= 2
        if "host_bandwidth" in device:
            device["host_bandwidth"] = f"{int(device['host_bandwidth'].removesuffix('B/s')) / 2}B/s"
    for layer in slower.profile["layers"]:
        for times in layer["times"].get("fast", {}).values():
            times[:] = [2 * seconds for seconds in times]
    links = slower.cluster.get("links", {})
    for link in [*links.get("pairs", ()), *([links["default"]] if "default" in links else [])]:
        link["bandwidth"] = f"{int(link['bandwidth'].removesuffix('B/s')) / 2}B/s"
        link["latency"] = f"{2 * float(str(link.get('latency', '0s')).removesuffix('s'))}s"

    once, twice = planned(documents), planned(slower)

    assert once.feasible == twice.feasible
    if once.feasible:
        assert once.plan.bound.step <= once.plan.predicted.step
        if once.plan.bound.optimal and twice.plan.bound.optimal:
            assert step(twice) == pytest.approx(2 * step(once), rel=1e-9)


@FEW
@given(seed=SEEDS, order=st.randoms(use_true_random=False))
def test_listing_nodes_and_devices_otherwise_changes_nothing(seed: int, order: Any) -> None:
    documents = documents_of(seed)
    turned = copy.deepcopy(documents.cluster)
    order.shuffle(turned["nodes"])
    for node in turned["nodes"]:
        order.shuffle(node["devices"])

    assert planned(documents).to_dict() == planned(documents._replace(cluster=turned)).to_dict()
