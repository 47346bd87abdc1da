"""cluster.yaml: what each key means, and one clear error for everything that can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import cluster_document, load_cluster, parse_cluster, write_yaml
from ignite_scheduler.formats.cluster import FREE_LINKS
from ignite_scheduler.model import Cluster, Node

LAB = """\
version: 1
name: lab
currency: EUR
nodes:
  - name: lab1
    devices:
      - {kind: A100-40GB, count: 2}
  - name: lab2
    devices:
      - {kind: V100-32GB, count: 2, used_by_others: 3GiB, price: 2.5/h}
      - {kind: slowbox, id: box, speed: 0.25, memory: 64GB, dtypes: [fp32]}
links:
  default: {bandwidth: 10Gbit/s, latency: 0.2ms}
  pairs:
    - {within: lab1, bandwidth: 25GB/s}
    - {between: [lab1, lab2], bandwidth: 40Gbit/s, latency: 50us}
    - {from: lab2, to: lab1, bandwidth: 5Gbit/s, shared: true}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return path


def one_device(**keys: Any) -> Any:
    device = {"kind": "box", "memory": "8GB", **keys}
    device = {key: value for key, value in device.items() if value is not None}
    return parse_cluster({"version": 1, "name": "c", "nodes": [{"name": "n", "devices": [device]}]}).devices[0]


def test_the_example_of_the_format(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, LAB))

    assert [device.id for device in cluster.devices] == [
        "lab1/A100-40GB-0", "lab1/A100-40GB-1", "lab2/V100-32GB-0", "lab2/V100-32GB-1", "lab2/box",
    ]  # fmt: skip
    a100, _, v100, _, box = cluster.devices
    assert a100.memory == 38e9  # 40 GB less 5 %
    assert v100.memory == 32e9 - 3 * 2**30 - 0.05 * 32e9
    assert box.memory == 64e9  # given memory is usable memory
    assert v100.price == 2.5 / 3600
    assert a100.price is None
    assert (box.speed, box.dtypes) == (0.25, {"fp32"})
    assert v100.dtypes == {"fp32", "fp16"}
    assert (a100.peak("fp32"), a100.peak("bf16")) == (19.5e12, 312e12)
    assert cluster.currency == "EUR"


def test_the_links_of_the_example(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, LAB))
    a0, a1, v0, v1, _ = cluster.devices

    inside = cluster.link(a0, a1)
    assert inside is not None
    assert (inside.bandwidth, inside.latency) == (25e9, 0.0)
    forward, back = cluster.link(a0, v0), cluster.link(v0, a0)
    assert forward is not None
    assert back is not None
    assert (forward.bandwidth, back.bandwidth) == (5e9, 0.625e9)
    other = cluster.link(v1, a1)
    assert other is not None
    assert other.wire == back.wire  # one wire for all its pairs
    beside = cluster.link(v0, v1)
    assert beside is not None
    assert (beside.bandwidth, beside.latency) == (1.25e9, 0.2e-3)


def test_the_example_reads_back(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, LAB))
    assert parse_cluster(cluster_document(cluster)) == cluster
    write_yaml(tmp_path / "again.yaml", cluster_document(cluster))
    assert load_cluster(tmp_path / "again.yaml") == cluster


def test_without_links_transfers_are_free() -> None:
    cluster = parse_cluster({"version": 1, "name": "c", "nodes": [{"name": "n", "devices": [{"kind": "T4"}]}]})
    assert cluster.links == FREE_LINKS
    assert "links" not in cluster_document(cluster)


def test_pairs_without_a_default_leave_the_others_unlinked() -> None:
    cluster = parse_cluster(
        {
            "version": 1,
            "name": "c",
            "nodes": [{"name": name, "devices": [{"kind": "T4"}]} for name in "abc"],
            "links": {"pairs": [{"between": ["a", "b/T4-0"], "bandwidth": "1GB/s"}]},
        }
    )
    a, b, c = cluster.devices
    assert cluster.link(a, b) is not None
    assert cluster.link(b, a) is not None
    assert cluster.link(a, c) is None


def test_indices_go_on_over_entries_of_one_kind() -> None:
    devices = [{"kind": "T4", "count": 2}, {"kind": "T4", "id": "x"}, {"kind": "T4"}, {"kind": "P100-16GB"}]
    cluster = parse_cluster({"version": 1, "name": "c", "nodes": [{"name": "n", "devices": devices}]})
    assert [device.id for device in cluster.devices] == ["n/T4-0", "n/T4-1", "n/x", "n/T4-2", "n/P100-16GB-0"]


