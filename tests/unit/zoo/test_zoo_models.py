"""The zoo's models: published sizes, scaled-down inputs, chains of named layers."""

from __future__ import annotations

import importlib
import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ignite_scheduler import zoo  # noqa: E402  # after the skip
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo.chain import layers, tied_layers  # noqa: E402
from ignite_scheduler.zoo.check import check  # noqa: E402

pytestmark = pytest.mark.torch

IMAGES = {"width": 0.1, "size": 32, "classes": 10}
TOKENS = {"vocabulary": 11, "block": 6, "dim": 8, "heads": 2, "depth": 2}
SMALL = {
    "alexnet": IMAGES,
    "vgg11": IMAGES,
    "vgg16": IMAGES,
    "vgg19": IMAGES,
    "squeezenet": IMAGES,
    "mnasnet": IMAGES | {"size": 33},
    "mlp": {"features": 5, "hidden": [4], "outputs": 3, "dropout": 0.1},
    "air-quality": {"hours": 3, "hidden": [8]},
    "gpt": TOKENS,
    "llama": TOKENS | {"hidden": 12},
    "falcon": TOKENS | {"key_heads": 1},
    "bloom": TOKENS,
    "bert": TOKENS,
}
"""One small model of each function of the zoo, cheap enough to train here."""
DECODERS = ["gpt", "llama", "falcon", "bloom"]


def num_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", [name for name, entry in zoo.MODELS.items() if entry.published is not None])
def test_full_models_have_the_published_number_of_parameters(name: str) -> None:
    published = zoo.MODELS[name].published
    assert published is not None
    found = num_parameters(zoo.outline(Reference(zoo=name)))
    assert found == published.parameters if published.exact else found == pytest.approx(published.parameters, rel=0.02)


@pytest.mark.parametrize(
    ("name", "args", "published"),
    [
        ("squeezenet", {"version": "1.1"}, 1_235_496),
        ("vgg11", {"batch_norm": True}, 132_868_840),
        ("vgg16", {"batch_norm": True}, 138_365_992),
        ("vgg19", {"batch_norm": True}, 143_678_248),
        ("mnasnet", {"width": 0.5}, 2_218_512),
        ("mnasnet", {"width": 0.75}, 3_170_208),
        ("mnasnet", {"width": 1.3}, 6_282_256),
        ("falcon-7b", {"tied": False}, 7_217_189_760),  # what the released files hold
        ("falcon-40b", {"tied": False}, 41_835_970_560),
    ],
)
def test_variants_have_the_published_number_of_parameters(name: str, args: dict[str, object], published: int) -> None:
    assert num_parameters(zoo.outline(Reference(zoo=name, args=args))) == published


def test_most_of_bloom_lies_where_its_model_card_says() -> None:
    embedding = zoo.outline(Reference(zoo="bloom-176b")).get_submodule("embedding.token")
    assert num_parameters(embedding) == 3_596_615_680


@pytest.mark.parametrize("name", SMALL)
def test_every_model_learns_from_its_default_data(name: str) -> None:
    reference = Reference(zoo=name, args=SMALL[name])
    check(reference, zoo.default_data(reference), zoo.default_loss(reference))


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_weights_and_leaves_the_random_state_alone(name: str) -> None:
    reference = Reference(zoo=name, args=SMALL[name])
    state = torch.random.get_rng_state()
    first, second, other = (zoo.build(reference, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_catalogue_states_the_arguments_of_the_code(name: str) -> None:
    entry = zoo.MODELS[name]
    module, _, attribute = entry.target.partition(":")
    function = getattr(importlib.import_module(module), attribute)
    defaults = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    if name in SMALL:
        assert entry.args == defaults
    assert entry.args.keys() == defaults.keys()


def test_every_function_of_the_zoo_has_a_small_model() -> None:
    assert {entry.target for entry in zoo.MODELS.values()} == {zoo.MODELS[name].target for name in SMALL}


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["alexnet", "vgg11", "squeezenet", "mnasnet"]),
    size=st.integers(17, 80),
    width=st.sampled_from([0.02, 0.05]),
    version=st.sampled_from(["1.0", "1.1"]),
)
def test_an_image_size_is_either_refused_or_works(name: str, size: int, width: float, version: str) -> None:
    least = {"alexnet": 21, "vgg11": 32, "mnasnet": 33, "squeezenet": 14 + {"1.0": 7, "1.1": 3}[version]}[name]
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


@pytest.mark.parametrize("name", ["gpt", "falcon", "bloom", "bert"])
def test_a_head_is_tied_only_when_asked(name: str) -> None:
    loose, tied = (zoo.build(Reference(zoo=name, args=SMALL[name] | {"tied": tied})) for tied in (False, True))
    assert tied_layers(loose) == ()
    assert tied_layers(tied) == (("embedding", "head"),)
    assert num_parameters(loose) - num_parameters(tied) == 11 * 8


def changed_at(name: str, place: int) -> torch.Tensor:
    """Which positions of the output change with the token at ``place``, for one sample of six tokens."""
    chain = zoo.build(Reference(zoo=name, args=SMALL[name]), seed=0).double().eval()
    tokens = torch.randint(11, (1, 6), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, place] = (other[0, place] + 1) % 11
    return (chain(tokens) - chain(other)).abs().amax(dim=(0, 2)) > 1e-12


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_no_token_before_its_time(name: str) -> None:
    assert changed_at(name, 4).tolist() == [False] * 4 + [True] * 2


def test_an_encoder_reads_in_both_directions() -> None:
    assert changed_at("bert", 3).tolist() == [True] * 6


@pytest.mark.parametrize("name", [*DECODERS, "bert"])
def test_the_order_of_tokens_matters(name: str) -> None:
    """Positions are known somehow: the last output changes when two earlier tokens change places."""
    chain = zoo.build(Reference(zoo=name, args=SMALL[name]), seed=0).double().eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    swapped = torch.tensor([[2, 1, 3, 4, 5, 6]])
    assert (chain(tokens) - chain(swapped))[0, -1].abs().max() > 1e-12


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
        ("llama", {"hidden": 0}),
        ("falcon", {"norms": 3}),
        ("falcon", {"key_heads": 3}),
        ("bloom", {"depth": 0}),
        ("bert", {"block": 0}),
        ("mnasnet", {"size": 32}),
        ("air-quality", {"hours": 0}),
        ("mlp", {"hidden": [0]}),
        ("mlp", {"dropout": 1.5}),
    ],
)
def test_sizes_that_make_no_model_are_refused(name: str, args: dict[str, object]) -> None:
    with pytest.raises(InputError):
        zoo.build(Reference(zoo=name, args=args))
