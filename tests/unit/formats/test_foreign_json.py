"""Profiles of Piper, dnn-partitioning, Sailor and PipeEdge: small files worked out by hand, and broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign import Choices, Imported, import_profile
from ignite_scheduler.model import Layer, LayerInput, LayerTimes


def written(place: Path, document: Any) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return place


def total(found: Imported, what: Callable[[LayerTimes], float], kind: str) -> float:
    return sum(what(times) for layer in found.profile.layers for times in layer.times[kind].values())


# --- Piper ----------------------------------------------------------------------------------------------------------


def mode(name: str, seconds: float, parameters: float, a: float, b: float) -> dict[str, Any]:
    sizes = {"parameterSize": parameters, "memoryUsageA": a, "memoryUsageB": b}
    return {"id": name, "timePerSample": seconds, "syncTimeFw": {}, "syncTimeBw": {}} | sizes


def piper(*names: str) -> dict[str, Any]:
    """Two layers, the second reading the first; forward 1 and 2, backward 2 and 3."""
    first = {
        "1": [mode("activation recomp", 4.0, 10, 5, 25), mode("vanilla", 3.0, 10, 100, 20)],
        "2": [mode("vanilla", 2.0, 5, 50, 10)],
    }
    second = {
        "1": [mode("vanilla", 5.0, 0, 80, 0), mode("activation recomp", 7.0, 0, 8, 72)],
        "2": [mode("vanilla", 4.0, 0, 40, 0)],
    }
    nodes = [{"id": 7, "name": names[0], "TMPCs": first}, {"id": 8, "name": names[1], "TMPCs": second}]
    return {
        "maxDevices": 2, "maxMemoryPerDevice": 8e10, "bandwidth": 2.5e10, "mbsInBatch": 8,
        "nodes": nodes, "edges": [{"sourceId": 7, "destId": 8, "communicationCost": 64.0}],
    }  # fmt: skip


def test_piper_by_hand(tmp_path: Path) -> None:
    found = import_profile(written(tmp_path / "p.json", piper("Embedding", "Block")), choices=Choices(samples=2))

    first, second = found.profile.layers
    assert first.times == {"reference": {2: LayerTimes(forward=1.0, backward=2.0)}}
    assert second.times == {"reference": {2: LayerTimes(forward=2.0, backward=3.0)}}
    assert (first.parameter_bytes, first.activation_bytes, first.output_bytes) == (10, 50, 32)
    assert second.inputs == (LayerInput(source="Embedding"),)
    assert any("memoryUsageB is 2 × (in 1 layer)" in text for text in found.assumptions)
    assert found.profile.provenance["assumptions"] == list(found.assumptions)


def test_piper_made_from_pipedream_is_in_milliseconds(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", piper("node1", "node2"))

    assert total(import_profile(path), lambda times: times.forward, "reference") == 0.003
    said = import_profile(path, choices=Choices(time_unit="s"))
    assert total(said, lambda times: times.forward, "reference") == 3.0


def test_a_degree_of_piper_without_recomputation_takes_a_third_as_the_forward(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", piper("a", "b"))

    found = import_profile(path, choices=Choices(tensor_parallel=2))

    assert [layer.times["reference-tp2"][1].forward for layer in found.profile.layers] == [2 / 3, 4 / 3]
    assert any("a third" in text for text in found.warnings)
    with pytest.raises(DocumentError, match="no tensor-parallel degree 4; this node has 1, 2") as caught:
        import_profile(path, choices=Choices(tensor_parallel=4))
    assert caught.value.field == "nodes[0].TMPCs"
    assert caught.value.line is not None


# --- dnn-partitioning -----------------------------------------------------------------------------------------------


def node(own: int, latency: float, size: float, *, color: int | None = None, backward: bool = False) -> dict[str, Any]:
    found = {
        "id": own, "name": f"n{own}", "supportedOnFpga": 1, "fpgaLatency": latency, "cpuLatency": 10 * latency,
        "isBackwardNode": int(backward), "size": size,
    }  # fmt: skip
    return found if color is None else found | {"colorClass": color}


def edge(source: int, target: int, size: float | None) -> dict[str, Any]:
    found = {"sourceId": source, "destId": target, "cost": 0.5}
    return found if size is None else found | {"size": size}


def graph(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], *, cpus: int = 1) -> dict[str, Any]:
    return {"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": cpus, "nodes": nodes, "edges": edges}


LAYERS = graph(
    [
        node(1, 2, 0, color=1), node(2, 4, 150, color=2), node(3, 6, 30, color=3),
        node(4, 5, 150, color=2, backward=True), node(5, 7, 30, color=3, backward=True),
    ],
    [edge(1, 2, 40), edge(1, 3, 40), edge(2, 3, 100), edge(5, 4, 100)],
)  # fmt: skip


def test_a_layer_graph_is_folded_by_hand(tmp_path: Path) -> None:
    found = import_profile(written(tmp_path / "p.json", LAYERS))

    one, two, three = found.profile.layers
    assert two.times["reference"] == {1: LayerTimes(forward=0.004, backward=0.005)}
    assert two.times["cpu"] == {1: LayerTimes(forward=0.04, backward=0.05)}
    assert (one.output_bytes, two.parameter_bytes, two.activation_bytes, two.output_bytes) == (40, 50, 100, 100)
    assert three.inputs == (LayerInput(source="n1"), LayerInput(source="n2"))
    assert (three.parameter_bytes, three.activation_bytes) == (0, 30)
    assert any("every cpuLatency is 10 ×" in text for text in found.warnings)
    assert not any("inference only" in text for text in found.warnings)


def operators() -> dict[str, Any]:
    """Weights 1 and matmul 2 are one class, 3 reads 2; 4 to 6 are backward, 5 a sum of gradients without a class."""
    nodes = [
        node(1, 0, 1000, color=9), node(2, 4, 80, color=9), node(3, 1, 20, color=8),
        node(6, 3, 1080, color=9, backward=True), node(5, 2, 80, backward=True), node(4, 1, 20, color=8, backward=True),
    ]  # fmt: skip
    edges = [edge(1, 2, 1000), edge(2, 3, 80), edge(3, 4, 20), edge(4, 5, 80), edge(5, 6, 80), edge(2, 6, 80)]
    return graph(nodes, edges, cpus=0)


def test_an_operator_graph_is_folded_by_hand(tmp_path: Path) -> None:
    found = import_profile(written(tmp_path / "p.json", operators()), choices=Choices(samples=4, kind="V100"))

    first, second = found.profile.layers
    assert first.name == "n2"
    assert (first.parameter_bytes, first.activation_bytes, first.output_bytes) == (1000, 20, 20)
    assert first.times == {"V100": {4: LayerTimes(forward=0.004, backward=0.005)}}
    assert second.times == {"V100": {4: LayerTimes(forward=0.001, backward=0.001)}}
    assert second.parameter_bytes == 0


def test_totals_of_an_operator_graph_are_kept(tmp_path: Path) -> None:
    document = operators()
    found = import_profile(written(tmp_path / "p.json", document))

    for backward, what in ((0, lambda times: times.forward), (1, lambda times: times.backward)):
        there = sum(one["fpgaLatency"] for one in document["nodes"] if one["isBackwardNode"] == backward)
        assert total(found, what, "reference") == there / 1000
    held = sum(layer.parameter_bytes + layer.activation_bytes for layer in found.profile.layers)
    assert held == sum(one["size"] for one in document["nodes"] if not one["isBackwardNode"])


@pytest.mark.parametrize(("ratio", "factor"), [(None, 2.0), (0.0, 0.0), (1.5, 1.5)])
def test_inference_gets_a_backward_and_says_so(tmp_path: Path, ratio: float | None, factor: float) -> None:
    document = graph([node(1, 2, 40, color=1), node(2, 4, 30, color=2)], [edge(1, 2, 40)])

    found = import_profile(written(tmp_path / "p.json", document), choices=Choices(backward_ratio=ratio))

    assert [layer.times["reference"][1].backward for layer in found.profile.layers] == [0.002 * factor, 0.004 * factor]
    assert any("inference only" in text and f"{factor:g} ×" in text for text in found.warnings)


def test_edges_without_a_size_take_a_bandwidth(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", graph([node(1, 2, 2e6, color=1), node(2, 4, 3, color=2)], [edge(1, 2, None)]))

    assert import_profile(path).profile.layers[0].output_bytes == 0.5e-3 * 2**31
    assert import_profile(path, choices=Choices(edge_bandwidth=2e9)).profile.layers[0].output_bytes == 1e6


def test_a_node_may_be_said_to_be_the_input(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", LAYERS)

    found = import_profile(path, choices=Choices(inputs=("n1",)))

    assert [layer.inputs for layer in found.profile.layers] == [
        (LayerInput(source="input"),),
        (LayerInput(source="input"), LayerInput(source="n2")),
    ]
    assert any("say --input n1" in text for text in import_profile(path).warnings)
    assert not any("--input" in text for text in found.warnings)
    with pytest.raises(InputError, match="reads nothing and has no parameters: n1"):
        import_profile(path, choices=Choices(inputs=("n2",)))


def test_an_operator_that_no_accelerator_supports_has_times_of_the_cpu_only(tmp_path: Path) -> None:
    document = graph([node(1, 2, 40, color=1) | {"supportedOnFpga": False}, node(2, 4, 3, color=2)], [edge(1, 2, 40)])

    found = import_profile(written(tmp_path / "p.json", document))

    assert [set(layer.times) for layer in found.profile.layers] == [{"cpu"}, {"reference", "cpu"}]


def _spoil(**changes: Any) -> dict[str, Any]:
    return graph([node(1, 2, 40, color=1) | changes, node(2, 4, 30, color=2)], [edge(1, 2, 40)])


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        (_spoil(fpgaLatency="2"), "nodes[0].fpgaLatency", "expected a number"),
        (_spoil(size=-1), "nodes[0].size", "at least 0"),
        (_spoil(isBackwardNode=2), "nodes[0].isBackwardNode", "0 or 1"),
        (_spoil(id=2), "nodes[1].id", "twice"),
        (graph([node(1, 2, 40)], [edge(1, 3, 4)]), "edges[0].destId", "no node"),
        (graph([node(1, 2, 40), node(2, 1, 1)], [edge(1, 2, 4), edge(2, 1, 4)]), "edges", "cycle: "),
        (
            graph(
                [node(1, 1, 1, color=1), node(2, 1, 1, color=2), node(3, 1, 1, color=1)],
                [edge(1, 2, 4), edge(2, 3, 4)],
            ),
            "edges",
            "classes of nodes that must stay together form a cycle",
        ),
        (graph([node(1, 2, 40, backward=True)], []), "nodes", "only backward"),
    ],
    ids=["text", "negative", "flag", "twice", "unknown", "cycle", "class cycle", "backward"],
)
def test_a_wrong_graph_is_refused_with_its_key(tmp_path: Path, document: Any, field: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        import_profile(written(tmp_path / "p.json", document))

    assert caught.value.field == field
    assert caught.value.file is not None


# --- Sailor ---------------------------------------------------------------------------------------------------------


def compute(
    num_layers: int, update: float, *, sizes: tuple[int, ...] = (1, 4), degrees: tuple[int, ...] = (1, 2)
) -> Any:
    return {
        str(size): {
            str(degree): {str(index): [size / degree, 2 * size / degree, update] for index in range(num_layers)}
            for degree in degrees
        }
        for size in sizes
    }


def memory(num_layers: int, degrees: tuple[int, ...] = (1, 2)) -> Any:
    sizes = {"params_bytes": 100, "act_output_bytes": 8, "act_mem_bytes": 24, "act_input_bytes": 8}
    return {str(degree): {str(index): sizes for index in range(num_layers)} for degree in degrees}


def sailor(folder: Path, **files: Any) -> Path:
    """A tree like the origin's; the folder of the model."""
    written(folder / "memory" / "OPT.json", memory(3))
    for name, document in files.items():
        written(folder / "compute" / "OPT" / f"{name}.json", document)
    return folder / "compute" / "OPT"