@pytest.mark.parametrize(
    ("keys", "memory"),
    [
        ({}, 8e9),
        ({"used_by_others": "1GB"}, 7e9),
        ({"reserve": "2GB"}, 6e9),
        ({"kind": "T4", "memory": None}, 16e9 - 0.05 * 16e9),
        ({"kind": "T4", "memory": None, "reserve": "0B"}, 16e9),
        ({"kind": "T4", "memory": "10GB"}, 10e9),
    ],
)
def test_usable_memory(keys: dict[str, Any], memory: float) -> None:
    assert one_device(**keys).memory == memory


def test_powers_have_a_state() -> None:
    device = one_device(power={"busy": "250W", "idle": "30W"})
    assert (device.busy_power, device.idle_power) == (250.0, 30.0)
    assert one_device(kind="T4", memory=None).busy_power == 70.0
    assert one_device(kind="T4", memory=None).idle_power is None


def test_a_rate_stands_for_every_dtype_or_for_one() -> None:
    assert one_device(dtypes=["fp32", "bf16"], peak_flops="2TFLOP/s").peak_flops == (("bf16", 2e12), ("fp32", 2e12))
    assert one_device(peak_flops={"fp32": "2TFLOP/s"}).peak_flops == (("fp32", 2e12),)


def test_figures_of_the_roofline_may_be_given() -> None:
    device = one_device(kind="T4", achievable_flops=0.5, achievable_bandwidth=0.25, launch_overhead="3us")
    assert (device.achievable_flops, device.achievable_bandwidth, device.launch_overhead) == (0.5, 0.25, 3e-6)

    alone = Cluster(name="c", nodes=(Node(name="n", devices=(device,)),), links=FREE_LINKS)
    assert parse_cluster(cluster_document(alone)) == alone


def test_the_link_to_the_host_may_be_given() -> None:
    assert one_device(host_bandwidth="25GB/s").host_bandwidth == 25e9
    assert one_device(kind="T4", host_bandwidth="96Gbit/s").host_bandwidth == 12e9
    assert one_device().host_bandwidth is None


def test_a_processors_memory_is_asked_for() -> None:
    with pytest.raises(DocumentError, match="depends on the machine"):
        one_device(kind="EPYC-7763", memory=None)
    assert one_device(kind="EPYC-7763", memory="64GB").peak("fp32") > 4e12


