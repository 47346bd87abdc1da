"""A job is not trained by the figures of another model without a word."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ignite_scheduler import api, zoo
from ignite_scheduler.api.running import check_jobs
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Profile
from ignite_scheduler.zoo.chain import fingerprint
from live_jobs import small_cluster, small_job, small_profile

pytestmark = pytest.mark.torch


def measured(structure: str) -> Profile:
    return replace(small_profile(), provenance={"structure": structure})


def test_a_profile_of_this_very_model_is_taken_without_a_word() -> None:
    own = fingerprint(zoo.build(small_job().model, seed=3))
    assert check_jobs([small_job()], {"rows": measured(own)}) == ()
    assert check_jobs([small_job()], {"rows": small_profile()}) == ()
    assert check_jobs([small_job()], {}) == ()


def test_other_sizes_or_options_are_a_warning_that_says_how_to_measure_anew() -> None:
    (warning,) = check_jobs([small_job()], {"rows": measured("0123456789abcdef")})
    assert "other sizes or options" in warning
    assert "ignite profile JOB --out FILE" in warning


def test_other_layers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    first, *others = small_profile().layers
    profile = replace(small_profile(), layers=(replace(first, name="x"), *others))
    told = "layer 0 is 'linear0' in the model, 'x' in the profile.*ignite profile JOB --out FILE"
    with pytest.raises(InputError, match=told):
        api.run([small_job()], small_cluster(0.5), directory=tmp_path / "run", profiles={"rows": profile})
    assert list(tmp_path.iterdir()) == []


def test_the_warning_stands_in_the_report(tmp_path: Path) -> None:
    ran = api.run(
        [small_job()], small_cluster(0.5), directory=tmp_path / "run", profiles={"rows": measured("0123456789abcdef")}
    )
    assert ran.report.finished
    assert "other sizes or options" in ran.to_dict()["notices"][0]
