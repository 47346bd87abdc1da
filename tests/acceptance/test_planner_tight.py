"""Public profiles on four clusters whose memory is a quarter above the least that any plan needs: there is a plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ignite_scheduler.formats.cluster import cluster_document
from ignite_scheduler.formats.foreign import load_graph_text
from ignite_scheduler.formats.job import job_document
from ignite_scheduler.formats.plan import plan_document
from ignite_scheduler.formats.profile import profile_document
from ignite_scheduler.model import Plan
from ignite_scheduler.planner import plan
from ignite_scheduler.planner.problem import ABILITIES
from plan_check import check
from planner_quality import CHAINS, make_cluster, make_problem, tight_scale
from tables import PROFILES

MICROBATCHES = 8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROFILES.is_dir(), reason=f"no public profiles at {PROFILES}; set IGNITE_SHARED"),
]


@pytest.mark.parametrize("name", "ABCD")
def test_every_tight_case_has_a_plan(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    planned = 0
    for chain in CHAINS:
        profile = load_graph_text(PROFILES / chain)
        cluster = make_cluster(name, tight_scale(profile, name, MICROBATCHES))
        problem = replace(make_problem(profile, cluster, MICROBATCHES), abilities=ABILITIES)
        answer = plan(problem)
        assert isinstance(answer, Plan), (chain, answer)
        documents = (
            plan_document(answer),
            job_document(problem.job),
            profile_document(profile),
            cluster_document(cluster),
        )
        assert check(*(json.loads(json.dumps(document)) for document in documents)) == [], chain
        planned += 1

    with capsys.disabled():
        print(f"\ncluster {name}: {planned} of {len(CHAINS)} tight cases have a plan")
