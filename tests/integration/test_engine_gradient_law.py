"""Every pipeline computes the gradient of one process on the whole batch, and GPipe and 1F1B the very same bits."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from engine_cases import make_job, zoo_job

from ignite_scheduler.engine.doctor import (
    Arrangement,
    GradientReport,
    even_splits,
    gradients,
    uneven,
)
from ignite_scheduler.engine.pool import RankPool
from ignite_scheduler.model import Batch, Job, LearningRateSchedule, Optimizer

pytestmark = pytest.mark.torch

ADAMW = Optimizer(name="adamw", lr=1e-3)
MOMENTUM = Optimizer(name="momentum", lr=1e-2)
IMAGES = {"size": 32, "classes": 10}
SMALL = {"width": 0.125, **IMAGES}
DECODER = {"dim": 16, "block": 12, "depth": 2, "vocabulary": 64}
TOKENS = {"block": 12, "vocabulary": 64}

JOBS: dict[str, Job] = {
    "mlp": zoo_job("mlp", "synthetic_rows", {"dropout": 0.2}, {}, optimizer=ADAMW, gradient_clip=0.1),
    "gpt": zoo_job(
        "gpt",
        "synthetic_tokens",
        {"dim": 32, "block": 16},
        {"block": 16},
        optimizer=ADAMW,
        lr_schedule=LearningRateSchedule(name="cosine", warmup=2),
    ),
    "gpt-tied": zoo_job(
        "gpt", "synthetic_tokens", {"dim": 32, "block": 16, "tied": True}, {"block": 16}, gradient_clip=0.5
    ),
    "alexnet": zoo_job(
        "alexnet", "synthetic_images", SMALL | {"size": 64}, IMAGES | {"size": 64}, optimizer=Optimizer(name="adam")
    ),
    "vgg11": zoo_job("vgg11", "synthetic_images", SMALL, IMAGES, optimizer=MOMENTUM),
    "vgg11-bn": zoo_job("vgg11", "synthetic_images", SMALL | {"batch_norm": True}, IMAGES, optimizer=MOMENTUM),
    "vgg16": zoo_job("vgg16", "synthetic_images", SMALL, IMAGES, optimizer=MOMENTUM),
    "squeezenet": zoo_job(
        "squeezenet", "synthetic_images", SMALL | {"size": 48}, IMAGES | {"size": 48}, optimizer=MOMENTUM
    ),
    "vgg19": zoo_job("vgg19", "synthetic_images", SMALL, IMAGES, optimizer=MOMENTUM),
    "mnasnet": zoo_job("mnasnet", "synthetic_images", SMALL | {"size": 33}, IMAGES | {"size": 33}, optimizer=MOMENTUM),
    "air-quality": zoo_job(
        "air-quality", "air_quality", {"dropout": 0.1}, {"length": 500}, loss="mse", optimizer=ADAMW
    ),
    "llama": zoo_job("llama", "synthetic_tokens", DECODER | {"hidden": 24}, TOKENS, optimizer=ADAMW),
    "falcon": zoo_job("falcon", "synthetic_tokens", DECODER | {"key_heads": 1}, TOKENS, gradient_clip=0.5),
    "bloom": zoo_job("bloom", "synthetic_tokens", DECODER, TOKENS, optimizer=ADAMW),
    "bert": zoo_job("bert", "synthetic_masked_tokens", DECODER, TOKENS, optimizer=ADAMW),
    "dropout": make_job(args={"dropout": 0.3}),
    "tuples": make_job("field_models:branching"),
    "tied": make_job("field_models:tied", "field_models:tokens"),
    "distorted-data": make_job("field_models:perceptron", "field_models:distorted", args={"dropout": 0.3}),
    "batch-norm": make_job("field_models:normalised"),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool(4) as ranks:
        yield ranks


def worst(report: GradientReport) -> str:
    return "\n".join(map(str, sorted(report.cases, key=lambda case: -case.gradient_error)[:3]))


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("name", JOBS)
def test_gradients_and_losses_equal_those_of_one_process(name: str, dtype: str, pool: RankPool) -> None:
    report = gradients(JOBS[name], dtype=dtype, pool=pool)
    assert len(report.cases) == (6 if report.same_microbatches else 10), (
        "two schedules over 1, 2 and 3 stages, and over two of two replicas, without and with memory actions"
    )
    assert {case.microbatches for case in report.cases} == {(3, 3, 2)}
    assert report.passed, worst(report)
    assert report.bit_equal


@pytest.mark.parametrize("microbatches", [(8,), (5, 3), (1, 4, 1, 2), (1,) * 8])
def test_any_sizes_of_microbatches_will_do(microbatches: tuple[int, ...], pool: RankPool) -> None:
    """Fewer microbatches than stages, and unequal ones in any order."""
    report = gradients(JOBS["dropout"], dtype="fp64", microbatches=microbatches, pool=pool)
    assert report.passed, worst(report)


@pytest.mark.parametrize("split", [(1, 1, 3), (3, 1, 1), (1, 4), (4, 1)])
def test_any_split_will_do(split: tuple[int, ...], pool: RankPool) -> None:
    report = gradients(JOBS["dropout"], [Arrangement(split=split)], dtype="fp64", pool=pool)
    assert report.passed, worst(report)


@pytest.mark.parametrize("split", [(1, 4), (4, 1), (1, 3, 1), (1, 1, 3)])
def test_stages_without_weights_pass_on_what_they_get(split: tuple[int, ...], pool: RankPool) -> None:
    report = gradients(make_job("field_models:bare_ends"), [Arrangement(split=split)], dtype="fp64", pool=pool)
    assert report.passed, worst(report)


def test_the_check_can_fail(pool: RankPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against a reference on another batch, the same pipeline does not pass."""
    from ignite_scheduler.engine import reference

    train = reference.train
    monkeypatch.setattr(reference, "train", lambda job, *rest: train(make_job(args={"dropout": 0.3}, seed=1), *rest))
    assert not gradients(JOBS["dropout"], dtype="fp32", pool=pool).passed


def test_batch_statistics_are_noticed(pool: RankPool) -> None:
    assert gradients(JOBS["vgg11-bn"], [Arrangement(split=(17,))], pool=pool).same_microbatches
    assert not gradients(JOBS["vgg11"], [Arrangement(split=(17,))], pool=pool).same_microbatches


def test_default_splits_and_sizes_are_uneven_and_whole() -> None:
    assert even_splits(2) == [(2,), (1, 1)]
    assert even_splits(7) == [(7,), (4, 3), (3, 2, 2)]
    for total in range(1, 30):
        sizes = uneven(make_job(batch=total))
        assert sum(sizes) == total
        assert min(sizes) >= 1
    assert uneven(make_job(batch=9)) == (4, 4, 1)
    fixed = Job(name="j", model=make_job().model, batch=Batch(total=10, micro=4))
    assert uneven(fixed) == (4, 4, 2)
