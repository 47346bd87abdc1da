"""Every file of the public profiles either imports, with its totals kept, or is refused with what it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.foreign import Choices, Imported, import_links, import_profile

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "profiles"
if not SHARED.is_dir():
    pytest.skip(f"the public profiles are not at {SHARED}", allow_module_level=True)

FILES = sorted(str(path.relative_to(SHARED)) for path in SHARED.rglob("*") if path.is_file())

REASONS = {
    "README.md": "page of documentation",
    "LICENSE-of-origin.txt": "licence text of the data's origin",
    "human-experts/": "hand-made split of dnn-partitioning",
    "dt-fm/": "DT-FM's delays",
    "hardware/allreduce_bandwidth": "all-reduce bandwidths by group size, in GB/s",
    "hardware/p2p_bandwidth": "bandwidths of sends between stages",
    "hardware/overlap": "slowdown of compute while communicating",
    "hardware/sp_time": "times of collectives",
    "llama2-7b/computation": "computation times: whole models",
    "llama2-7b/memory": "measured memory: whole models",
    "sailor/cluster_gpus": "GPUs a node and bytes a GPU",
    "sailor/training_config": "model shape and global batch",
    "network/communication_cost": "money per GB",
    "network/": "quadratic in log2",
    "sailor/measured/": "measured plan of Sailor",
}
"""Part of a path → what the refusal says of it; the first that fits."""


def reason_of(name: str) -> str | None:
    return next((said for part, said in REASONS.items() if part in name), None)


@pytest.mark.parametrize("name", [name for name in FILES if reason_of(name)])
def test_what_is_no_profile_is_refused_with_what_it_is(name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        import_profile(SHARED / name)
    assert str(reason_of(name)) in str(caught.value)
    assert "not imported as a profile: " in str(caught.value)


@pytest.mark.parametrize("name", [name for name in FILES if not reason_of(name)])
def test_every_other_file_imports_with_its_totals(name: str) -> None:
    found = import_profile(SHARED / name)
    assert found.assumptions
    assert found.profile.provenance["assumptions"] == list(found.assumptions)
    TOTALS[str(found.profile.provenance["format"])](SHARED / name, found)


def figures(found: Imported) -> tuple[float, float, float, float]:
    """Seconds forward and backward on the reference at its least size, parameter bytes, kept bytes of that size."""
    layers, kind = found.profile.layers, found.profile.reference
    assert kind is not None
    size = min(layers[0].times[kind])
    rows = [layer.times[kind][size] for layer in layers]
    return (
        sum(row.forward for row in rows),
        sum(row.backward for row in rows),
        sum(layer.parameter_bytes for layer in layers),
        sum(layer.activation_bytes for layer in layers) * size,
    )


def check_text(path: Path, found: Imported) -> None:
    forward = backward = parameters = 0.0
    for line in path.read_text().splitlines():
        parts = line.split(" -- ")
        if len(parts) < 3 or parts[1].strip().startswith(("Input", "input")):
            continue
        values = dict(part.strip().split("=") for part in parts[-1].split(", "))
        forward += float(values["forward_compute_time"])
        backward += float(values["backward_compute_time"])
        parameters += float(values["parameter_size"])
    assert figures(found)[:3] == pytest.approx((forward / 1e3, backward / 1e3, parameters), rel=1e-12)


def check_piper(path: Path, found: Imported) -> None:
    document = json.loads(path.read_text())
    modes = [node["TMPCs"]["1"][0] for node in document["nodes"]]
    unit = 1.0 if "bert32" in path.name else 1e-3
    forward, backward, parameters, kept = figures(found)
    assert forward + backward == pytest.approx(unit * sum(mode["timePerSample"] for mode in modes), rel=1e-12)
    assert parameters == sum(mode["parameterSize"] for mode in modes)
    assert kept == sum(mode["memoryUsageA"] for mode in modes)


def check_partition(path: Path, found: Imported) -> None:
    nodes = json.loads(path.read_text())["nodes"]
    there = [sum(one["fpgaLatency"] for one in nodes if one["isBackwardNode"] == way) / 1e3 for way in (0, 1)]
    forward, backward, parameters, kept = figures(found)
    assert forward == pytest.approx(there[0], rel=1e-12)
    assert backward == pytest.approx(there[1] or 2 * forward, rel=1e-12)
    size = sum(one["size"] for one in nodes if not one["isBackwardNode"])
    assert parameters + kept == pytest.approx(size, rel=1e-12)


def check_sailor(path: Path, found: Imported) -> None:
    provenance = found.profile.provenance
    degree, model = str(provenance["tensor_parallel"]), found.profile.name
    sizes = json.loads((SHARED / "sailor" / "memory" / f"{model}.json").read_text())[degree].values()
    assert figures(found)[2:] == (
        sum(size["params_bytes"] for size in sizes),
        sum(size["act_mem_bytes"] for size in sizes),
    )
    for name, kind in zip(provenance["files"], found.profile.layers[0].times, strict=True):
        table = json.loads((SHARED / "sailor" / "compute" / model / name).read_text())
        rows = {int(size): by_degree[degree] for size, by_degree in table.items() if degree in by_degree}
        for index, layer in enumerate(found.profile.layers):
            assert {size: [times.forward, times.backward] for size, times in layer.times[kind].items()} == {
                size: row[str(index)][:2] for size, row in rows.items()
            }
    modelled = {("OPT-350", "A100-80"), ("LLAMA-3-8", "A100-40"), ("LLAMA-3-8", "V100-16")}
    modelled |= {("OPT-30", "A100-40"), ("OPT-30", "V100-16")}
    here = {
        name.removesuffix(".json") for name in provenance["files"] if (model, name.removesuffix(".json")) in modelled
    }
    assert {kind.partition("-tp")[0] for kind in provenance["modelled_kinds"]} == here
    assert bool(here) == any("modelled, not measured" in text for text in found.warnings)


def check_pipeedge(path: Path, found: Imported) -> None:
    model: dict[str, Any] = next(
        iter(json.loads((path.parent / "model_vit-base-patch16-224.json").read_text()).values())
    )
    forward, backward, parameters, _ = figures(found)
    device = json.loads((path.parent / f"device_{found.profile.reference}_vit-base-patch16-224.json").read_text())
    assert forward == pytest.approx(sum(device["profiles"][0]["time_s"]), rel=1e-12)
    assert backward == pytest.approx(2 * forward, rel=1e-12)
    assert parameters == pytest.approx(1e6 * sum(model["mem_MB"]), rel=1e-12)
    assert [layer.output_bytes for layer in found.profile.layers] == [4 * count for count in model["parameters_out"]]


TOTALS: dict[str, Callable[[Path, Imported], None]] = {
    "pipedream": check_text,
    "piper": check_piper,
    "dnn-partitioning": check_partition,
    "sailor": check_sailor,
    "pipeedge": check_pipeedge,
}


def test_the_seven_kinds_of_opt_merge() -> None:
    found = import_profile(SHARED / "sailor" / "compute" / "OPT-350")
    assert set(found.profile.layers[0].times) == {
        "A100-40", "A100-80", "GH-96", "RTX-2080", "RTX-3090", "Titan-RTX", "V100-16",
    }  # fmt: skip


def test_piper_finds_the_forward_that_pipedream_measured() -> None:
    # Both files come from one measurement of ResNet-50; PipeDream's has forward and backward apart.
    ours = import_profile(SHARED / "piper" / "resnet.json", choices=Choices(inputs=("node1",))).profile
    theirs = import_profile(SHARED / "pipedream" / "resnet50.graph.txt").profile
    measured = {layer.name.partition(" ")[0]: layer.times["reference"][1] for layer in theirs.layers}
    for layer in ours.layers:
        times = layer.times["reference"][1]
        assert times.forward == pytest.approx(measured[layer.name].forward, abs=1e-12)
        assert times.backward == pytest.approx(measured[layer.name].backward, abs=1e-12)


def test_regions_of_dt_fm_are_nodes() -> None:
    section, notes = import_links(SHARED / "dt-fm" / "geo_links.json")
    pairs = section["links"]["pairs"]
    assert len(pairs) == 45
    assert pairs[0] == {"between": ["Oregon", "Virginia"], "bandwidth": "0.79Gbit/s", "latency": "67ms"}
    assert any("within a region" in text for text in notes.warnings)
