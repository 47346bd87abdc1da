"""Our :class:`Profile` → Sailor's ``compute/MODEL/GPU.json`` and ``memory/MODEL.json``."""

from __future__ import annotations

import re
from typing import Any

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.files import json_text
from ignite_scheduler.formats.foreign.exporting import Exported, losses
from ignite_scheduler.formats.foreign.sailor import OPTIMIZERS, layer_name
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, Profile

_DEGREE = re.compile(r"(.+)-tp(\d+)")
_ELEMENT = 4
"""Bytes of one number in Sailor's files."""


def export(profile: Profile, *, kind: str | None = None, samples: int | None = None) -> Exported:
    """The files of one model: times of every kind at every size, and bytes of one sample.

    Parameters
    ----------
    kind, samples
        Only this kind, only this size of microbatch; None = all.

    Raises
    ------
    InputError
        The layers are no chain (Sailor knows chains only), or they were measured at unlike kinds or sizes.
    """
    _check_chain(profile)
    kinds = [one for one in profile.layers[0].times if kind in (None, one)]
    if not kinds:
        raise InputError(f"no times of the kind {kind!r}; kinds with times: {', '.join(profile.layers[0].times)}")
    degree = _degree(kinds)
    model = re.sub(r"[^\w.+-]", "-", profile.name).lstrip(".") or "model"
    texts = {f"compute/{model}/{_gpu(one)}.json": json_text(_compute(profile, one, samples, degree)) for one in kinds}
    texts[f"memory/{model}.json"] = json_text({degree: {str(i): _sizes(own) for i, own in enumerate(profile.layers)}})
    lost = losses(profile, "kinds" if samples is None and kind is None else "", "kept", "update")
    names = [layer.name for layer in profile.layers]
    if names != [layer_name(index, len(names)) for index in range(len(names))]:
        lost.append("names of layers (Sailor's are numbers)")
    notes = ("update times are the reference's for adam; 0 elsewhere, which marks a file as not measured for them",)
    return Exported(texts=texts, lost=tuple(lost), notes=notes)


def _check_chain(profile: Profile) -> None:
    before = MODEL_INPUT
    for layer in profile.layers:
        if layer.inputs != (LayerInput(source=before),):
            raise InputError(
                f"Sailor's profiles are chains, but {layer.name!r} does not read exactly the whole output of the layer "
                "before it; export to another format"
            )
        before = layer.name


def _degree(kinds: list[str]) -> str:
    """The degree of tensor parallelism that an import put into the kinds' names."""
    degrees = {match.group(2) if (match := _DEGREE.fullmatch(one)) else "1" for one in kinds}
    if len(degrees) > 1:
        raise InputError(
            f"kinds of unlike tensor-parallel degrees ({', '.join(kinds)}); export them one by one (--kind)"
        )
    return degrees.pop()


def _gpu(kind: str) -> str:
    match = _DEGREE.fullmatch(kind)
    return re.sub(r"[^\w.+-]", "-", match.group(1) if match else kind)


def _compute(profile: Profile, kind: str, samples: int | None, degree: str) -> dict[str, Any]:
    sizes = list(profile.layers[0].times[kind])
    if any(list(layer.times.get(kind, {})) != sizes for layer in profile.layers):
        raise InputError(f"the layers were not measured at the same sizes of microbatch on {kind!r}")
    wanted = [size for size in sizes if samples in (None, size)]
    if not wanted:
        raise InputError(f"no times for {samples} samples on {kind!r}; measured: {', '.join(map(str, sizes))}")
    return {
        str(size): {
            degree: {str(index): _row(profile, layer, kind, size) for index, layer in enumerate(profile.layers)}
        }
        for size in wanted
    }


def _row(profile: Profile, layer: Layer, kind: str, size: int) -> list[float]:
    times = layer.times[kind][size]
    update = next((layer.update[name] for name in OPTIMIZERS if name in layer.update), 0.0)
    return [times.forward, times.backward, update if kind == profile.reference else 0.0]


def _sizes(layer: Layer) -> dict[str, float]:
    figures = {"params": layer.parameter_bytes, "act_output": layer.output_bytes, "act_mem": layer.activation_bytes}
    return {f"{name}_bytes": value for name, value in figures.items()} | {
        f"{name}_floats": value / _ELEMENT for name, value in figures.items()
    }
