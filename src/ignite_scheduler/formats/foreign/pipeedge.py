"""PipeEdge's profiles → our :class:`Profile`: ``model_*.json`` with one or several ``device_*.json`` beside it.

The device files have the time of each layer's *forward* pass only (PipeEdge serves models, it does not train them).
Sizes of tensors are counts of elements for one sample.

References
----------
Y. Hu et al., "PipeEdge: Pipeline parallelism for large-scale model inference on heterogeneous edge devices", DSD 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from ignite_scheduler.errors import DocumentError, InputError
from ignite_scheduler.formats.foreign.common import (
    Choices,
    ForeignFormat,
    Found,
    Imported,
    Notes,
    assume_backward,
    backward_of,
    imported,
    json_files,
    shifted,
)
from ignite_scheduler.formats.foreign.shapes import EdgeDevice, EdgeModel
from ignite_scheduler.formats.shapes.check import check, checked
from ignite_scheduler.formats.source import Source, read_source
from ignite_scheduler.model import MODEL_INPUT

TITLE: Final = "PipeEdge's profiles"
MEGA: Final = 6
_PRECISIONS: Final[Mapping[str, str]] = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_ELEMENT_BYTES: Final[Mapping[str, int]] = {"fp32": 4, "fp16": 2, "bf16": 2}
_MODELS: Final[TypeAdapter[dict[str, EdgeModel]]] = TypeAdapter(dict[str, EdgeModel])


def is_device(data: Any) -> bool:
    """Whether a JSON value looks like ``device_*.json``."""
    return isinstance(data, dict) and {"device", "model", "profiles"} <= data.keys()


def is_model(data: Any) -> bool:
    """Whether a JSON value looks like ``model_*.json``."""
    if not isinstance(data, dict) or not data:
        return False
    return all(isinstance(value, dict) and {"layers", "parameters_out"} <= value.keys() for value in data.values())


def _recognises(found: Found) -> bool:
    if found.path.is_dir():
        return any(is_device(read_source(path).data) for path in json_files(found.path)[:8])
    return is_device(found.data) or is_model(found.data)


def _read(found: Found, choices: Choices) -> Imported:
    notes = Notes()
    folder = found.path if found.path.is_dir() else found.path.absolute().parent
    sources = [read_source(path) for path in json_files(folder)]
    model_sources = [source for source in sources if is_model(source.data)]
    device_sources = [source for source in sources if is_device(source.data)]
    if is_device(found.data):
        assert found.source is not None
        device_sources = [found.source]
    devices = [(source, check(EdgeDevice, source)) for source in device_sources]
    model_name, model = _model(found, model_sources, [device.model for _, device in devices])
    devices = [(source, device) for source, device in devices if device.model == model_name]
    if not devices:
        raise DocumentError(f"expected a device_*.json for the model {model_name!r}, found none", file=found.file)
    precision = _precision(devices)
    times = _times(devices, precision, model.layers, choices, notes)
    assume_backward(notes, choices)
    _say(notes, precision)
    return imported(
        found,
        notes,
        form="pipeedge",
        title=TITLE,
        name=model_name,
        reference=next(iter(times)),
        precision=precision,
        layers=[_layer(index, model, times, _ELEMENT_BYTES[precision], choices) for index in range(model.layers)],
        provenance={"inference_only": True, "files": [Path(source.file or "").name for source, _ in devices]},
    )


FORMAT: Final = ForeignFormat(
    name="pipeedge",
    title="PipeEdge (model_*.json with device_*.json)",
    recognises=_recognises,
    read=_read,
    choices=frozenset({"kind", "backward_ratio"}),
)


def _model(found: Found, sources: Sequence[Source], wanted: Sequence[str]) -> tuple[str, EdgeModel]:
    """The model that the devices were measured with, and its name."""
    models: dict[str, tuple[Source, EdgeModel]] = {}
    for source in sources:
        models |= {name: (source, model) for name, model in checked(_MODELS.validate_python, source).items()}
    if is_model(found.data):
        wanted = [name for name in found.data if name in wanted] or list(found.data)
    name = next(iter(wanted), None)
    if name is None or name not in models:
        raise DocumentError(
            f"expected the sizes of {name!r} in a model_*.json beside it, found: {', '.join(models) or 'none'}",
            file=found.file,
        )
    source, model = models[name]
    for key, values in (("mem_MB", model.megabytes), ("parameters_out", model.elements_out)):
        if len(values) != model.layers:
            raise source.error((name, key), f"expected {model.layers} numbers, one a layer, found {len(values)}")
    return name, model


def _precision(devices: Sequence[tuple[Source, EdgeDevice]]) -> str:
    source, device = devices[0]
    dtype = device.profiles[0].dtype.removeprefix("torch.")
    if dtype not in _PRECISIONS:
        known = ", ".join(_PRECISIONS)
        raise source.error(("profiles", 0, "dtype"), f"expected one of {known}, found {dtype!r}")
    return _PRECISIONS[dtype]


def _times(
    devices: Sequence[tuple[Source, EdgeDevice]], precision: str, num_layers: int, choices: Choices, notes: Notes
) -> dict[str, dict[int, list[float]]]:
    """Kind → samples of a batch → forward seconds of each layer."""
    if choices.kind is not None and len(devices) > 1:
        raise InputError(f"--kind names one kind of device, but {len(devices)} are imported; import one device's file")
    times: dict[str, dict[int, list[float]]] = {}
    for source, device in devices:
        rows: dict[int, list[float]] = {}
        for index, one in enumerate(device.profiles):
            if len(one.seconds) != num_layers:
                raise source.error(
                    ("profiles", index, "time_s"), f"expected {num_layers} times, one a layer, found {len(one.seconds)}"
                )
            if _PRECISIONS.get(one.dtype.removeprefix("torch.")) == precision:
                rows[one.batch_size] = one.seconds
            else:
                notes.warn(f"{device.device}: times in {one.dtype} are left out")
        if rows:
            times[choices.kind or device.device] = rows
    return times


def _layer(
    index: int, model: EdgeModel, times: Mapping[str, Mapping[int, Sequence[float]]], element: int, choices: Choices
) -> dict[str, Any]:
    read = model.elements_out[index - 1] if index else model.elements_in
    return {
        "name": f"layer {index + 1}",
        "parameter_bytes": shifted(model.megabytes[index], MEGA),
        "output_bytes": model.elements_out[index] * element,
        "activation_bytes": read * element,
        "times": {
            kind: {
                str(samples): [seconds[index], backward_of(seconds[index], choices)]
                for samples, seconds in rows.items()
            }
            for kind, rows in times.items()
        },
        "inputs": [f"layer {index}" if index else MODEL_INPUT],
    }


def _say(notes: Notes, precision: str) -> None:
    notes.assume(
        f"a chain of layers; tensors are elements of one sample in {precision}; time_s is that of a whole batch"
    )
    notes.assume("mem_MB (10⁶ bytes) is what a layer holds on a device serving it: all of it counts as parameter_bytes")
    notes.assume("activation_bytes: the bytes of each layer's input, since the files do not hold what training keeps")
    notes.assume("bw_Mbps and the device's mem_MB describe the cluster: write them into your cluster file")
