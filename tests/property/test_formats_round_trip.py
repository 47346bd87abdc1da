"""parse ∘ print = identity, through real JSON and YAML text, for every document."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import formats_strategies as our
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.observation import Observation
from ignite_scheduler.formats import (
    TableJob,
    WorkloadJob,
    answer_document,
    calibration_document,
    cluster_document,
    job_document,
    json_text,
    load_workload,
    observation_document,
    parse_answer,
    parse_calibration,
    parse_cluster,
    parse_job,
    parse_observation,
    parse_profile,
    profile_document,
    workload_text,
    yaml_text,
)
from ignite_scheduler.formats.source import parse_yaml
from ignite_scheduler.formats.workload import mix_text, parse_mix
from ignite_scheduler.model import Cluster, Infeasible, Job, Plan, Profile


def through_json(document: dict[str, Any]) -> Any:
    return json.loads(json_text(document))


def through_yaml(document: dict[str, Any]) -> Any:
    return parse_yaml(yaml_text(document))[0]


@given(our.clusters())
def test_clusters(cluster: Cluster) -> None:
    assert parse_cluster(through_json(cluster_document(cluster))) == cluster


@given(our.clusters())
@settings(max_examples=25)
def test_clusters_as_yaml(cluster: Cluster) -> None:
    assert parse_cluster(through_yaml(cluster_document(cluster))) == cluster


@given(our.jobs())
def test_jobs(job: Job) -> None:
    assert parse_job(through_json(job_document(job))) == job


@given(our.jobs())
@settings(max_examples=25)
def test_jobs_as_yaml(job: Job) -> None:
    assert parse_job(through_yaml(job_document(job))) == job


@given(our.profiles())
def test_profiles(profile: Profile) -> None:
    assert parse_profile(through_json(profile_document(profile))) == profile


@given(our.plans() | our.infeasibles)
def test_answers(answer: Plan | Infeasible) -> None:
    assert parse_answer(through_json(answer_document(answer, job="j"))) == answer


mixes = st.dictionaries(our.names, our.counts, min_size=1, max_size=3).map(lambda mix: tuple(sorted(mix.items())))
table_jobs = st.builds(
    TableJob,
    name=our.names,
    rates=st.dictionaries(mixes, our.positive, min_size=1, max_size=3),
    total=our.positive,
    queue=our.queue_terms,
)
workloads = st.lists(
    st.builds(WorkloadJob, submit=our.not_negative, job=table_jobs | our.jobs(with_work=True)),
    min_size=1,
    max_size=4,
    unique_by=lambda line: line.name,
).map(tuple)


@given(workloads)
@settings(max_examples=50)
def test_workloads(jobs: tuple[WorkloadJob, ...]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "w.jsonl")
        path.write_text(workload_text(jobs), encoding="utf-8")
        assert load_workload(path) == jobs


@given(mixes)
def test_mixes(mix: tuple[tuple[str, int], ...]) -> None:
    assert parse_mix(mix_text(mix)) == mix


@given(our.calibrations)
def test_calibrations(calibration: Calibration) -> None:
    assert parse_calibration(through_json(calibration_document(calibration))) == calibration


@given(our.observations())
@settings(max_examples=50)
def test_observations(observation: Observation) -> None:
    assert parse_observation(through_json(observation_document(observation))) == observation
