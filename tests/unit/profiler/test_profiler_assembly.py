"""From raw series to a profile, with numbers that can be followed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.profile import parse_profile, profile_document
from ignite_scheduler.model import LayerTimes, Profile, Reference
from ignite_scheduler.profiler.assembly import merge, profile_of
from ignite_scheduler.profiler.request import Measured, Request, Series, Sizes

REQUEST = Request(
    model=Reference(zoo="mlp", args={"hidden": (3,)}),
    data=Reference(module="pkg.mod:rows"),
    loss="mse",
    precision="fp32",
    samples=(1, 4),
    repeats=5,
    time_limit=1.0,
    device="cpu",
    seed=0,
)
SIZES = Sizes(parameter_bytes=8.0, output_bytes=4.0, activation_bytes=16.0, forward_flops=2.0, backward_flops=4.0)


def series(forward: float, backward: float) -> Series:
    """Five passes whose medians are the arguments; the last one is an outlier."""
    return Series(forward=(forward,) * 4 + (9 * forward,), backward=(backward,) * 4 + (9 * backward,))


def measured() -> Measured:
    # With a rest before each of them the layers take 10 and 20 seconds, as one stage 9 and 18: a beginning costs 1 and
    # 2 seconds, and the chain 8 and 16. At 4 samples it takes three quarters and half of that.
    layers = (series(2.0, 4.0), series(6.0, 12.0))
    begun, whole, less = series(10.0, 20.0), series(9.0, 18.0), series(7.0, 10.0)
    return Measured(
        layers=("a", "b"),
        sizes=(SIZES, SIZES),
        series={1: layers, 2: layers, 4: layers},
        parts={1: ((0.0, 4.0), (6.0, 3.0)), 2: ((0.0, 0.0), (6.0, 3.0)), 4: ((0.0, 0.0), (6.0, 3.0))},
        begun={1: begun, 2: begun, 4: begun},
        whole={1: whole, 2: whole, 4: less},
        wall_over_cpu=1.25,
        updates=({"sgd": 0.5}, {}),
        saved_bytes_whole=24.0,
        tied=(("a", "b"),),
        fingerprint="f00d",
        sample_shape="(1, 3) float32",
        machine={"cpu": "test", "torch": "0"},
    )


def profile(kind: str = "cpu") -> Profile:
    return profile_of(measured(), REQUEST, name="m", kind=kind, date="2026-01-01T00:00:00+00:00")


def test_a_chain_of_n_layers_begins_n_times_as_n_stages_and_once_as_one() -> None:
    result = profile()
    assert result.action_overhead == 1.5
    assert result.provenance["action_overhead_s"] == {"forward": 1.0, "backward": 2.0}
    first, second = (layer.times["cpu"] for layer in result.layers)
    assert first[1] == LayerTimes(forward=2.0, backward=4.0, input_backward=0.0, weight_backward=4.0)
    # Apart the parts take 6 and 3 seconds: two thirds and one third of the whole backward.
    assert second[1] == LayerTimes(forward=6.0, backward=12.0, input_backward=8.0, weight_backward=4.0)


def test_where_a_size_disagrees_its_layers_are_scaled_to_the_chain_run_as_one_stage() -> None:
    first, second = (layer.times["cpu"] for layer in profile().layers)
    assert (first[4].forward, second[4].forward) == (2.0 * 0.75, 6.0 * 0.75)
    assert (first[4].backward, second[4].backward) == (4.0 * 0.5, 12.0 * 0.5)


def test_layers_and_one_beginning_add_up_to_the_chain_run_as_one_stage() -> None:
    for size, (forward, backward) in {1: (9.0, 18.0), 2: (9.0, 18.0), 4: (7.0, 10.0)}.items():
        times = [layer.times["cpu"][size] for layer in profile().layers]
        assert sum(t.forward for t in times) + 1.0 == forward
        assert sum(t.backward for t in times) + 2.0 == backward


def test_a_chain_of_one_layer_does_not_tell_what_a_beginning_costs() -> None:
    whole = measured()
    one = replace(
        whole,
        layers=("a",),
        sizes=whole.sizes[:1],
        series={1: whole.series[1][:1]},
        parts={1: whole.parts[1][:1]},
        begun={1: whole.series[1][0]},
        whole={1: whole.series[1][0]},
        updates=({},),
        tied=(),
    )
    result = profile_of(one, REQUEST, name="m", kind="cpu", date="")
    assert result.action_overhead == 0.0
    assert result.layers[0].times["cpu"][1].forward == 2.0


def test_a_backward_without_measured_parts_has_none() -> None:
    assert profile().layers[0].times["cpu"][4] == LayerTimes(forward=1.5, backward=2.0)


def test_the_layers_form_a_chain_with_sizes_updates_and_ties() -> None:
    result = profile("box")
    assert [layer.inputs[0].source for layer in result.layers] == ["input", "a"]
    assert result.reference == "box"
    assert result.layers[0].update == {"sgd": 0.5}
    assert result.tied == (("a", "b"),)
    assert result.layers[1].activation_bytes == 16.0


def test_the_provenance_says_how_far_to_trust_it() -> None:
    provenance = profile().provenance
    assert provenance["structure"] == "f00d"
    assert provenance["whole_over_sum"] == {"1": [1.0, 1.0], "2": [1.0, 1.0], "4": [0.75, 0.5]}
    assert provenance["saved_bytes_whole_over_sum"] == 0.75
    assert provenance["outliers"] == 12  # of each of 3 sizes x 2 layers x 2 directions the last pass
    assert provenance["passes"] == 5
    assert provenance["model"] == {"zoo": "mlp", "args": {"hidden": [3]}}
    assert provenance["data"] == {"module": "pkg.mod:rows"}
    assert provenance["backward_parts_over_whole"] == {"a": 0.0, "b": 0.75}


def test_a_measurement_on_a_busy_machine_warns() -> None:
    assert profile().provenance["warnings"] == []
    busy = profile_of(replace(measured(), wall_over_cpu=5.2), REQUEST, name="m", kind="cpu", date="")
    assert "5.2 times CPU time" in busy.provenance["warnings"][0]


def test_a_measured_profile_reads_back_as_it_was_written() -> None:
    assert parse_profile(profile_document(profile())) == profile()


def test_args_that_no_document_can_hold_are_refused() -> None:
    request = replace(REQUEST, model=Reference(zoo="mlp", args={"hidden": object()}))
    with pytest.raises(InputError, match="found a object"):
        profile_of(measured(), request, name="m", kind="cpu", date="")


def test_profiles_of_several_kinds_are_joined() -> None:
    joined = merge(profile("cpu"), profile("box"))
    assert [list(layer.times) for layer in joined.layers] == [["cpu", "box"]] * 2
    assert joined.reference == "cpu"
    assert len(joined.provenance["merged"]) == 1
    assert len(merge(joined, profile("card")).provenance["merged"]) == 2


def test_the_later_of_two_times_stands() -> None:
    later = profile("cpu")
    doubled = {1: LayerTimes(forward=9.0, backward=9.0)}
    later = replace(later, layers=tuple(replace(layer, times={"cpu": doubled}) for layer in later.layers))
    times = merge(profile("cpu"), later).layers[0].times["cpu"]
    assert times[1].forward == 9.0
    assert times[4].forward == 1.5


def test_profiles_of_different_models_are_not_joined() -> None:
    other = replace(profile(), provenance={"structure": "beef"})
    with pytest.raises(InputError, match="not of one model"):
        merge(profile(), other)
    with pytest.raises(InputError, match="at one precision"):
        merge(profile(), replace(profile(), precision="bf16"))