def test_kinds_of_sailor_merge(tmp_path: Path) -> None:
    folder = sailor(tmp_path, A=compute(3, 0.0), B=compute(3, 0.5), C=compute(3, 0.25, degrees=(2,)))

    found = import_profile(folder, choices=Choices(tensor_parallel=1))

    profile = found.profile
    assert profile.name == "OPT"
    assert [layer.name for layer in profile.layers] == ["embedding", "layer 1", "head"]
    assert set(profile.layers[0].times) == {"A", "B"}
    assert profile.layers[1].times["B"][4] == LayerTimes(forward=4.0, backward=8.0)
    assert profile.layers[1] == Layer(
        name="layer 1",
        parameter_bytes=100,
        output_bytes=8,
        activation_bytes=24,
        times=profile.layers[1].times,
        inputs=(LayerInput(source="embedding"),),
        update={"adam": 0.5, "adamw": 0.5},
    )
    assert profile.reference == "B"
    assert profile.provenance["modelled_kinds"] == ["A"]
    assert any("update times of exactly 0" in text and "modelled" in text for text in found.warnings)
    assert any("C.json" in text and "degree 1; there are 2" in text for text in found.warnings)


def test_sailor_takes_the_degree_that_most_kinds_have(tmp_path: Path) -> None:
    folder = sailor(tmp_path, A=compute(3, 0.5), B=compute(3, 0.5, degrees=(2,)))

    both = import_profile(folder).profile
    one = import_profile(folder / "A.json", choices=Choices(kind="mine")).profile
    again = import_profile(tmp_path / "memory" / "OPT.json").profile

    assert set(both.layers[0].times) == {"A-tp2", "B-tp2"}
    assert both.layers == again.layers
    assert set(one.layers[0].times) == {"mine"}
    with pytest.raises(InputError, match="--kind names one kind"):
        import_profile(folder, choices=Choices(kind="mine"))


