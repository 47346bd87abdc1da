"""Laws of the roofline: the time of a layer that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignite_scheduler.cost import LayerSeconds, element_bytes, layer_seconds
from ignite_scheduler.model import Device, Layer, LayerInput, Profile

figures = st.integers(0, 10**12).map(float)
rates = st.integers(1, 10**15).map(float)
shares = st.floats(0.01, 1.0)
factors = st.integers(1, 64)
sizes = st.integers(1, 512)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    return Layer(
        name="l",
        parameter_bytes=draw(figures),
        output_bytes=draw(figures),
        activation_bytes=draw(figures),
        forward_flops=draw(figures),
        backward_flops=draw(st.none() | figures),
        times={},
        inputs=(LayerInput(source="input"),),
    )


@st.composite
def devices(draw: st.DrawFn) -> Device:
    return Device(
        id="n/a",
        node="n",
        kind="card",
        memory=1e9,
        peak_flops=(("bf16", draw(rates)), ("fp32", draw(rates))),
        memory_bandwidth=draw(rates),
        achievable_flops=draw(shares),
        achievable_bandwidth=draw(shares),
        launch_overhead=draw(st.just(0.0) | st.floats(1e-7, 1e-2)),
    )


def seconds(layer: Layer, device: Device, samples: int, precision: str | None = None) -> LayerSeconds:
    profile = Profile(name="p", precision="fp32", reference=None, layers=(layer,))
    found = layer_seconds(profile, 0, device, samples, precision)
    assert found is not None
    return found


@given(layers(), devices(), sizes, sizes)
def test_times_never_fall_with_the_size(layer: Layer, device: Device, few: int, more: int) -> None:
    few, more = min(few, more), max(few, more)

    first, second = seconds(layer, device, few), seconds(layer, device, more)

    assert 0 <= first.forward <= second.forward
    assert 0 <= first.backward <= second.backward


FASTER: dict[str, Any] = {
    "peak": lambda device, k: replace(device, peak_flops=tuple((d, rate * k) for d, rate in device.peak_flops)),
    "bandwidth": lambda device, k: replace(device, memory_bandwidth=device.memory_bandwidth * k),
    "share of the peak": lambda device, k: replace(device, achievable_flops=1 - (1 - device.achievable_flops) / k),
    "share of bandwidth": lambda d, k: replace(d, achievable_bandwidth=1 - (1 - d.achievable_bandwidth) / k),
    "launch": lambda device, k: replace(device, launch_overhead=device.launch_overhead / k),
}


@pytest.mark.parametrize("better", FASTER)
@given(layer=layers(), device=devices(), samples=sizes, factor=factors)
def test_a_faster_device_never_gives_slower_layers(
    better: str, layer: Layer, device: Device, samples: int, factor: int
) -> None:
    slow, fast = seconds(layer, device, samples), seconds(layer, FASTER[better](device, factor), samples)

    assert fast.forward <= slow.forward * (1 + 1e-12)
    assert fast.backward <= slow.backward * (1 + 1e-12)


@given(layers(), devices(), sizes, st.integers(0, 6).map(lambda power: 2.0**power))
def test_scaling_every_figure_scales_the_time(layer: Layer, device: Device, samples: int, factor: float) -> None:
    fast = replace(
        FASTER["peak"](device, factor),
        memory_bandwidth=device.memory_bandwidth * factor,  # type: ignore[operator]
        launch_overhead=device.launch_overhead / factor,
    )

    assert seconds(layer, fast, samples).forward * factor == seconds(layer, device, samples).forward


@given(layers(), devices(), sizes, st.sampled_from(["fp32", "bf16"]))
def test_it_is_the_slower_of_computing_and_moving_and_a_launch(
    layer: Layer, device: Device, samples: int, precision: str
) -> None:
    assert device.memory_bandwidth is not None
    peak = device.peak(precision)
    assert peak is not None
    flops = samples * (layer.forward_flops or 0)
    kept = layer.parameter_bytes + samples * (layer.activation_bytes + layer.output_bytes)
    computing = flops / (peak * device.achievable_flops)
    moving = kept * element_bytes(precision) / 4 / (device.memory_bandwidth * device.achievable_bandwidth)

    found = seconds(layer, device, samples, precision)

    assert found.forward == pytest.approx(max(computing, moving) + device.launch_overhead, rel=1e-12)
    assert found.weight_backward == found.backward / 2
    assert found.source == f"roofline of card at {round(100 * device.achievable_flops)} % of its {precision} peak"


@given(layers(), devices(), sizes)
def test_a_precision_without_a_rate_has_no_time(layer: Layer, device: Device, samples: int) -> None:
    profile = Profile(name="p", precision="fp32", reference=None, layers=(layer,))

    assert layer_seconds(profile, 0, device, samples, "fp16") is None
    assert layer_seconds(profile, 0, replace(device, memory_bandwidth=None), samples) is None
