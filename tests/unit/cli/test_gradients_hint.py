"""`ignite doctor --gradients` says where to look when gradients are off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from ignite_scheduler import api, zoo  # after the skip
from ignite_scheduler.cli import gradients
from ignite_scheduler.engine import doctor

pytestmark = pytest.mark.torch


def case(split: tuple[int, ...], error: float) -> doctor.GradientCase:
    return doctor.GradientCase(
        arrangement=doctor.Arrangement(split=split),
        schedule="gpipe",
        microbatches=(2, 2),
        gradient_error=error,
        worst="a.weight",
        loss_error=0.0,
        tolerance=1e-9,
    )


@pytest.mark.parametrize(
    ("whole", "cut", "precision", "code", "told"),
    [
        (0.0, 0.0, "fp64", 0, (False, False)),
        (0.0, 0.5, "fp64", 1, (False, False)),
        (0.5, 0.5, "fp32", 1, (True, False)),
        (1e-8, 1e-8, "fp64", 1, (True, True)),
    ],
)
def test_microbatches_are_blamed_where_one_stage_is_off(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    whole: float,
    cut: float,
    precision: str,
    code: int,
    told: tuple[bool, bool],
) -> None:
    report = doctor.GradientReport(
        job="mine",
        precision=precision,
        same_microbatches=False,
        cases=(case((2,), whole), case((1, 1), cut)),
        bit_equal=True,
    )

    class Job:
        name = "mine"

    def answer(*_: Any, **__: Any) -> doctor.GradientReport:
        return report

    monkeypatch.setattr(api, "load_job", lambda _: Job())
    monkeypatch.setattr(zoo, "check_trainable", lambda _: None)
    monkeypatch.setattr(doctor, "gradients", answer)

    assert gradients.check(Path("job.yaml"), "table", precision=precision) == code

    text = " ".join(capsys.readouterr().out.split())
    assert ("Off with one stage too" in text, "in float32" in text) == told
