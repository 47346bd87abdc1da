"""A profile written in another planner's format and read back is the same profile, in all that the format can carry.

Where a format adds times up or moves them to milliseconds they are whole microseconds, so that equality is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.formats.foreign import Choices, Exported, export_profile, import_profile
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile

seconds = st.integers(0, 10**10).map(lambda count: count / 10**6)
any_seconds = st.just(0.0) | st.floats(1e-12, 1e6)
whole_bytes = st.integers(0, 2**40).map(float)
any_bytes = st.just(0.0) | st.floats(1e-3, 1e12)
samples = st.integers(1, 64)
names = st.text("abcXYZ019._é", min_size=1, max_size=6).filter(lambda name: name != MODEL_INPUT)


@st.composite
def graphs(
    draw: st.DrawFn,
    size: int,
    *,
    times: st.SearchStrategy[float],
    sizes: st.SearchStrategy[float],
    name: st.SearchStrategy[str] = names,
    parts: bool = True,
) -> Profile:
    """A profile of one kind and one size of microbatch."""
    found = draw(st.lists(name, min_size=1, max_size=6, unique=True))
    layers = []
    for index, own in enumerate(found):
        sources = draw(st.lists(st.sampled_from(found[:index]), max_size=2, unique=True)) if index else []
        layers.append(
            Layer(
                name=own,
                parameter_bytes=draw(sizes),
                output_bytes=draw(sizes),
                activation_bytes=draw(sizes),
                times={"V100": {size: LayerTimes(forward=draw(times), backward=draw(times))}},
                inputs=tuple(
                    LayerInput(source=source, bytes=draw(sizes) if parts and draw(st.booleans()) else None)
                    for source in sources
                )
                or (LayerInput(source=MODEL_INPUT),),
            )
        )
    return Profile(name="model", precision="fp32", reference="V100", layers=tuple(layers))


def there_and_back(profile: Profile, form: str, choices: Choices, at: str = "model.json") -> tuple[Profile, Exported]:
    """The profile after an export and an import, without its provenance."""
    written = export_profile(profile, form)
    with TemporaryDirectory() as folder:
        for name, text in written.texts.items():
            place = Path(folder) / (name or at)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return replace(import_profile(Path(folder) / at, choices=choices).profile, provenance={}), written


def carried(profile: Profile, form: str) -> Profile:
    """What is left of a profile where only reads by other layers show how many bytes leave a layer."""
    read: dict[str, float] = {}
    outputs = {layer.name: layer.output_bytes for layer in profile.layers}
    for layer in profile.layers:
        for edge in layer.inputs:
            num_bytes = outputs.get(edge.source, 0.0) if edge.bytes is None else edge.bytes
            read[edge.source] = max(read.get(edge.source, 0.0), num_bytes)
    layers = []
    for layer in profile.layers:
        inputs = tuple(
            LayerInput(source=edge.source, bytes=None if _is_whole(edge, outputs, read) else _bytes_of(edge, outputs))
            for edge in layer.inputs
        )
        layers.append(replace(layer, output_bytes=read.get(layer.name, 0.0), inputs=inputs))
    return replace(profile, layers=tuple(layers))


def _bytes_of(edge: LayerInput, outputs: Mapping[str, float]) -> float:
    return outputs.get(edge.source, 0.0) if edge.bytes is None else edge.bytes


def _is_whole(edge: LayerInput, outputs: Mapping[str, float], read: Mapping[str, float]) -> bool:
    return edge.source == MODEL_INPUT or _bytes_of(edge, outputs) == read[edge.source]


@given(st.data(), samples)
@settings(max_examples=40)
def test_pipedream(data: st.DataObject, size: int) -> None:
    # Exact for every float: numbers are text. Kept bytes are not carried; an import takes those of the inputs.
    name = names | st.tuples(names, names).map(" ".join)
    profile = data.draw(graphs(size, times=any_seconds, sizes=any_bytes, name=name, parts=False))
    read, written = there_and_back(profile, "pipedream", Choices(samples=size, kind="V100"), "model.txt")
    assert [layer.times for layer in read.layers] == [layer.times for layer in profile.layers]
    for field in ("output_bytes", "parameter_bytes"):
        assert [getattr(layer, field) for layer in read.layers] == [getattr(layer, field) for layer in profile.layers]
    if any("names" in text for text in written.lost):
        return
    kept = [layer.activation_bytes for layer in read.layers]
    assert read == replace(
        profile,
        layers=tuple(replace(layer, activation_bytes=own) for layer, own in zip(profile.layers, kept, strict=True)),
    )


@given(st.data(), samples)
@settings(max_examples=40)
def test_piper(data: st.DataObject, size: int) -> None:
    profile = data.draw(graphs(size, times=seconds, sizes=whole_bytes))
    read, _ = there_and_back(profile, "piper", Choices(samples=size, kind="V100"))
    assert read == carried(profile, "piper")


@given(st.data(), samples)
@settings(max_examples=40)
def test_dnn_partitioning(data: st.DataObject, size: int) -> None:
    profile = data.draw(graphs(size, times=seconds, sizes=whole_bytes))
    first = replace(profile.layers[0], parameter_bytes=profile.layers[0].parameter_bytes + 1)
    profile = replace(profile, layers=(first, *profile.layers[1:]))
    read, _ = there_and_back(profile, "dnn-partitioning", Choices(samples=size, kind="V100"))
    assert read == carried(profile, "dnn-partitioning")


@st.composite
def chains(draw: st.DrawFn) -> Profile:
    """A chain with several kinds and sizes, named as Sailor's importer names layers."""
    count = draw(st.integers(1, 5))
    found = ["embedding", *(f"layer {index}" for index in range(1, count - 1)), "head"][: count - 1 or 1]
    found = [*found, "head"] if count > 1 else found
    found = list(dict.fromkeys(found))
    kinds = draw(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3, unique=True).map(sorted))
    sizes = draw(st.lists(samples, min_size=1, max_size=3, unique=True).map(sorted))
    degree = draw(st.sampled_from(["", "-tp4"]))
    update = draw(st.floats(1e-9, 1.0))
    layers = []
    for index, own in enumerate(found):
        times = {
            kind + degree: {size: LayerTimes(forward=draw(any_seconds), backward=draw(any_seconds)) for size in sizes}
            for kind in kinds
        }
        layers.append(
            Layer(
                name=own,
                parameter_bytes=draw(any_bytes),
                output_bytes=draw(any_bytes),
                activation_bytes=draw(any_bytes),
                times=times,
                inputs=(LayerInput(source=found[index - 1] if index else MODEL_INPUT),),
                update={"adam": update, "adamw": update},
            )
        )
    return Profile(name="OPT-350", precision="fp32", reference=kinds[0] + degree, layers=tuple(layers))


@given(chains())
@settings(max_examples=40)
def test_sailor(profile: Profile) -> None:
    read, _ = there_and_back(profile, "sailor", Choices(), "compute/OPT-350")
    assert read == profile
