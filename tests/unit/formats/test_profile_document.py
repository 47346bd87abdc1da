"""profile.json: graph, sizes and times, and one clear error for everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import load_profile, parse_profile, profile_document
from ignite_scheduler.model import LayerInput, LayerTimes


def layer(name: str, **keys: Any) -> dict[str, Any]:
    times = {"reference": {"1": [0.01, 0.02]}}
    return {"name": name, "parameter_bytes": 4, "output_bytes": 8, "activation_bytes": 12, "times": times} | keys


def document(*layers: dict[str, Any], **keys: Any) -> dict[str, Any]:
    found = list(layers) or [layer("a"), layer("b"), layer("c")]
    return (
        {"schema": "ignite/profile/v1", "name": "toy", "precision": "fp32", "reference": "reference"}
        | {"layers": found}
        | keys
    )


def names(data: dict[str, Any]) -> list[str]:
    return [found.name for found in parse_profile(data).layers]


def test_the_example_of_the_format() -> None:
    text = """
    {"schema": "ignite/profile/v1", "name": "toy", "precision": "fp32", "reference": "reference",
     "layers": [{"name": "l0", "parameter_bytes": 0, "output_bytes": 10000000, "activation_bytes": 20000000,
                 "workspace_bytes": 0, "forward_flops": 1e9, "backward_flops": 2e9,
                 "times": {"reference": {"1": [0.010, 0.020]}, "A100-40GB": {"1": [0.002, 0.004], "8": [0.012, 0.025]}},
                 "inputs": ["input"]},
                {"name": "l9", "parameter_bytes": 1, "output_bytes": 2.5, "activation_bytes": 3,
                 "times": {"reference": {"4": [1, 2, 3]}}, "inputs": [{"from": "l0", "bytes": 50000000}]}],
     "tied": [["l0", "l9"]]}"""
    profile = parse_profile(json.loads(text))

    first, last = profile.layers
    assert first.times["A100-40GB"][8] == LayerTimes(forward=0.012, backward=0.025)
    assert first.inputs == (LayerInput(source="input"),)
    assert last.inputs == (LayerInput(source="l0", bytes=5e7),)
    assert last.times["reference"][4] == LayerTimes(forward=1, backward=5, input_backward=2, weight_backward=3)
    assert profile.tied == (("l0", "l9"),)
    assert parse_profile(profile_document(profile)) == profile


def test_a_layer_reads_the_one_before_it_unless_told() -> None:
    profile = parse_profile(document(layer("a"), layer("b"), layer("c", inputs=["a", "b"])))
    assert [[edge.source for edge in found.inputs] for found in profile.layers] == [["input"], ["a"], ["a", "b"]]


def test_layers_are_put_in_a_topological_order_that_keeps_the_files_where_it_can() -> None:
    graph = [
        layer("a", inputs=["input"]),
        layer("d", inputs=["c", "b"]),
        layer("b", inputs=["a"]),
        layer("c", inputs=["a"]),
    ]
    assert names(document(*graph)) == ["a", "b", "c", "d"]
    assert names(document()) == ["a", "b", "c"]


def test_a_sorted_graph_reads_back() -> None:
    profile = parse_profile(document(layer("b", inputs=["a"]), layer("a", inputs=["input"])))
    assert parse_profile(profile_document(profile)) == profile


def test_measured_updates_and_overhead_are_kept() -> None:
    data = document(layer("a", update_s={"adamw": 0.001}), action_overhead_s=0.0005, provenance={"machine": "m"})
    profile = parse_profile(data)
    assert profile.layers[0].update == {"adamw": 0.001}
    assert profile.action_overhead == 0.0005
    assert profile_document(profile)["provenance"] == {"machine": "m"}
    assert parse_profile(profile_document(profile)) == profile


def first(**keys: Any) -> dict[str, Any]:
    return document(layer("a", **keys), layer("b"), layer("c"))


WRONG: dict[str, tuple[Any, str, str]] = {
    "nan": (first(times={"reference": {"1": [float("nan"), 1]}}), "layers[0].times.reference.1", "finite"),
    "infinite": (first(times={"reference": {"1": [1, float("inf")]}}), "layers[0].times.reference.1", "finite"),
    "negative time": (first(times={"reference": {"1": [-1, 1]}}), "layers[0].times.reference.1", "at least 0"),
    "beyond measure": (first(times={"reference": {"1": [1e300, 1]}}), "layers[0].times.reference.1", "at most 1e+30"),
    "too many bytes": (first(activation_bytes=1e308), "layers[0].activation_bytes", "at most 1e+30"),
    "one number": (first(times={"reference": {"1": [1]}}), "layers[0].times.reference.1", "forward_s"),
    "text time": (first(times={"reference": {"1": ["1", 1]}}), "layers[0].times.reference.1", "number"),
    "no samples": (first(times={"reference": {"0": [1, 1]}}), "layers[0].times.reference.0", "samples"),
    "half a sample": (first(times={"reference": {"1.5": [1, 1]}}), "layers[0].times.reference.1.5", "samples"),
    "no kind": (first(times={}), "layers[0].times", "forward_flops"),
    "no times": (first(times={"reference": {}}), "layers[0].times.reference", "at least 1"),
    "negative bytes": (first(parameter_bytes=-1), "layers[0].parameter_bytes", "at least 0"),
    "nan bytes": (first(output_bytes=float("nan")), "layers[0].output_bytes", "finite"),
    "text bytes": (first(activation_bytes="1MB"), "layers[0].activation_bytes", "number"),
    "negative flops": (first(forward_flops=-1), "layers[0].forward_flops", "at least 0"),
    "unknown key": (first(paramater_bytes=1), "layers[0].paramater_bytes", "'parameter_bytes'"),
    "unknown input": (first(inputs=["d"]), "layers[0].inputs[0]", "'input'"),
    "input twice": (document(layer("a"), layer("b", inputs=["a", "a"])), "layers[1].inputs[1]", "twice"),
    "reads itself": (first(inputs=["a"]), "layers[0].inputs", "cycle"),
    "cycle": (first(inputs=["c"]), "layers[0].inputs", "'a' reads 'c' reads 'b' reads 'a'"),
    "no inputs": (first(inputs=[]), "layers[0].inputs", "at least 1"),
    "same name": (document(layer("a"), layer("a")), "layers[1].name", "both called 'a'"),
    "reserved name": (document(layer("input")), "layers[0].name", "the sample itself"),
    "unknown tied": (document(tied=[["a", "x"]]), "tied[0][1]", "no layer is called 'x'"),
    "tied to itself": (document(tied=[["a", "a"]]), "tied[0][1]", "twice"),
    "tied alone": (document(tied=[["a"]]), "tied[0]", "at least 2"),
    "no layers": (document() | {"layers": []}, "layers", "at least 1"),
    "newer schema": (document(schema="ignite/profile/v2"), "schema", "ignite/profile/v1"),
    "precision": (document(precision="fp31"), "precision", "fp32, fp16 or bf16"),
}


@pytest.mark.parametrize(("data", "field", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_field_and_cure(tmp_path: Path, data: Any, field: str, said: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data, indent=1))
    with pytest.raises(DocumentError) as caught:
        load_profile(path)
    assert (caught.value.file, caught.value.field) == (str(path), field)
    assert caught.value.line
    assert said in caught.value.message


def test_the_line_is_that_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(first(forward_flops=-1), indent=1))
    wanted = next(n for n, text in enumerate(path.read_text().splitlines(), start=1) if "forward_flops" in text)
    with pytest.raises(DocumentError) as caught:
        load_profile(path)
    assert caught.value.line == wanted


def test_thousands_of_layers_are_sorted_and_a_long_cycle_is_named() -> None:
    count = 3000
    chain = [layer(f"l{index}", inputs=[f"l{index - 1}"] if index else ["input"]) for index in range(count)]
    assert names(document(*reversed(chain))) == [f"l{index}" for index in range(count)]
    chain[0]["inputs"] = [f"l{count - 1}"]
    with pytest.raises(DocumentError, match="cycle"):
        parse_profile(document(*chain))


@pytest.mark.parametrize("text", ["[]", "3", '"a"', "null", "{}"])
def test_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(DocumentError, match=r"p\.json:1"):
        load_profile(path)


def test_a_layer_that_was_only_sized_has_flops_in_place_of_times(tmp_path: Path) -> None:
    data = first(forward_flops=5.0)
    del data["layers"][0]["times"]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    profile = load_profile(path)
    assert profile.layers[0].times == {}
    written = profile_document(profile)
    assert "times" not in written["layers"][0]
    path.write_text(json.dumps(written))
    assert load_profile(path) == profile
