"""Sizes without data: those of a measured profile for models that fit, and known figures for one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402  # after the skip

from ignite_scheduler import profiler, zoo  # noqa: E402
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.formats import parse_profile, profile_document  # noqa: E402
from ignite_scheduler.model import Batch, Job, Layer, Profile, Reference  # noqa: E402
from ignite_scheduler.profiler import sizes, worker  # noqa: E402
from ignite_scheduler.profiler.live import LiveBytes  # noqa: E402
from ignite_scheduler.profiler.request import Request, Sizes  # noqa: E402
from ignite_scheduler.profiler.transients import transients  # noqa: E402
from ignite_scheduler.zoo.chain import fingerprint  # noqa: E402

pytestmark = pytest.mark.torch

IMAGES = {"width": 0.1, "size": 32, "classes": 10}
TOKENS = {"vocabulary": 61, "block": 24, "dim": 32, "depth": 2}
SMALL = {
    "vgg11": IMAGES | {"batch_norm": True},
    "squeezenet": IMAGES,
    "mlp": {"dropout": 0.2},
    "gpt": TOKENS | {"tied": True},
    "llama": TOKENS | {"hidden": 48},
    "falcon": TOKENS | {"key_heads": 1},
    "bloom": TOKENS,
    "bert": TOKENS,
}


def request(model: Reference, *, samples: int, precision: str = "fp32") -> Request:
    return Request(
        model=model,
        data=zoo.default_data(model),
        loss=zoo.default_loss(model),
        precision=precision,
        samples=(samples,),
        repeats=1,
        time_limit=0.0,
        device="cpu",
        seed=0,
    )


def sized(model: Reference | Job, *, samples: int = 1) -> Profile:
    return profiler.measure(model, samples=(samples,), device="meta")


def figures(found: Sequence[Layer] | Sequence[Sizes]) -> list[tuple[Any, ...]]:
    """The sizes of each layer, of a profile or as they were measured."""
    return [
        (each.parameter_bytes, each.output_bytes, each.activation_bytes, each.forward_flops, each.backward_flops)
        for each in found
    ]


@pytest.mark.parametrize("name", SMALL)
def test_a_model_that_fits_is_sized_as_it_is_measured(name: str) -> None:
    """The law: parameters, outputs, kept activations and FLOPs are the same numbers, layer by layer."""
    model = Reference(zoo=name, args=SMALL[name])
    asked = request(model, samples=3)
    chain = zoo.build(model, seed=0)
    measured = sizes.layer_sizes(worker._bench(asked, chain, torch.device("cpu")))
    profile = sized(model, samples=3)
    assert figures(profile.layers) == figures(measured)
    assert profile.provenance["structure"] == fingerprint(chain), "the profile suits the model that is trained"


@pytest.mark.parametrize("name", ["squeezenet", "falcon"])
def test_what_passes_is_what_real_tensors_of_all_layers_would_fill(name: str) -> None:
    """Also for blocks that were not looked at one by one: the same bytes as those alive on real tensors."""
    depth = {"depth": 5} if name == "falcon" else {}
    model = Reference(zoo=name, args=SMALL[name] | depth)
    asked = replace(request(model, samples=2), samples=(2, 8))
    bench = worker._bench(asked, zoo.build(model, seed=0), torch.device("cpu"))
    measured = sizes.layer_sizes(bench)
    with LiveBytes() as live:
        expected = transients(bench, measured, live.rise)
    assert expected is not None
    found = sized(model, samples=2).layers
    assert [layer.transient_bytes for layer in found] == pytest.approx([each.per_sample for each in expected])
    assert [layer.workspace_bytes for layer in found] == pytest.approx([each.fixed for each in expected], abs=1e-6)
    assert sum(layer.transient_bytes for layer in found) > 0


def test_sixteen_bits_are_sized_as_they_are_measured() -> None:
    model = Reference(zoo="llama", args=SMALL["llama"])
    job = Job(name="half", model=model, batch=Batch(total=2), steps=1, precision="bf16")
    bench = worker._bench(
        request(model, samples=2, precision="bf16"), zoo.build(model, seed=0).bfloat16(), torch.device("cpu")
    )
    measured = sizes.layer_sizes(bench)
    found = sized(job, samples=2)
    assert found.precision == "bf16"
    assert [row[:3] for row in figures(found.layers)] == [row[:3] for row in figures(measured)]


def test_a_sized_profile_has_no_times_and_reads_back() -> None:
    profile = sized(Reference(zoo="gpt", args=SMALL["gpt"]))
    assert all(layer.times == {} for layer in profile.layers)
    assert profile.reference is None
    assert profile.tied == (("embedding", "head"),)
    assert parse_profile(profile_document(profile)) == profile


def test_seven_billion_parameters_are_sized_without_being_there() -> None:
    """LLaMA-7B at 2048 tokens: 2 FLOPs a parameter and token forward, twice that backward, attention besides."""
    profile = sized(Reference(zoo="llama-7b"))
    tokens, dim, depth = 2048, 4096, 32
    assert profile.provenance["parameters"] == 6_738_415_616
    assert sum(layer.parameter_bytes for layer in profile.layers) == 4 * 6_738_415_616
    in_products = 6_738_415_616 - (32_000 + 2 * depth + 1) * dim  # neither the embedding nor the norms multiply
    attention = depth * 4 * tokens * tokens * dim
    forward, backward = (
        sum(getattr(layer, way) for layer in profile.layers) for way in ("forward_flops", "backward_flops")
    )
    assert forward == 2 * in_products * tokens + attention
    assert backward == 4 * in_products * tokens + attention * 5 / 2
    assert forward - attention == pytest.approx(27.06e12, rel=1e-3)  # what others count without attention,
    assert forward + backward - attention * 7 / 2 == pytest.approx(81.19e12, rel=1e-3)  # forward and both ways
    block = profile.layers[1]
    assert len(set(figures(profile.layers)[1:-1])) == 1, "all blocks are alike"
    assert block.output_bytes == 4 * tokens * dim
    assert block.parameter_bytes == 4 * (4 * dim * dim + 3 * dim * 11_008 + 2 * dim)
    # Each norm: input, scaled input, output; query, key, value, what was read. Then four of the perceptron's width, a
    # sum of scores for each head and a scale for each norm.
    assert block.activation_bytes == 4 * tokens * (10 * dim + 4 * 11_008 + 32 + 2)


class Peeking(nn.Module):
    """Looks at a value of its input."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * 2 if inputs.sum().item() > 0 else inputs


