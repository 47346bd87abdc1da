"""What the Python API gives back: plain values that show themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ignite_scheduler
from ignite_scheduler.errors import ConflictError, InputError, NotFoundError
from ignite_scheduler.formats import parse_answer, parse_cluster, parse_job, parse_profile
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile, QueueTerms

SIZES = {"parameter_bytes": 1e6, "output_bytes": 1e3, "activation_bytes": 1e3}
PROFILE: Profile = parse_profile(
    {
        "schema": "ignite/profile/v1", "name": "toy", "precision": "fp32", "reference": "cpu",
        "layers": [{"name": f"l{index}", **SIZES, "times": {"cpu": {"1": [0.1, 0.2]}}} for index in range(4)],
    }
)  # fmt: skip
CLUSTER: Cluster = parse_cluster(
    {
        "version": 1, "name": "pair",
        "nodes": [{"name": "n", "devices": [{"kind": "box", "count": 2, "speed": 1, "memory": "1GB", "price": "1/h"}]}],
        "links": {"default": {"bandwidth": "1GB/s", "latency": "1ms"}},
    }
)  # fmt: skip
JOB: Job = parse_job(
    {"version": 1, "name": "toy", "model": {"profile": "toy.json"}, "steps": 10, "batch": {"global": 8, "micro": 1}}
)


def planned(**changes: Any) -> ignite_scheduler.Planned:
    return ignite_scheduler.plan(replace(JOB, **changes), CLUSTER, profile=PROFILE)


def impossible() -> ignite_scheduler.Planned:
    return planned(pipeline=replace(JOB.pipeline, stages=9))


def test_a_plan_shows_itself_as_table_and_picture() -> None:
    shown = planned()._repr_html_()

    assert "<table>" in shown
    assert "<svg" in shown
    assert "n/box-1" in shown


def test_a_plan_reads_back_from_its_document() -> None:
    value = planned()

    assert parse_answer(json.loads(json.dumps(value.to_dict()))) == value.answer


def test_the_timeline_of_a_plan_is_as_long_as_its_step() -> None:
    value = planned()

    assert float(value.timeline.step) == pytest.approx(value.plan.predicted.step, rel=1e-12)
    assert len(value.timeline.intervals) == 2 * 8 * value.plan.num_stages


def test_a_refusal_is_a_value_and_says_why_when_a_plan_is_asked_of_it() -> None:
    value = impossible()

    assert not value.feasible
    assert "infeasible" in repr(value)
    assert "cannot be planned" in value._repr_html_()
    with pytest.raises(ConflictError, match="4 layers < 9 stages"):
        _ = value.plan


def test_documents_may_be_given_by_path(tmp_path: Path) -> None:
    from ignite_scheduler.formats import cluster_document, job_document, profile_document, write_json, write_yaml

    write_json(tmp_path / "toy.json", profile_document(PROFILE))
    write_yaml(tmp_path / "cluster.yaml", cluster_document(CLUSTER))
    write_yaml(tmp_path / "job.yaml", job_document(JOB))

    assert ignite_scheduler.plan(tmp_path / "job.yaml", tmp_path / "cluster.yaml").answer == planned().answer
    assert ignite_scheduler.load_profile(tmp_path / "toy.json") == PROFILE


def test_a_job_without_profile_says_how_to_get_one() -> None:
    with pytest.raises(InputError, match="ignite profile"):
        ignite_scheduler.plan(replace(JOB, model=replace(JOB.model, profile=None, zoo="mlp")), CLUSTER)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing\.yaml"):
        ignite_scheduler.load_cluster(tmp_path / "nothing.yaml")


def test_the_pareto_set_is_sorted_by_time() -> None:
    found = ignite_scheduler.pareto(JOB, CLUSTER, profile=PROFILE)

    steps = [one.plan.predicted.step for one in found]
    assert steps == sorted(steps)
    assert {len(one.plan.device_ids) for one in found} == {1, 2}


@pytest.mark.parametrize(("terms", "code"), [({"deadline": 0.1}, "deadline"), ({"budget": 1e-9}, "budget")])
def test_a_pareto_set_without_a_plan_in_time_or_budget_is_a_refusal(terms: dict[str, float], code: str) -> None:
    found = ignite_scheduler.pareto(replace(JOB, queue=QueueTerms(**terms)), CLUSTER, profile=PROFILE)

    (refusal,) = (one.answer for one in found)
    assert isinstance(refusal, Infeasible)
    assert refusal.code == code


def test_a_simulation_shows_itself_and_answers_by_policy() -> None:
    from ignite_scheduler.formats import WorkloadJob

    workload = [WorkloadJob(submit=0.0, job=JOB), WorkloadJob(submit=1.0, job=replace(JOB, name="second"))]
    profiles = {"toy": PROFILE, "second": PROFILE}

    played = ignite_scheduler.simulate(workload, CLUSTER, policies=["fifo", "backfill"], profiles=profiles)

    assert list(played.to_dict()["policies"]) == ["fifo", "backfill"]
    assert "<table>" in played._repr_html_()
    assert "second" in played.to_svg("fifo")
    assert len(played.to_csv().splitlines()) == 1 + 2 * 2
    with pytest.raises(InputError, match="fifo, backfill"):
        played.result("best")


def test_a_single_job_takes_as_long_as_its_plan_says() -> None:
    from ignite_scheduler.formats import WorkloadJob

    played = ignite_scheduler.simulate(
        [WorkloadJob(submit=0.0, job=JOB)], CLUSTER, policies=["fifo"], profiles={"toy": PROFILE}
    )
    answer = planned().answer
    assert isinstance(answer, Plan)

    assert played.result("fifo").jct_mean == pytest.approx(10 * answer.predicted.step)


@pytest.mark.parametrize("policies", [[], ["fifo", "fifo"], ["best"]])
def test_policies_are_named_once_each(policies: list[str]) -> None:
    with pytest.raises(InputError):
        ignite_scheduler.simulate([], CLUSTER, policies=policies)


@pytest.mark.parametrize(
    ("text", "expected"), [("mlp", "mlp"), ("my.package:build", "my.package:build")], ids=["zoo", "module"]
)
def test_what_is_measured_may_be_named_by_a_word(text: str, expected: str) -> None:
    from ignite_scheduler.api import resolve_source

    source = resolve_source(text)

    assert expected in (source.zoo, source.module)  # type: ignore[union-attr]


def test_an_unknown_model_is_answered_with_the_zoo() -> None:
    with pytest.raises(InputError, match="alexnet"):
        ignite_scheduler.profile("alexnot")
