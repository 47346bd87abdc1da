"""Two keys of a job that no cluster could satisfy together are named before any search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ignite_scheduler.model import Batch, Infeasible, PipelineChoice, Resources
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.contradictions import contradiction
from ignite_scheduler.planner.problem import ABILITIES
from ignite_scheduler.planner.request import requested
from planner_cases import chain, devices_in_one_node, job


def asked(*, straight: bool = False, batch: Batch | None = None, **keys: object) -> Problem:
    pipeline = {key: keys.pop(key) for key in ("stages", "split", "replicas") if key in keys}
    wanted = job(pipeline=PipelineChoice(**pipeline), resources=Resources(**keys))  # type: ignore[arg-type]
    return Problem(
        job=replace(wanted, batch=batch or wanted.batch),
        profile=chain([1.0] * 6),
        cluster=devices_in_one_node([1.0] * 8),
        abilities=frozenset() if straight else ABILITIES,
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"stages": 3, "max_devices": 2}, ("pipeline.stages is 3", "resources.max_devices is 2")),
        ({"split": (2, 2, 2), "max_devices": 2}, ("pipeline.split has 3 stages", "resources.max_devices is 2")),
        ({"replicas": 3, "max_devices": 2, "batch": Batch(total=8)}, ("pipeline.replicas is 3", "max_devices is 2")),
        (
            {"stages": 2, "replicas": 2, "max_devices": 3, "batch": Batch(total=8)},
            ("pipeline.stages is 2 and pipeline.replicas is 2", "4 devices", "resources.max_devices is 3"),
        ),
        ({"any_of": ({"own": 4},), "max_devices": 3}, ("any_of asks for 4 own", "resources.max_devices is 3")),
        ({"any_of": ({"own": 2},), "stages": 3}, ("any_of asks for 2 own", "pipeline.stages is 3")),
        ({"any_of": ({"own": 2},), "split": (2, 2, 2)}, ("any_of asks for 2 own", "pipeline.split has 3 stages")),
        (
            {"any_of": ({"own": 3},), "replicas": 2, "batch": Batch(total=8)},
            ("any_of asks for 3 own", "pipeline.replicas is 2, of which 3 is no multiple"),
        ),
        (
            {"any_of": ({"own": 5}, {"own": 1, "other": 1}), "stages": 2, "replicas": 2, "batch": Batch(total=8)},
            ("5 own, but pipeline.stages is 2 and", "1 own + 1 other, but pipeline.stages is 2 and"),
        ),
    ],
)
def test_both_keys_are_named_with_their_values(keys: dict[str, object], words: tuple[str, ...]) -> None:
    found = contradiction(asked(**keys))

    assert found is not None
    assert found.code == "devices"
    assert found.cures
    for word in words:
        assert word in found.text
    assert requested(asked(**keys)) == found


@pytest.mark.parametrize(
    ("batch", "key"), [(Batch(total=8, micro=2), "batch.micro is 2"), (Batch(total=2), "batch.global is 2")]
)
def test_a_device_of_a_group_needs_a_sample(batch: Batch, key: str) -> None:
    found = contradiction(asked(replicas=4, batch=batch))

    assert found is not None
    assert (found.code, key in found.text, "pipeline.replicas is 4" in found.text) == ("batch", True, True)


def test_without_groups_an_exact_count_is_the_number_of_stages() -> None:
    keys = {"any_of": ({"own": 4},), "stages": 2}

    assert contradiction(asked(**keys)) is None
    found = contradiction(asked(straight=True, **keys))
    assert isinstance(found, Infeasible)
    assert "any_of asks for 4 own, but pipeline.stages is 2" in found.text


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"stages": 3, "max_devices": 3},
        {"split": (2, 4), "replicas": 2, "max_devices": 4, "batch": Batch(total=8)},
        {"any_of": ({"own": 9}, {"own": 2}), "max_devices": 2},
        {"any_of": ({"own": 4},), "replicas": 2, "batch": Batch(total=8)},
        {"replicas": 4, "batch": Batch(total=9, micro=4)},
    ],
)
def test_what_can_be_had_together_is_no_contradiction(keys: dict[str, object]) -> None:
    assert contradiction(asked(**keys)) is None