def peeking() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), Peeking())


def looking() -> nn.Sequential:
    """Looks at a weight while it is built."""
    layer = nn.Linear(3, 2)
    return nn.Sequential(layer, nn.Dropout(abs(layer.weight[0, 0].item()) * 0.0))


def narrow() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 2))


def rows() -> list[tuple[Tensor, int]]:
    return [(torch.ones(3), 1)]


def failing(output: Tensor, target: Tensor) -> Tensor:
    raise ValueError("no such loss")


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        ("peeking", "cross_entropy", "layer '1' .* only measured"),
        ("looking", "cross_entropy", "a builder that looks at their values"),
        ("narrow", "cross_entropy", r"layer '0' with an input of \(2, 3\) float32 fails"),
        ("narrow", "mse", "layer '0'"),
        ("peeking", "test_meta:failing", "layer '1'"),
    ],
)
def test_what_cannot_be_sized_is_one_clear_error(model: str, loss: str, message: str) -> None:
    job = Job(
        name="own",
        model=Reference(module=f"test_meta:{model}"),
        data=Reference(module="test_meta:rows"),
        loss=loss,
        batch=Batch(total=2),
        steps=1,
    )
    with pytest.raises(InputError, match=message):
        sized(job, samples=2)


def test_a_loss_that_fails_is_named() -> None:
    job = Job(
        name="own",
        model=Reference(zoo="mlp", args={"features": 3}),
        data=Reference(module="test_meta:rows"),
        loss="test_meta:failing",
        batch=Batch(total=2),
        steps=1,
    )
    with pytest.raises(InputError, match="with loss 'test_meta:failing' fails: ValueError: no such loss"):
        sized(job)


def test_a_kind_of_device_has_no_place_in_it() -> None:
    with pytest.raises(InputError, match="leave 'T4' away"):
        profiler.measure(Reference(zoo="mlp"), device="meta", kind="T4")
