"""Whatever stands in a foreign file, the reader gives a profile or one error of ours: never another exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.foreign import Choices, export_profile, import_profile
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile
from spoilt_documents import numbers, places, spoilt

ROWS = {size: LayerTimes(forward=0.25, backward=0.5) for size in (1, 4)}
MODEL = Profile(
    name="m",
    precision="fp32",
    reference="V100",
    layers=tuple(
        Layer(
            name=name,
            parameter_bytes=8.0,
            output_bytes=4.0,
            activation_bytes=16.0,
            times={"V100": ROWS},
            inputs=(LayerInput(source=before),),
            update={"adam": 0.125},
        )
        for before, name in ((MODEL_INPUT, "a"), ("a", "b"), ("b", "c"))
    ),
)
EDGE_MODEL = {"net": {"layers": 1, "mem_MB": [1.5], "parameters_in": 10, "parameters_out": [20]}}
EDGE_TIMES = {"batch_size": 8, "dtype": "torch.float32", "time_s": [0.5]}
EDGE_DEVICE = {"device": "a", "model": "net", "profiles": [EDGE_TIMES]}

words = st.text(max_size=6) | st.sampled_from(["1", "-1", "1e999", "٣", "node1", "vanilla", "9" * 40])
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
quick = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def documents() -> dict[str, dict[str, Any]]:
    """Format → name of a file → what stands in it; the first is the one that is spoilt and imported."""
    found: dict[str, dict[str, Any]] = {
        form: {"f.json": json.loads(export_profile(MODEL, form).texts[""])} for form in ("piper", "dnn-partitioning")
    }
    tree = {name: json.loads(text) for name, text in export_profile(MODEL, "sailor").texts.items()}
    found["sailor"] = tree
    found["sailor sizes"] = dict(reversed(tree.items()))
    found["pipeedge"] = {"device.json": EDGE_DEVICE, "model.json": EDGE_MODEL}
    found["pipeedge sizes"] = {"model.json": EDGE_MODEL, "device.json": EDGE_DEVICE}
    return found


DOCUMENTS = documents()


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@quick
def test_a_spoilt_document_is_a_profile_or_one_error(name: str, data: st.DataObject, tmp_path: Path) -> None:
    first = next(iter(DOCUMENTS[name]))
    for file, document in DOCUMENTS[name].items():
        if file == first:
            place = data.draw(st.sampled_from(places(document)))
            document = spoilt(document, place, data.draw(values))  # noqa: PLW2901
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps(document, default=str), encoding="utf-8")
    for form in (None, name.partition(" ")[0]):
        result = outcome(tmp_path / first, form)
        assert isinstance(result, Profile) or (result and result.isprintable())


def outcome(path: Path, form: str | None) -> Profile | str:
    """The profile, or the message of the error."""
    try:
        return import_profile(path, form=form, choices=Choices()).profile
    except InputError as error:
        return str(error)


TEXT = export_profile(MODEL, "pipedream").texts[""]
JUNK = st.text() | st.sampled_from(["\n", "\t", " -- ", "1e999999999", "1e-999999999", "[", "nan", "-3"])


@given(at=st.integers(0, len(TEXT)), extra=JUNK)
@quick
def test_a_spoilt_graph_is_a_profile_or_one_error(at: int, extra: str, tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(TEXT[:at] + extra + TEXT[at:], encoding="utf-8")
    for form in (None, "pipedream"):
        result = outcome(path, form)
        assert isinstance(result, Profile) or (result and result.isprintable())


@pytest.mark.parametrize("length", range(0, len(TEXT), 7))
def test_a_graph_that_is_cut_off_is_refused_or_has_all_layers(length: int, tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(TEXT[:length], encoding="utf-8")
    result = outcome(path, "pipedream")
    assert str(path) in result if isinstance(result, str) else len(result.layers) == len(MODEL.layers)
