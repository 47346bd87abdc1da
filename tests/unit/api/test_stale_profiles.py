"""A job is not trained by the figures of another model without a word."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ignite_scheduler import api, zoo
from ignite_scheduler.api.running import check_jobs
from ignite_scheduler.api.staleness import check_reference
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Profile, Reference
from ignite_scheduler.zoo.chain import fingerprint
from live_jobs import small_cluster, small_job, small_profile

pytestmark = pytest.mark.torch


def measured(structure: str) -> Profile:
    return replace(small_profile(), provenance={"structure": structure})


def test_a_profile_of_this_very_model_is_taken() -> None:
    own = fingerprint(zoo.build(small_job().model, seed=3))
    check_jobs([small_job()], {"rows": measured(own)})
    check_jobs([small_job()], {"rows": small_profile()})
    check_jobs([small_job()], {})


def test_other_sizes_or_options_are_refused_with_how_to_measure_anew() -> None:
    with pytest.raises(InputError, match=r"other sizes or options .*ignite profile JOB --out FILE"):
        check_jobs([small_job()], {"rows": measured("0123456789abcdef")})


def test_a_plan_tells_other_models_apart_by_name_and_arguments() -> None:
    def of(**model: object) -> Profile:
        return replace(small_profile(), provenance={"model": model})

    job = replace(small_job(), model=Reference(zoo="mlp", args={"hidden": (8, 8)}))
    check_reference(job, of(zoo="mlp", args={"outputs": 2, "hidden": [8, 8]}))  # a default may be written out
    check_reference(job, small_profile())
    check_reference(replace(job, model=Reference(profile="p")), of(zoo="mlp", args={"hidden": [9]}))
    for other in (of(zoo="mlp", args={"hidden": [8, 9]}), of(zoo="gpt"), of(module="a:b", args={"hidden": [8, 8]})):
        with pytest.raises(InputError, match="measured on another model: expected mlp"):
            check_reference(job, other)


@pytest.mark.parametrize("said", [{"zoo": "gpt", "extra": 1}, {"zoo": ["mlp"]}, {"zoo": "gpt", "args": "ab"}])
def test_a_provenance_of_somebody_elses_making_is_compared_as_far_as_it_can_be(said: dict[str, object]) -> None:
    job = replace(small_job(), model=Reference(zoo="mlp", args={"hidden": (8, 8)}))
    with pytest.raises(InputError, match="measured on another model: expected mlp"):
        check_reference(job, replace(small_profile(), provenance={"model": said}))


def test_other_layers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    first, *others = small_profile().layers
    profile = replace(small_profile(), layers=(replace(first, name="x"), *others))
    told = "layer 0 is 'linear0' in the model, 'x' in the profile.*ignite profile JOB --out FILE"
    with pytest.raises(InputError, match=told):
        api.run([small_job()], small_cluster(0.5), directory=tmp_path / "run", profiles={"rows": profile})
    assert list(tmp_path.iterdir()) == []
