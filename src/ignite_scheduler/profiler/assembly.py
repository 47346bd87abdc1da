"""From raw measurements to a profile: typical seconds into layers, everything else into its provenance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile, Reference
from ignite_scheduler.profiler.request import Measured, Request, Series, Sizes
from ignite_scheduler.profiler.summary import outliers, relative_spread, typical

FLOPS: Final = "matrix products, convolutions and attention (in full, causal or not) only"
"""Which FLOPs are counted, for the provenance."""
_DIGITS = 4
"""Significant digits of ratios in the provenance."""
_MOST_NAMED = 5
"""Values far out that a profile names; all are counted."""
_BUSY = 1.5
"""Wall time ÷ CPU time from which a measurement warns: times were up to 15 % too high at 5, and right at 2."""


def merge(profile: Profile, other: Profile) -> Profile:
    """``profile`` with the times that ``other`` has for further kinds of device or sizes of microbatch.

    Where both have a time, that of ``other`` stands. Sizes, reference and overheads stay those of ``profile``; the
    provenance of ``other`` is kept under ``merged``.

    Raises
    ------
    InputError
        The two are not of one model at one precision.
    """
    names, others = [[layer.name for layer in p.layers] for p in (profile, other)]
    structures = {p.provenance.get("structure") for p in (profile, other)}
    if names != others or len(structures) > 1 or profile.precision != other.precision:
        raise InputError(
            f"profiles {profile.name!r} ({profile.precision}) and {other.name!r} ({other.precision}) are not of one "
            "model at one precision: measure the same model again"
        )
    layers = []
    for mine, theirs in zip(profile.layers, other.layers, strict=True):
        kinds = dict.fromkeys((*mine.times, *theirs.times))
        times = {kind: dict(mine.times.get(kind, {})) | dict(theirs.times.get(kind, {})) for kind in kinds}
        layers.append(replace(mine, times=times))
    merged = [*profile.provenance.get("merged", []), dict(other.provenance)]
    return replace(profile, layers=tuple(layers), provenance=dict(profile.provenance) | {"merged": merged})


def profile_of(measured: Measured, request: Request, *, name: str, kind: str, date: str) -> Profile:
    """The profile that the measurements make, under one kind of device that is also its reference."""
    layers = tuple(
        replace(
            layer,
            times={kind: {size: _layer_times(measured, index, size) for size in measured.series}},
            update=dict(measured.updates[index]),
        )
        for index, layer in enumerate(timeless_layers(measured.layers, measured.sizes))
    )
    return Profile(
        name=name,
        precision=request.precision,
        reference=kind,
        layers=layers,
        tied=measured.tied,
        action_overhead=statistics.mean(_beginnings(measured)),
        provenance=_provenance(measured, request, date),
    )


def timeless_layers(names: Sequence[str], sizes: Sequence[Sizes]) -> tuple[Layer, ...]:
    """The layers of a chain with their sizes; no times."""
    before = (MODEL_INPUT, *names)[: len(names)]
    return tuple(
        Layer(
            name=name,
            parameter_bytes=of_layer.parameter_bytes,
            output_bytes=of_layer.output_bytes,
            activation_bytes=of_layer.activation_bytes,
            carried_bytes=of_layer.carried_bytes,
            transient_bytes=of_layer.transient_bytes,
            workspace_bytes=of_layer.workspace_bytes,
            forward_flops=of_layer.forward_flops,
            backward_flops=of_layer.backward_flops,
            times={},
            inputs=(LayerInput(source=source),),
        )
        for name, source, of_layer in zip(names, before, sizes, strict=True)
    )


def _layer_times(measured: Measured, index: int, size: int) -> LayerTimes:
    """Figures of one layer: fitted to the whole chain; the parts of the backward share the whole of it."""
    forward, backward = (
        seconds * scale
        for seconds, scale in zip(_typical(measured.series[size][index]), _whole_over_sum(measured, size), strict=True)
    )
    inputs, weights = measured.parts[size][index]
    if inputs + weights == 0:
        return LayerTimes(forward=forward, backward=backward)
    of_inputs = backward * inputs / (inputs + weights)
    of_weights = max(0.0, backward - of_inputs)  # rounding may leave a hair below 0, which no reader takes
    return LayerTimes(forward=forward, backward=backward, input_backward=of_inputs, weight_backward=of_weights)


def _beginnings(measured: Measured) -> tuple[float, float]:
    """What a forward and a backward cost beside their layers: n layers begin n times as n stages, once as one.

    The median over sizes, for it hardly depends on them. A chain of one layer does not tell: 0.
    """
    further = len(measured.layers) - 1
    if further == 0:
        return 0.0, 0.0
    forward, backward = zip(*(_excess(measured, size) for size in measured.series), strict=True)
    return max(0.0, statistics.median(forward)) / further, max(0.0, statistics.median(backward)) / further


def _excess(measured: Measured, size: int) -> tuple[float, float]:
    """Typical (forward, backward) of all layers as stages of their own, less that of the chain as one stage."""
    begun, whole = measured.begun[size], measured.whole[size]
    return typical(begun.forward) - typical(whole.forward), typical(begun.backward) - typical(whole.backward)


def _typical(series: Series) -> tuple[float, float]:
    return typical(series.forward), typical(series.backward)


def _whole_over_sum(measured: Measured, size: int) -> tuple[float, float]:
    """(forward, backward) of the chain run as one stage, net of its beginning, ÷ the sum of its layers.

    Layers run one by one are not quite what they are together (fewer buffers are used again). A stage is many layers
    together, so the layers' times are scaled by these ratios.
    """
    forward, backward = zip(*map(_typical, measured.series[size]), strict=True)
    (whole_forward, whole_backward), (of_forward, of_backward) = _typical(measured.whole[size]), _beginnings(measured)
    return _ratio(whole_forward - of_forward, sum(forward)), _ratio(whole_backward - of_backward, sum(backward))


def _ratio(part: float, total: float) -> float:
    return max(0.0, part) / total if total > 0 else 1.0


def _provenance(measured: Measured, request: Request, date: str) -> dict[str, Any]:
    largest = max(measured.series)
    both = [_both(series) for series in measured.series[largest]]
    spread = [_rounded(relative_spread(values)) for values in both]
    every = [s for size in measured.series for s in measured.series[size]]
    return {
        "measured": date,
        "model": reference_document(request.model),
        "data": reference_document(request.data),
        "loss": request.loss,
        "sample": measured.sample_shape,
        "structure": measured.fingerprint,
        "machine": dict(measured.machine),
        "device": request.device,
        "clock": "thread CPU time" if request.device == "cpu" else "wall time between synchronisations",
        "statistic": "median of the faster half of the passes, times whole_over_sum",
        "passes": len(both[0]),
        "outliers": sum(len(outliers(series.forward)) + len(outliers(series.backward)) for series in every),
        "values": sum(len(series.forward) + len(series.backward) for series in every),
        "relative_spread": dict(zip(measured.layers, spread, strict=True)),
        "relative_spread_median": _rounded(statistics.median(spread)),
        "far_out": far_out(measured),
        "wall_over_clock": _rounded(measured.wall_over_cpu),
        "warnings": _warnings(measured),
        "whole_over_sum": {
            str(size): [_rounded(ratio) for ratio in _whole_over_sum(measured, size)] for size in measured.series
        },
        "backward_parts_over_whole": {
            name: _rounded(_parts_over_whole(measured, index, largest)) for index, name in enumerate(measured.layers)
        },
        "saved_bytes_whole_over_sum": _rounded(
            measured.saved_bytes_whole / max(1.0, sum(sizes.activation_bytes for sizes in measured.sizes))
        ),
        "action_overhead_s": dict(zip(("forward", "backward"), _beginnings(measured), strict=True)),
        "updates": "gradient norm and one optimizer step",
        "flops": FLOPS,
    }


def _warnings(measured: Measured) -> list[str]:
    if measured.wall_over_cpu < _BUSY:
        return [*measured.warnings]
    return [
        *measured.warnings,
        f"others used the machine while it was measured (wall time was {measured.wall_over_cpu:.2g} times CPU time): "
        "times may be too high; measure again when it is quiet",
    ]


def far_out(measured: Measured) -> list[dict[str, Any]]:
    """The values farthest out of their series, worst first: which layer, which pass, by how much."""
    found: list[tuple[float, dict[str, Any]]] = []
    for size, series in measured.series.items():
        for name, of_layer in zip(measured.layers, series, strict=True):
            for way, values in (("forward", of_layer.forward), ("backward", of_layer.backward)):
                middle = statistics.median(values)
                for index in outliers(values) if middle > 0 else ():
                    over = _rounded(values[index] / middle)
                    entry = {"layer": name, "pass": f"{way}, pass {index + 1}", "samples": size, "over_median": over}
                    found.append((over, entry))
    return [entry for _, entry in sorted(found, key=lambda pair: -pair[0])[:_MOST_NAMED]]


def _both(series: Series) -> list[float]:
    return [f + b for f, b in zip(series.forward, series.backward, strict=True)]


def _parts_over_whole(measured: Measured, index: int, size: int) -> float:
    """What both parts of the backward cost when run apart ÷ what the backward costs in one."""
    backward = typical(measured.series[size][index].backward)
    return sum(measured.parts[size][index]) / backward if backward > 0 else 1.0


def reference_document(reference: Reference) -> dict[str, Any]:
    """The reference as a profile's provenance has it; InputError where its arguments are not plain data."""
    named = {"zoo": reference.zoo} if reference.zoo is not None else {"module": reference.module}
    return named | ({"args": _plain(reference.args)} if reference.args else {})


def _plain(value: Any) -> Any:
    """The value in what JSON has."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    raise InputError(f"args hold numbers, texts, lists and maps; found a {type(value).__name__}")


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