def test_times_of_another_model_are_refused(tmp_path: Path) -> None:
    folder = sailor(tmp_path, GH=compute(2, 0.5), A=compute(3, 0.5))

    with pytest.raises(DocumentError, match=r"2 layers, but the model has 3.*another model's times") as caught:
        import_profile(folder / "GH.json")
    assert caught.value.line is not None
    found = import_profile(folder)
    assert set(found.profile.layers[0].times) == {"A"}
    assert any("another model's times" in text for text in found.warnings)


def test_sailor_files_that_lack_something_are_refused(tmp_path: Path) -> None:
    folder = sailor(tmp_path, A=compute(3, 0.5))
    gap = compute(3, 0.5)
    del gap["1"]["1"]["1"]

    written(tmp_path / "memory" / "OPT.json", memory(3, (1, 2, 3)))
    with pytest.raises(DocumentError, match="no times for the tensor-parallel degree 3; there are 1, 2"):
        import_profile(folder / "A.json", choices=Choices(tensor_parallel=3))
    with pytest.raises(DocumentError, match="no sizes for the tensor-parallel degree 4"):
        import_profile(folder / "A.json", choices=Choices(tensor_parallel=4))
    with pytest.raises(DocumentError, match="the layer 1 is missing") as caught:
        import_profile(written(folder / "B.json", gap), choices=Choices(tensor_parallel=1))
    assert caught.value.field == "1.1"
    with pytest.raises(DocumentError, match="this file has times only"):
        import_profile(written(tmp_path / "compute" / "X" / "A.json", compute(3, 0.5)))
    with pytest.raises(DocumentError, match="this file has sizes only"):
        import_profile(written(tmp_path / "memory" / "Y.json", memory(3)))
    short = written(folder / "C.json", {"1": {"1": {"0": [1.0, 2.0]}}})
    with pytest.raises(DocumentError, match=r"expected \[forward s, backward s, update s\], found 2 numbers"):
        import_profile(short)


