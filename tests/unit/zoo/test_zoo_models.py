"""The zoo's models: published sizes, scaled-down inputs, chains of named layers."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ignite_scheduler import zoo  # noqa: E402  # after the skip
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo import perceptron, transformer, vision  # noqa: E402
from ignite_scheduler.zoo.chain import layers, tied_layers  # noqa: E402
from ignite_scheduler.zoo.check import check  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {
    "alexnet": {"width": 0.1, "size": 32, "classes": 10},
    "vgg11": {"width": 0.1, "size": 32, "classes": 10},
    "vgg16": {"width": 0.1, "size": 32, "classes": 10},
    "squeezenet": {"width": 0.1, "size": 32, "classes": 10},
    "mlp": {"features": 5, "hidden": [4], "outputs": 3, "dropout": 0.1},
    "gpt": {"vocabulary": 11, "block": 6, "dim": 8, "heads": 2, "depth": 2},
}


def num_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "args", "published"),
    [
        ("alexnet", {}, 61_100_840),
        ("vgg11", {}, 132_863_336),
        ("vgg16", {}, 138_357_544),
        ("squeezenet", {"version": "1.0"}, 1_248_424),
        ("squeezenet", {"version": "1.1"}, 1_235_496),
    ],
)
def test_full_models_have_the_published_number_of_parameters(name: str, args: dict[str, str], published: int) -> None:
    with torch.device("meta"):
        assert num_parameters(zoo.build(Reference(zoo=name, args=args))) == published


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_model_learns_from_its_default_data(name: str) -> None:
    reference = Reference(zoo=name, args=SMALL[name])
    check(reference, zoo.default_data(reference), "cross_entropy")


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_same_seed_gives_the_same_weights_and_leaves_the_random_state_alone(name: str) -> None:
    reference = Reference(zoo=name, args=SMALL[name])
    state = torch.random.get_rng_state()
    first, second, other = (zoo.build(reference, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_catalogue_states_the_defaults_of_the_code(name: str) -> None:
    function = next(getattr(module, name) for module in (vision, perceptron, transformer) if hasattr(module, name))
    defaults = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    assert zoo.MODELS[name].args == defaults
    assert zoo.MODELS[name].target == f"{function.__module__}:{name}"


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["alexnet", "vgg11", "squeezenet"]),
    size=st.integers(17, 80),
    width=st.sampled_from([0.02, 0.05]),
    version=st.sampled_from(["1.0", "1.1"]),
)
def test_an_image_size_is_either_refused_or_works(name: str, size: int, width: float, version: str) -> None:
    least = {"alexnet": 21, "vgg11": 32, "squeezenet": 14 + {"1.0": 7, "1.1": 3}[version]}[name]
    args = {"size": size, "width": width, "classes": 3} | ({"version": version} if name == "squeezenet" else {})
    reference = Reference(zoo=name, args=args)
    if size < least:
        with pytest.raises(InputError, match=f"at least {least}x{least}"):
            zoo.build(reference)
        return
    output = zoo.build(reference).eval()(torch.zeros(2, 3, size, size))
    assert output.shape == (2, 3)


def test_alexnet_keeps_its_published_stride_from_63_pixels_on() -> None:
    strides = {size: zoo.build(Reference(zoo="alexnet", args={"size": size, "width": 0.02}))[0][0].stride[0]
               for size in (62, 63, 224)}  # fmt: skip
    assert strides == {62: 2, 63: 4, 224: 4}


def test_layers_have_speaking_names_in_order() -> None:
    names = [name for name, _ in layers(zoo.build(Reference(zoo="squeezenet", args=SMALL["squeezenet"])))]
    assert names[:4] == ["conv1", "pool1", "fire2", "fire3"]
    assert names[-2:] == ["conv10", "flatten"]
    assert len(names) == 14


def test_gpt_ties_its_head_only_when_asked() -> None:
    loose, tied = (zoo.build(Reference(zoo="gpt", args=SMALL["gpt"] | {"tied": tied})) for tied in (False, True))
    assert tied_layers(loose) == ()
    assert tied_layers(tied) == (("embedding", "head"),)
    assert num_parameters(loose) - num_parameters(tied) == 11 * 8


def test_gpt_reads_no_token_before_its_time() -> None:
    chain = zoo.build(Reference(zoo="gpt", args=SMALL["gpt"]), seed=0).eval()
    tokens = torch.randint(11, (1, 6), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 4] = (changed[0, 4] + 1) % 11
    before, after = chain(tokens), chain(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_no_layer_changes_its_input_in_place() -> None:
    for name, args in SMALL.items():
        reference = Reference(zoo=name, args=args)
        value = zoo.dataset(zoo.default_data(reference))[0][0][None]
        for layer, module in layers(zoo.build(reference, seed=0).eval()):
            before = value.clone()
            output = module(value)
            assert torch.equal(before, value), (name, layer)
            value = output


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("alexnet", {"width": 0.0}),
        ("vgg11", {"classes": 0}),
        ("squeezenet", {"version": "2.0"}),
        ("gpt", {"dim": 10, "heads": 4}),
        ("mlp", {"hidden": [0]}),
        ("mlp", {"dropout": 1.5}),
    ],
)
def test_sizes_that_make_no_model_are_refused(name: str, args: dict[str, object]) -> None:
    with pytest.raises(InputError):
        zoo.build(Reference(zoo=name, args=args))
