"""Data sets: seeded, split without overlap, shaped as their descriptions say."""

from __future__ import annotations

import importlib
import inspect

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from ignite_scheduler import zoo  # noqa: E402  # after the skips
from ignite_scheduler.errors import InputError  # noqa: E402
from ignite_scheduler.model import Reference  # noqa: E402
from ignite_scheduler.zoo import datasets  # noqa: E402
from ignite_scheduler.zoo.air_quality import NUM_FEATURES, air_quality  # noqa: E402
from ignite_scheduler.zoo.batches import take  # noqa: E402

pytestmark = pytest.mark.torch

SPLIT = ["digits", "breast_cancer", "wine", "diabetes", "air_quality", "stdlib"]
SHAPES = {
    "digits": ((3, 32, 32), torch.float32, (), torch.int64),
    "breast_cancer": ((30,), torch.float32, (), torch.int64),
    "wine": ((13,), torch.float32, (), torch.int64),
    "diabetes": ((10,), torch.float32, (1,), torch.float32),
    "air_quality": ((264,), torch.float32, (1,), torch.float32),
    "stdlib": ((64,), torch.int64, (64,), torch.int64),
    "synthetic_images": ((3, 224, 224), torch.float32, (), torch.int64),
    "synthetic_rows": ((30,), torch.float32, (), torch.int64),
    "synthetic_tokens": ((64,), torch.int64, (64,), torch.int64),
    "synthetic_masked_tokens": ((64,), torch.int64, (64,), torch.int64),
}


@pytest.mark.parametrize("name", zoo.DATASETS)
def test_samples_have_the_stated_shape_and_come_again_alike(name: str) -> None:
    first, second = (zoo.dataset(Reference(zoo=name)) for _ in range(2))
    for index in (0, len(first) - 1):
        inputs, target = first[index]
        assert (tuple(inputs.shape), inputs.dtype, tuple(target.shape), target.dtype) == SHAPES[name]
        assert torch.equal(inputs, second[index][0])
        assert torch.equal(target, second[index][1])
    with pytest.raises(IndexError):
        first[len(first)]


@pytest.mark.parametrize("name", zoo.DATASETS)
def test_the_catalogue_states_the_defaults_of_the_data(name: str) -> None:
    module, _, attribute = zoo.DATASETS[name].target.partition(":")
    function = getattr(importlib.import_module(module), attribute)
    defaults = {key: parameter.default for key, parameter in inspect.signature(function).parameters.items()}
    assert zoo.DATASETS[name].args == defaults


@pytest.mark.parametrize("name", SPLIT)
def test_training_and_held_out_parts_share_no_sample_and_lose_none(name: str) -> None:
    train, held, whole = (
        zoo.dataset(Reference(zoo=name, args={"split": split, "seed": 3})) for split in ("train", "held", "all")
    )
    assert len(train) + len(held) == len(whole)
    assert len(held) == round(0.2 * len(whole))


def test_parts_are_disjoint_and_reshuffled_by_the_seed() -> None:
    train, held = (datasets.part(50, split=split, held_out=0.3, seed=7) for split in ("train", "held"))
    assert sorted(torch.cat((train, held)).tolist()) == list(range(50))
    assert datasets.part(50, split="train", held_out=0.3, seed=8).tolist() != train.tolist()


def test_tables_are_standardised_by_their_training_part() -> None:
    rows, _ = take(zoo.dataset(Reference(zoo="wine")), range(142))
    torch.testing.assert_close(rows.mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.std(0), torch.ones(13), atol=1e-4, rtol=0)


def test_the_target_of_a_text_is_its_next_byte() -> None:
    inputs, target = zoo.dataset(Reference(zoo="stdlib", args={"block": 16, "limit": 5000}))[0]
    assert torch.equal(inputs[1:], target[:-1])
    assert int(max(inputs.max(), target.max())) < 256


def test_masked_tokens_ask_for_what_they_hide_and_nothing_else() -> None:
    args = {"block": 400, "vocabulary": 50, "share": 0.25}
    inputs, target = take(zoo.dataset(Reference(zoo="synthetic_masked_tokens", args=args)), range(20))
    hidden = inputs == 49
    assert torch.equal(hidden, target >= 0)
    assert set(target[~hidden].tolist()) == {-100}
    assert hidden.double().mean().item() == pytest.approx(0.25, abs=0.02)
    whole = torch.where(hidden, target, inputs)
    assert torch.equal((whole[:, 1:] - whole[:, :-1]) % 49, torch.ones(20, 399, dtype=torch.int64))


def test_windows_of_the_air_move_hour_by_hour_and_tell_the_dust_that_follows() -> None:
    samples = air_quality(hours=3, length=500, held_out=0.0, seed=2)
    place = {int(start): index for index, start in enumerate(samples.starts)}
    first, second = (samples[place[start]] for start in (7, 8))
    assert torch.equal(first[0][NUM_FEATURES:], second[0][:-NUM_FEATURES])
    assert torch.equal(second[0][-NUM_FEATURES], first[1][0])
    assert len(samples) == 497


def test_the_air_has_the_shape_of_the_table_that_it_stands_for() -> None:
    table = air_quality(split="all").table
    assert table.shape == (43_824, 11)
    torch.testing.assert_close(table.mean(0), torch.zeros(11), atol=1e-5, rtol=0)
    torch.testing.assert_close(table.std(0), torch.ones(11), atol=1e-4, rtol=0)
    assert (table[:, 7:].unique(dim=0) > 0).sum(1).tolist() == [1] * 4, "one wind direction at a time"
    hour_by_hour = torch.corrcoef(torch.stack((table[1:, 0], table[:-1, 0])))[0, 1]
    assert hour_by_hour > 0.9, "dust stays for hours"
    assert torch.corrcoef(table[:, :2].T)[0, 1] < 0.5, "and is no copy of the weather"


def test_digits_are_scaled_up_by_interpolation_and_repeated_over_channels() -> None:
    plain, large = (
        zoo.dataset(Reference(zoo="digits", args={"size": size, "channels": channels}))[5][0]
        for size, channels in ((8, 1), (64, 2))
    )
    assert plain.shape == (1, 8, 8)
    assert large.shape == (2, 64, 64)
    assert torch.equal(large[0], large[1])
    torch.testing.assert_close(torch.nn.functional.avg_pool2d(large[:1], 8).mean(), plain.mean(), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("digits", {"split": "tests"}, "train, held, all"),
        ("digits", {"held_out": 1.0}, "below 1"),
        ("digits", {"size": 0}, "at least 1"),
        ("stdlib", {"block": 0}, "at least 1"),
        ("synthetic_rows", {"length": 0}, "at least 1"),
        ("synthetic_tokens", {"vocabulary": 0}, "at least 1"),
        ("synthetic_images", {"classes": 0}, "at least 1"),
        ("synthetic_masked_tokens", {"share": 0.0}, "above 0"),
        ("synthetic_masked_tokens", {"vocabulary": 1}, "at least 2"),
        ("air_quality", {"length": 25}, "above hours"),
        ("wine", {"held_out": 0.0, "split": "held"}, "without samples"),
    ],
)
def test_sizes_that_make_no_data_are_refused(name: str, args: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.dataset(Reference(zoo=name, args=args))
