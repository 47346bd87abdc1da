"""Models of other libraries are sized without data to the same numbers as they are measured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from ignite_scheduler.zoo.libraries import mend_torchvision  # noqa: E402  # after the skip

mend_torchvision()
pytest.importorskip("transformers")
pytest.importorskip("timm")

from library_models import library_job  # noqa: E402

from ignite_scheduler import profiler, zoo  # noqa: E402
from ignite_scheduler.profiler import sizes, worker  # noqa: E402
from ignite_scheduler.profiler.request import Request  # noqa: E402
from ignite_scheduler.zoo.chain import fingerprint  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["llama", "vit"])
def test_a_model_of_another_library_is_sized_as_it_is_measured(name: str) -> None:
    job = library_job(name)
    profile = profiler.measure(job, samples=(3,), device="meta")
    request = Request(
        model=job.model,
        data=job.data,
        loss=job.loss,
        precision="fp32",
        samples=(3,),
        repeats=1,
        time_limit=0.0,
        device="cpu",
        seed=job.seed,
    )
    chain = zoo.build(job.model, seed=job.seed, data=job.data)
    measured = sizes.layer_sizes(worker._bench(request, chain, torch.device("cpu")))
    assert [
        (each.parameter_bytes, each.output_bytes, each.activation_bytes, each.forward_flops, each.backward_flops)
        for each in profile.layers
    ] == [
        (each.parameter_bytes, each.output_bytes, each.activation_bytes, each.forward_flops, each.backward_flops)
        for each in measured
    ]
    assert profile.provenance["structure"] == fingerprint(chain)