# --- PipeEdge -------------------------------------------------------------------------------------------------------

SIZES = {"net": {"layers": 2, "mem_MB": [1.5, 2], "parameters_in": 10, "parameters_out": [20, 5]}}


def edge_device(name: str, seconds: list[float]) -> dict[str, Any]:
    times = {"batch_size": 8, "dtype": "torch.float32", "time_s": seconds}
    return {"device": name, "bw_Mbps": 1000, "mem_MB": 512, "model": "net", "profiles": [times]}


def test_devices_of_pipeedge_merge(tmp_path: Path) -> None:
    model = written(tmp_path / "model_net.json", SIZES)
    device = written(tmp_path / "device_a.json", edge_device("a", [0.5, 0.25]))
    written(tmp_path / "device_b.json", edge_device("b", [1.0, 2.0]))

    found = import_profile(tmp_path)

    first, second = found.profile.layers
    assert first.times == {
        "a": {8: LayerTimes(forward=0.5, backward=1.0)},
        "b": {8: LayerTimes(forward=1.0, backward=2.0)},
    }
    assert (first.parameter_bytes, first.output_bytes, first.activation_bytes) == (1.5e6, 80, 40)
    assert second.activation_bytes == 80
    assert any("inference only" in text and "2 × its forward" in text for text in found.warnings)
    assert import_profile(model).profile.layers == found.profile.layers
    assert set(import_profile(device).profile.layers[0].times) == {"a"}


def test_pipeedge_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    device = written(tmp_path / "device_a.json", edge_device("a", [0.5]))
    with pytest.raises(DocumentError, match=r"expected the sizes of 'net' in a model_\*.json"):
        import_profile(device)
    written(tmp_path / "model_net.json", SIZES)
    with pytest.raises(DocumentError, match="expected 2 times, one a layer, found 1") as caught:
        import_profile(device)
    assert caught.value.field == "profiles[0].time_s"
    written(tmp_path / "model_net.json", {"net": SIZES["net"] | {"layers": 3}})
    with pytest.raises(DocumentError, match="expected 3 numbers"):
        import_profile(device)


# --- all ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [piper("a", "b"), LAYERS, SIZES], ids=["piper", "dnn-partitioning", "pipeedge"])
def test_a_file_that_is_cut_off_is_refused_with_its_line(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "p.json"
    text = json.dumps(document, indent=1)
    for length in range(1, len(text) - 1, 97):
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(DocumentError) as caught:
            import_profile(path)
        assert caught.value.line is not None
        assert caught.value.file == str(path)


def test_a_choice_that_means_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", LAYERS)

    with pytest.raises(InputError, match="--tensor-parallel, --time-unit: means nothing"):
        import_profile(path, choices=Choices(tensor_parallel=2, time_unit="s"))
    with pytest.raises(InputError, match="no format 'onnx'"):
        import_profile(path, form="onnx")
    with pytest.raises(DocumentError, match="TMPCs"):
        import_profile(path, form="piper")
