"""From raw measurements to a profile: medians into layers, everything else into its provenance."""

from __future__ import annotations

import statistics
from typing import Any

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import MODEL_INPUT, Layer, LayerInput, LayerTimes, Profile, Reference
from ignite_scheduler.profiler.request import Measured, Request, Series
from ignite_scheduler.profiler.summary import count_outliers, relative_spread

_DIGITS = 4
"""Significant digits of ratios in the provenance."""


def profile_of(measured: Measured, request: Request, *, name: str, kind: str, date: str) -> Profile:
    """The profile that the measurements make, under one kind of device that is also its reference."""
    layers = []
    before = MODEL_INPUT
    for index, layer_name in enumerate(measured.layers):
        sizes = measured.sizes[index]
        times = {size: _layer_times(measured, index, size) for size in measured.series}
        layers.append(
            Layer(
                name=layer_name,
                parameter_bytes=sizes.parameter_bytes,
                output_bytes=sizes.output_bytes,
                activation_bytes=sizes.activation_bytes,
                forward_flops=sizes.forward_flops,
                backward_flops=sizes.backward_flops,
                times={kind: times},
                inputs=(LayerInput(source=before),),
                update=dict(measured.updates[index]),
            )
        )
        before = layer_name
    return Profile(
        name=name,
        precision=request.precision,
        reference=kind,
        layers=tuple(layers),
        tied=measured.tied,
        action_overhead=statistics.mean(measured.action_overhead),
        provenance=_provenance(measured, request, date),
    )


def _layer_times(measured: Measured, index: int, size: int) -> LayerTimes:
    """Medians less what an action costs beside its layers; the parts of the backward share the whole of it."""
    of_forward, of_backward = measured.action_overhead
    series = measured.series[size][index]
    forward = max(0.0, statistics.median(series.forward) - of_forward)
    backward = max(0.0, statistics.median(series.backward) - of_backward)
    inputs, weights = (max(0.0, part - of_backward) for part in measured.parts[size][index])
    apart = inputs + weights
    if apart == 0:
        return LayerTimes(forward=forward, backward=backward)
    share = inputs / apart
    return LayerTimes(
        forward=forward,
        backward=backward,
        input_backward=backward * share,
        weight_backward=backward - backward * share,
    )


def _provenance(measured: Measured, request: Request, date: str) -> dict[str, Any]:
    largest = max(measured.series)
    both = [_both(series) for series in measured.series[largest]]
    spread = [_rounded(relative_spread(values)) for values in both]
    every = [s for size in measured.series for s in measured.series[size]]
    return {
        "measured": date,
        "model": _reference(request.model),
        "data": _reference(request.data),
        "loss": request.loss,
        "sample": measured.sample_shape,
        "structure": measured.fingerprint,
        "machine": dict(measured.machine),
        "device": request.device,
        "clock": "thread CPU time" if request.device == "cpu" else "wall time between synchronisations",
        "statistic": "median over passes, less the overhead of an action",
        "passes": len(both[0]),
        "outliers": sum(count_outliers(series.forward) + count_outliers(series.backward) for series in every),
        "values": sum(len(series.forward) + len(series.backward) for series in every),
        "relative_spread": dict(zip(measured.layers, spread, strict=True)),
        "relative_spread_median": _rounded(statistics.median(spread)),
        "wall_over_clock": _rounded(measured.wall_over_cpu),
        "whole_over_sum": {str(size): _rounded(_whole_over_sum(measured, size)) for size in measured.series},
        "backward_parts_over_whole": {
            name: _rounded(_parts_over_whole(measured, index, largest)) for index, name in enumerate(measured.layers)
        },
        "saved_bytes_whole_over_sum": _rounded(
            measured.saved_bytes_whole / max(1.0, sum(sizes.activation_bytes for sizes in measured.sizes))
        ),
        "action_overhead_s": {"forward": measured.action_overhead[0], "backward": measured.action_overhead[1]},
        "flops": "matrix products, convolutions and attention only",
    }


def _both(series: Series) -> list[float]:
    return [f + b for f, b in zip(series.forward, series.backward, strict=True)]


def _whole_over_sum(measured: Measured, size: int) -> float:
    """The chain run as one stage ÷ what the profile says of such a stage."""
    overhead = sum(measured.action_overhead)
    layers = [_layer_times(measured, index, size) for index in range(len(measured.layers))]
    return statistics.median(_both(measured.whole[size])) / (overhead + sum(t.forward + t.backward for t in layers))


def _parts_over_whole(measured: Measured, index: int, size: int) -> float:
    """What both parts of the backward cost when run apart ÷ what the backward costs in one."""
    of_backward = measured.action_overhead[1]
    apart = sum(max(0.0, part - of_backward) for part in measured.parts[size][index])
    backward = _layer_times(measured, index, size).backward
    return apart / backward if backward > 0 else 1.0


def _reference(reference: Reference) -> dict[str, Any]:
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
