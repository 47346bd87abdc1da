"""Our executor against torch's own pipeline runtime: the same schedule gives the same gradients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from engine_cases import make_job, make_plan, make_spec, zoo_job

from ignite_scheduler.engine.doctor import train_steps
from ignite_scheduler.engine.pool import RankPool
from ignite_scheduler.engine.torch_backend import first_gradients
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Job

pytestmark = pytest.mark.torch

JOBS = {
    "perceptron": make_job(),
    "squeezenet": zoo_job(
        "squeezenet",
        "synthetic_images",
        {"width": 0.25, "size": 48, "classes": 10, "dropout": 0.0},
        {"size": 48, "classes": 10},
    ),
    "gpt": zoo_job("gpt", "synthetic_tokens", {"dim": 32, "block": 16, "dropout": 0.0}, {"block": 16}),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool(3) as ranks:
        yield ranks


def gather(parts: list[Any]) -> tuple[float, dict[str, Any]]:
    return sum(loss for loss, _ in parts), {name: g for _, gradients in parts for name, g in gradients.items()}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("name", JOBS)
def test_gradients_are_those_of_torch_pipelining(name: str, schedule: str, pool: RankPool) -> None:
    job: Job = JOBS[name]
    layers = sum(len(stage.layers) for stage in make_plan(job, [_count(job)], [8]).stages)
    spec = make_spec(job, make_plan(job, [layers - 3, 2, 1], [2, 2, 2, 2], schedule), Path())
    loss, theirs = gather(pool.run(first_gradients, (spec,), ranks=3))
    measured = pool.run(train_steps, (spec, 1), ranks=3)
    ours = {name: g for part in measured for name, g in part.gradients.items()}
    assert sum(part.losses[0] for part in measured) == pytest.approx(loss, rel=1e-6)
    assert ours.keys() == theirs.keys()
    for parameter, gradient in theirs.items():
        np.testing.assert_allclose(ours[parameter], gradient, rtol=0, atol=1e-6 * np.abs(gradient).max())


def _count(job: Job) -> int:
    from ignite_scheduler.engine.chain import build_chain, layer_names

    return len(layer_names(build_chain(job.model, seed=0)))


def test_torch_pipelining_does_not_take_unequal_microbatches() -> None:
    job = JOBS["perceptron"]
    with RankPool(2) as own, pytest.raises(InputError, match="equal microbatches"):
        own.run(first_gradients, (make_spec(job, make_plan(job, [3, 2], [3, 3, 2]), Path()),), ranks=2)
