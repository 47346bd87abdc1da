"""The catalogue of kinds: every figure is possible, every source is one, and slips are seen."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats import parse_cluster
from ignite_scheduler.formats.catalogue import FILE, Kind, catalogue, nearest_kinds
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.shapes.devices import DevicesShape
from ignite_scheduler.formats.source import Source

EXPECTED = {
    "K80", "P100-16GB", "P40", "P4", "V100-16GB", "V100-32GB", "T4", "RTX-2080-Ti", "RTX-3090", "RTX-4090",
    "RTX-5090", "TITAN-RTX", "Quadro-RTX-8000", "RTX-A6000", "A10", "A16", "A30", "A40", "A100-40GB",
    "A100-SXM4-40GB", "A100-PCIE-40GB", "A100-80GB", "A100-SXM4-80GB", "A100-PCIE-80GB", "L4", "L40", "L40S",
    "H100-80GB", "H100-SXM5-80GB", "H100-PCIE-80GB", "H100-NVL-94GB", "GH200", "H200", "H200-SXM", "H200-NVL",
    "B200", "MI50-16GB", "MI60", "MI100", "MI210", "MI250", "MI250X", "MI300X", "MI325X", "Jetson-Nano",
    "Jetson-TX2", "Jetson-Xavier-NX", "Jetson-AGX-Xavier", "Jetson-Orin-Nano-8GB", "Jetson-Orin-NX-16GB",
    "Jetson-AGX-Orin-64GB", "EPYC-7763", "Xeon-8480", "Raspberry-Pi-4", "Raspberry-Pi-5",
}  # fmt: skip


def test_the_common_kinds_are_there() -> None:
    assert set(catalogue()) >= EXPECTED


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.name)
def test_a_kinds_figures_are_possible(kind: Kind) -> None:
    rates = dict(kind.peak_flops)
    assert kind.dtypes == set(rates)
    assert 1e10 <= rates["fp32"] <= 2e14
    assert all(rates["fp32"] <= rate <= 64 * rates["fp32"] for rate in rates.values())
    assert rates.get("fp8", rates.get("bf16", 0)) <= 2.1 * rates.get("bf16", 1e18)
    assert kind.memory is None or 4e9 <= kind.memory <= 3e11
    assert 1e10 <= kind.memory_bandwidth <= 1e13
    assert 0 < kind.achievable_flops <= 1
    assert 0 <= kind.launch_overhead < 1e-3
    assert kind.host_bandwidth is None or 5e9 <= kind.host_bandwidth <= 5e11
    assert kind.busy_power is None or 5 <= kind.busy_power <= 1500
    assert {"memory", "compute", "achievable"} <= set(kind.evidence)


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.name)
def test_a_cluster_file_may_name_a_kind(kind: Kind) -> None:
    entry = {"kind": kind.name} | ({"memory": "64GB"} if kind.memory is None else {})
    nodes = [{"name": "n", "devices": [entry]}]

    device = parse_cluster({"version": 1, "name": "c", "nodes": nodes}).devices[0]

    assert device.dtypes == kind.dtypes
    assert device.peak_flops == kind.peak_flops
    assert device.achievable_flops == kind.achievable_flops
    assert device.host_bandwidth == kind.host_bandwidth
    assert device.price is None  # an indicative price in another currency is not the cluster's
    if kind.memory is not None:
        assert 0.8 * kind.memory <= device.memory < kind.memory


def test_links_to_the_host_are_those_of_their_standard_and_what_copies_reach_of_them() -> None:
    rates = {name: catalogue()[name].host_bandwidth for name in ("T4", "A100-PCIE-40GB", "H100-SXM5-80GB", "GH200")}
    assert rates == {"T4": 12.6e9, "A100-PCIE-40GB": 25.2e9, "H100-SXM5-80GB": 50.4e9, "GH200": 360e9}
    assert catalogue()["Jetson-Nano"].host_bandwidth is None  # one memory for both


def test_no_two_kinds_share_a_name() -> None:
    names = [name.lower() for kind in catalogue().values() for name in {kind.name, *kind.aliases}]
    assert len(names) == len(set(names))


def raw() -> dict[str, Any]:
    text = (resources.files("ignite_scheduler.formats") / FILE).read_text(encoding="utf-8")
    return dict(json.loads(text))


def test_what_nobody_looked_up_is_never_shown_as_sourced() -> None:
    for name, kind in catalogue().items():
        for group, figures in raw()["kinds"][name].items():
            if isinstance(figures, dict):
                assert kind.evidence[group].checked == ("source" in figures) != ("checked" in figures)
    assert not catalogue()["T4"].evidence["achievable"].checked  # a default of its class


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        ("memory", {"memory_bytes": "16GB"}, "number"),
        ("memory", {"bandwidth_bytes_per_s": 0}, "above 0"),
        ("memory", {"source": ["hearsay"]}, "unknown source 'hearsay'"),
        ("memory", {"source": []}, "at least 1"),
        ("memory", {"checked": False}, "either the sources"),
        ("memory", {"source": None}, "either the sources"),
        ("compute", {"flops_per_s": {"fp31": 1e12}}, "did you mean 'fp32'"),
        ("power", {"bussy_w": 70}, "did you mean 'busy_w'"),
        ("host", {"bandwidth_bytes_per_s": 0}, "above 0"),
        ("host", {"checked": None, "source": ["hearsay"]}, "unknown source 'hearsay'"),
    ],
)
def test_a_slip_in_the_file_is_told(group: str, change: dict[str, Any], said: str) -> None:
    document = raw()
    document["kinds"]["T4"][group] |= change
    with pytest.raises(DocumentError, match=said):
        check(DevicesShape, Source(data=document, file=FILE))


@pytest.mark.parametrize(
    ("written", "nearest"),
    [("a100-40g", "A100-40GB"), ("rtx3090", "RTX-3090"), ("4090", "RTX-4090"), ("V100-32G", "V100-32GB"),
     ("Tesla T4", "T4"), ("h-200", "H200"), ("MI300", "MI300A")],
)  # fmt: skip
def test_a_misspelt_kind_finds_its_neighbours(written: str, nearest: str) -> None:
    assert nearest_kinds(written)[0] == nearest


def test_an_unknown_kind_in_a_cluster_file_names_the_nearest() -> None:
    nodes = [{"name": "n", "devices": [{"kind": "RTX3090"}]}]
    with pytest.raises(InputError, match="did you mean 'RTX-3090'"):
        parse_cluster({"version": 1, "name": "c", "nodes": nodes})


def test_what_resembles_nothing_has_no_neighbours() -> None:
    assert nearest_kinds("xyzzy") == ()
    assert nearest_kinds("") == ()