SPOILED = [
    ("speed: 0.25", "achievable_flops: 1.5", 11, "nodes[1].devices[1].achievable_flops", "at most 1"),
    ("speed: 0.25", "achievable_bandwidth: 0", 11, "nodes[1].devices[1].achievable_bandwidth", "above 0"),
    ("speed: 0.25", "host_bandwidth: 25", 11, "nodes[1].devices[1].host_bandwidth", "needs its unit"),
    ("speed: 0.25", "host_bandwidth: 0GB/s", 11, "nodes[1].devices[1].host_bandwidth", "above 0"),
    ("speed: 0.25", "launch_overhead: 5", 11, "nodes[1].devices[1].launch_overhead", "needs its unit"),
    ("speed: 0.25", "peak_flops: {fp31: 1TFLOP/s}", 11, "nodes[1].devices[1].peak_flops", "did you mean 'fp32'"),
    ("speed: 0.25", "peak_flops: 19.5", 11, "nodes[1].devices[1].peak_flops", "needs its unit"),
    ("used_by_others", "used_by_other", 10, "nodes[1].devices[0].used_by_other", "used_by_others"),
    ("memory: 64GB", "memory: 64", 11, "nodes[1].devices[1].memory", "'64GB' or '64GiB'"),
    ("memory: 64GB", "memory: '64'", 11, "nodes[1].devices[1].memory", "'64GB' or '64GiB'"),
    ("memory: 64GB", "memory: -64GB", 11, "nodes[1].devices[1].memory", "at least 0"),
    ("memory: 64GB", "memory: 0B", 11, "nodes[1].devices[1].memory", "no memory is left"),
    ("memory: 64GB, ", "", 11, "nodes[1].devices[1].kind", "give its memory"),
    ("used_by_others: 3GiB", "used_by_others: 40GB", 10, "nodes[1].devices[0].used_by_others", "no memory is left"),
    ("A100-40GB", "A100-40G", 7, "nodes[0].devices[0].kind", "did you mean 'A100-40GB'"),
    ("kind: slowbox, ", "", 11, "nodes[1].devices[1].kind", "missing"),
    ("kind: slowbox", "kind: slow box", 11, "nodes[1].devices[1].kind", "may not contain"),
    ("id: box", "id: box, count: 2", 11, "nodes[1].devices[1].count", "cannot name 2"),
    ("count: 2", "count: 0", 7, "nodes[0].devices[0].count", "at least 1"),
    ("count: 2", "count: 1000000000", 7, "nodes[0].devices[0].count", "at most 10000"),
    ("count: 2", "count: 1.5", 7, "nodes[0].devices[0].count", "whole number"),
    ("count: 2", "count: true", 7, "nodes[0].devices[0].count", "whole number"),
    ("speed: 0.25", "speed: 0", 11, "nodes[1].devices[1].speed", "above 0"),
    ("speed: 0.25", "speed: .nan", 11, "nodes[1].devices[1].speed", "finite"),
    ("speed: 0.25", "speed: .inf", 11, "nodes[1].devices[1].speed", "finite"),
    ("speed: 0.25", "speed: fast", 11, "nodes[1].devices[1].speed", "number"),
    ("[fp32]", "[fp31]", 11, "nodes[1].devices[1].dtypes[0]", "did you mean 'fp32'"),
    ("[fp32]", "[]", 11, "nodes[1].devices[1].dtypes", "at least 1"),
    ("price: 2.5/h", "price: 2.5", 10, "nodes[1].devices[0].price", "'2.5/h'"),
    ("price: 2.5/h", "price: -2.5/h", 10, "nodes[1].devices[0].price", "at least 0"),
    ("price: 2.5/h", "power: 250W", 10, "nodes[1].devices[0].power", "keys with values"),
    ("name: lab2", "name: lab1", 8, "nodes[1].name", "two nodes"),
    ("name: lab2", "name: lab/2", 8, "nodes[1].name", "may not contain"),
    ("name: lab2", "name: ''", 8, "nodes[1].name", "empty"),
    ("name: lab2", "name: 2", 8, "nodes[1].name", "node name"),
    ("version: 1", "version: 2", 1, "version", "expected 1, found 2"),
    ("version: 1", "version: '1'", 1, "version", "expected 1"),
    ("version: 1", "version: true", 1, "version", "expected 1, found True"),
    ("version: 1", "version: 1.0", 1, "version", "expected 1, found 1.0"),
    ("version: 1\n", "", 1, "version", "write 'version: 1'"),
    ("10Gbit/s", "10", 13, "links.default.bandwidth", "'10GB/s' or '10Gbit/s'"),
    ("10Gbit/s", "0Gbit/s", 13, "links.default.bandwidth", "above 0"),
    ("10Gbit/s", "10Gbit", 13, "links.default.bandwidth", "unknown unit"),
    ("0.2ms", "-0.2ms", 13, "links.default.latency", "at least 0"),
    ("within: lab1", "within: lab9", 15, "links.pairs[0].within", "no node or device is called 'lab9'"),
    ("within: lab1, ", "", 15, "links.pairs[0]", "exactly one of"),
    ("[lab1, lab2]", "[lab1, lab2/V100-32GB-7]", 16, "links.pairs[1].between[1]", "lab2/V100-32GB"),
    ("[lab1, lab2]", "[lab1]", 16, "links.pairs[1].between", "at least 2"),
    ("to: lab1, ", "", 17, "links.pairs[2]", "'to' is missing"),
    ("to: lab1", "to: lab1, within: lab1", 17, "links.pairs[2]", "exactly one of"),
    ("shared: true", "shared: 1", 17, "links.pairs[2].shared", "true or false"),
    ("bandwidth: 5Gbit/s, ", "", 17, "links.pairs[2].bandwidth", "missing"),
    ("currency: EUR", "curency: EUR", 3, "curency", "did you mean 'currency'"),
]


@pytest.mark.parametrize(("old", "new", "line", "field", "said"), SPOILED, ids=[case[1] or case[0] for case in SPOILED])
def test_what_is_wrong_is_told_with_line_field_and_cure(
    tmp_path: Path, old: str, new: str, line: int, field: str, said: str
) -> None:
    assert old in LAB
    path = written(tmp_path, LAB.replace(old, new, 1))
    with pytest.raises(DocumentError) as caught:
        load_cluster(path)
    error = caught.value
    assert (error.file, error.line, error.field) == (str(path), line, field)
    assert said in error.message
    assert "\n" not in str(error)


def test_the_first_of_several_problems_is_told_and_the_rest_counted(tmp_path: Path) -> None:
    text = LAB.replace("count: 2}", "count: 0}").replace("speed: 0.25", "speed: -1").replace("0.2ms", "5")
    with pytest.raises(DocumentError) as caught:
        load_cluster(written(tmp_path, text))
    assert caught.value.line == 7
    assert "2 more problems" in caught.value.message


@pytest.mark.parametrize(
    "text", ["- 1", "a", "3", "null", "version: 1\nname: x\nnodes: {}", "version: 1\nname: x\nnodes: []"]
)
def test_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DocumentError, match=r"cluster\.yaml:"):
        load_cluster(written(tmp_path, text))


def test_two_devices_may_not_share_an_id() -> None:
    nodes = [{"name": "n", "devices": [{"kind": "T4"}, {"kind": "T4", "id": "T4-0"}]}]
    with pytest.raises(DocumentError, match="two devices are called 'n/T4-0'"):
        parse_cluster({"version": 1, "name": "c", "nodes": nodes})
