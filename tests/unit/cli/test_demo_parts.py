"""The demo's documents and what it does with a folder; the whole of it is an acceptance test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ignite_scheduler.cli.demo import report, scenes
from ignite_scheduler.errors import ConflictError
from ignite_scheduler.zoo.catalogue import DATASETS, MODELS


def test_the_fleet_is_unlike_and_leaves_room_on_two_cores() -> None:
    cluster, _ = scenes.load_documents(scenes.FULL)

    speeds = [device.speed or 0.0 for device in cluster.devices]
    assert len(cluster.nodes) == 2
    assert len(set(speeds)) == 4
    assert sum(speeds) <= 2


def test_the_link_between_the_nodes_is_the_slow_one() -> None:
    cluster, _ = scenes.load_documents(scenes.FULL)
    links = {
        (a.node == b.node): link.bandwidth
        for a in cluster.devices
        for b in cluster.devices
        if a.id != b.id and (link := cluster.link(a, b)) is not None
    }

    assert links[False] < links[True] / 10


def test_the_jobs_are_four_models_of_the_zoo_with_data_that_needs_no_download() -> None:
    _, jobs = scenes.load_documents(scenes.FULL)

    assert {job.model.zoo for job in jobs} == {"alexnet", "vgg11", "squeezenet", "gpt"}
    for job in jobs:
        assert job.model.zoo in MODELS
        assert job.data is not None
        assert job.data.zoo in DATASETS
        assert job.steps is not None
        assert job.steps >= 30  # 25 and more are left when the warm-up is taken off


def test_the_quick_demo_trains_less() -> None:
    _, jobs = scenes.load_documents(scenes.QUICK)

    assert all(job.steps == scenes.QUICK.steps for job in jobs)
    assert scenes.QUICK.steps < scenes.FULL.steps


def test_only_the_report_of_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    scenes.prepare_folder(folder)
    (folder / "old.svg").write_text("old")

    scenes.prepare_folder(folder)

    assert [path.name for path in folder.iterdir()] == [scenes.MARKER]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(ConflictError, match="--out"):
        scenes.prepare_folder(tmp_path)

    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("real", "foretold", "submitted", "expected"),
    [(12.0, 10.0, 0.0, 0.2), (12.0, 12.0, 5.0, 0.0), (None, 10.0, 0.0, None), (10.0, None, 0.0, None)],
)
def test_what_was_foretold_is_compared_from_the_submission(
    real: float | None, foretold: float | None, submitted: float, expected: float | None
) -> None:
    assert report.relative(real, foretold, submitted) == (None if expected is None else pytest.approx(expected))
