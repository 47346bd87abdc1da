"""The whole planner on small random documents: judged by other code, held against every chain, repeatable."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from every_chain import least
from ignite_scheduler import api
from ignite_scheduler.api import Planned
from ignite_scheduler.errors import InputError
from ignite_scheduler.formats.cluster import parse_cluster
from ignite_scheduler.formats.job import parse_job
from ignite_scheduler.formats.profile import parse_profile
from ignite_scheduler.planner.peers import PEERS
from plan_check import check
from small_documents import Documents, small_documents

SEEDS = range(100)
"""Of documents with up to five layers and four devices."""

TINY = range(1_000, 1_060)
"""Of documents of which every chain can be looked at."""


def planned(documents: Documents, **terms: Any) -> Planned | None:
    """The answer; None where the documents contradict themselves."""
    job, profile, cluster = documents
    try:
        return api.plan(parse_job(job), parse_cluster(cluster), profile=parse_profile(profile), **terms)
    except InputError:
        return None


def complaints(documents: Documents, answer: Planned | None, **terms: Any) -> list[str]:
    return [] if answer is None else check(json.loads(json.dumps(answer.to_dict())), *documents, **terms)


def test_no_plan_of_any_request_gives_cause_for_complaint() -> None:
    outcomes: Counter[str] = Counter()
    for seed in SEEDS:
        documents = small_documents(seed)
        answer = planned(documents)
        outcomes["contradiction" if answer is None else "plan" if answer.feasible else "refusal"] += 1
        assert complaints(documents, answer) == [], seed

    assert outcomes["plan"] > len(SEEDS) / 2, outcomes


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_other_objectives_give_no_cause_for_complaint(objective: str) -> None:
    for seed in range(200, 260):
        documents = small_documents(seed)
        assert complaints(documents, planned(documents, objective=objective)) == [], seed


def test_memory_margin_is_kept() -> None:
    for seed in range(300, 330):
        documents = small_documents(seed)
        assert complaints(documents, planned(documents, memory_margin=0.25), margin=0.25) == [], seed


def test_pareto_sets_give_no_cause_for_complaint_and_hold_the_best_step() -> None:
    for seed in range(400, 430):
        job, profile, cluster = documents = small_documents(seed, most_layers=4, most_devices=3)
        best = planned(documents)
        if best is None or not best.feasible:
            continue
        front = api.pareto(parse_job(job), parse_cluster(cluster), profile=parse_profile(profile))
        for compromise in front:
            plan = json.loads(json.dumps(compromise.to_dict()))
            assert check(plan, *documents) == [], seed
        figures = [tuple(compromise.objectives.values()) for compromise in front]
        assert not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for a in figures for b in figures), (
            seed
        )


@pytest.mark.parametrize("planner", sorted(PEERS))
def test_baselines_give_no_cause_for_complaint_and_are_never_better(planner: str) -> None:
    for seed in range(500, 530):
        documents = small_documents(seed)
        documents.job.pop("queue", None)  # deadlines are unknown to them
        theirs = planned(documents, planner=planner)
        assert complaints(documents, theirs) == [], seed
        if theirs is not None and theirs.feasible:
            ours = planned(documents)
            assert ours is not None
            assert ours.plan.predicted.step <= theirs.plan.predicted.step * (1 + 1e-9), seed


def test_small_requests_equal_every_chain() -> None:
    """A plan wherever one fits, a bound below every chain, and an optimum only where no chain is better."""
    for seed in TINY:
        documents = small_documents(seed, most_layers=3, most_devices=3, most_samples=3)
        answer = planned(documents)
        if answer is None or documents.job.get("queue"):
            continue
        best = least(documents)
        if not answer.feasible:
            assert best.step == math.inf, seed
            continue
        plan = answer.plan
        assert plan.bound.step <= min(best.step, plan.predicted.step) * (1 + 1e-9), seed
        if plan.bound.optimal:
            assert plan.predicted.step <= best.step * (1 + 1e-9), seed


@pytest.mark.xfail(
    strict=False, reason="where straight chains or memory without actions are not all, it is not exact yet"
)
def test_shortfall_is_what_the_least_demanding_chain_lacks() -> None:
    seen = 0
    for seed in range(2_000, 2_120):
        documents = small_documents(seed, most_layers=3, most_devices=3, most_samples=3)
        answer = planned(documents)
        if answer is None or answer.feasible or documents.job.get("queue"):
            continue
        refusal = answer.to_dict()
        lack = least(documents).shortfall
        expected = None if lack == math.inf else pytest.approx(lack, rel=1e-9)
        assert refusal["shortfall_bytes"] == expected, (seed, refusal)
        seen += expected is not None

    assert seen > 5


def test_listing_devices_otherwise_changes_nothing() -> None:
    for seed in range(600, 640):
        documents = small_documents(seed)
        turned = json.loads(json.dumps(documents.cluster))
        turned["nodes"].reverse()
        for node in turned["nodes"]:
            node["devices"].reverse()
        first, second = planned(documents), planned(documents._replace(cluster=turned))
        assert (first is None) == (second is None), seed
        if first is not None and second is not None:
            assert first.to_dict() == second.to_dict(), seed


def test_same_plan_under_two_hash_seeds(tmp_path: Path) -> None:
    for seed in (0, 36):
        answers = [_by_command(tmp_path, small_documents(seed), hash_seed) for hash_seed in ("0", "1")]
        assert answers[0] == answers[1], seed
        assert json.loads(answers[0])["schema"] == "ignite/plan/v1"


def _by_command(folder: Path, documents: Documents, hash_seed: str) -> str:
    paths = {name: folder / f"{name}.json" for name in Documents._fields}
    for name, document in documents._asdict().items():
        paths[name].write_text(json.dumps(document), encoding="utf-8")
    words = [
        "plan",
        str(paths["job"]),
        "--cluster",
        str(paths["cluster"]),
        "--profile",
        str(paths["profile"]),
        "-o",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ignite_scheduler.cli", *words],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3, 4), done.stderr
    return done.stdout
