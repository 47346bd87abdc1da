"""Plans of baselines carry our figures, keep to requests, and are never better than ours."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

from ignite_scheduler.api import plan as api_plan
from ignite_scheduler.cli.root import ignite
from ignite_scheduler.cost import evaluate
from ignite_scheduler.daemon.placement import choice_of
from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Infeasible, PipelineChoice, Plan, Resources
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.peers import PEERS, peer_plan
from planner_cases import chain, devices_in_one_node, job, problems

EXAMPLES = Path(__file__).parents[3] / "src" / "ignite_scheduler" / "cli" / "examples"
ABLE = frozenset({"replicas", "workers"})


@pytest.mark.parametrize("name", sorted(PEERS))
def test_figures_are_those_of_the_cost_model(name: str) -> None:
    problem = Problem(
        job=job(total=32, micro=4),
        profile=chain([1.0, 2.0, 1.0, 3.0], parameters=[1.0] * 4, outputs=[1.0] * 4),
        cluster=devices_in_one_node([1.0, 0.5, 0.5], bandwidth=100.0),
        abilities=ABLE,
    )
    found = peer_plan(problem, name)
    assert isinstance(found, Plan)
    again = evaluate(problem.job, problem.profile, problem.cluster, choice_of(found, problem.profile))
    assert again.predicted == found.predicted
    assert again.stages == found.stages
    assert found.warnings[0].startswith(f"planned by {name} ")
    assert (found.bound.step, found.bound.optimal) == (0.0, False)


def test_what_does_not_fit_is_refused_with_the_bytes_that_are_missing() -> None:
    problem = Problem(
        job=job(total=4),
        profile=chain([1.0, 1.0], parameters=[10.0, 6.0]),
        cluster=devices_in_one_node([1.0, 1.0], memory=[20.0, 4.0]),
    )
    found = peer_plan(problem, "equal-layers")
    assert isinstance(found, Infeasible)
    assert (found.code, found.shortfall) == ("memory", 2.0)  # 6 bytes on the device of 4
    assert "equal-layers does not fit" in found.text
    assert isinstance(plan(problem), Plan)


def test_requests_are_kept_or_refused() -> None:
    base = Problem(job=job(total=8), profile=chain([1.0] * 6), cluster=devices_in_one_node([1.0] * 4), abilities=ABLE)

    def found(name: str, **terms: object) -> Plan | Infeasible:
        return peer_plan(replace(base, job=job(total=8, **terms)), name)

    two = found("equal-layers", resources=Resources(max_devices=2))
    assert isinstance(two, Plan)
    assert two.device_ids == ("n/d0", "n/d1")
    three = found("gpipe", pipeline=PipelineChoice(stages=3))
    assert isinstance(three, Plan)
    assert three.num_stages == 3
    split = found("equal-layers", pipeline=PipelineChoice(split=(1, 5)))
    assert isinstance(split, Infeasible)
    assert "pipeline.split" in split.text
    kinds = found("autopipe", resources=Resources(any_of=({"own": 3},)))
    assert isinstance(kinds, Plan)
    assert len(kinds.device_ids) == 3
    again = found("pipedream", pipeline=PipelineChoice(recompute=True))
    assert isinstance(again, Infeasible)


def test_a_job_that_fixes_the_schedule_is_obeyed() -> None:
    problem = Problem(
        job=job(total=8, pipeline=PipelineChoice(schedule="gpipe")),
        profile=chain([1.0] * 4),
        cluster=devices_in_one_node([1.0] * 2),
    )
    found = peer_plan(problem, "autopipe")
    assert isinstance(found, Plan)
    assert found.schedule == "gpipe"


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(problems(most_layers=4, most_devices=3))
def test_no_baseline_is_better_than_ours(problem: Problem) -> None:
    ours = plan(problem)
    for name in PEERS:
        found = peer_plan(problem, name)
        if isinstance(found, Plan):
            assert isinstance(ours, Plan)
            assert ours.predicted.step <= found.predicted.step * (1 + 1e-9) or problem.objective != "time"


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(problems(most_layers=4, most_devices=4))
def test_the_order_of_the_listing_changes_nothing(problem: Problem) -> None:
    cluster = problem.cluster
    nodes = tuple(replace(node, devices=node.devices[::-1]) for node in reversed(cluster.nodes))
    turned = replace(problem, cluster=replace(cluster, nodes=nodes), abilities=ABLE)
    for name in PEERS:
        assert peer_plan(turned, name) == peer_plan(replace(problem, abilities=ABLE), name)


def test_the_command_prints_a_baselines_plan_like_any_other() -> None:
    files = [str(EXAMPLES / "job.yaml"), "-c", str(EXAMPLES / "cluster.yaml")]
    shown = CliRunner().invoke(ignite, ["plan", *files, "--planner", "pipedream"], prog_name="ignite")
    assert shown.exit_code == 0
    assert "planned by pipedream" in shown.output
    assert "planner=pipedream" in shown.output
    unknown = CliRunner().invoke(ignite, ["plan", *files, "--planner", "pipedram"], prog_name="ignite")
    assert unknown.exit_code == 2
    assert "asteroid" in unknown.output
    both = CliRunner().invoke(ignite, ["plan", *files, "--planner", "gpipe", "--pareto"], prog_name="ignite")
    assert both.exit_code == 2
    listed = CliRunner().invoke(ignite, ["plan", "--help"], prog_name="ignite")
    assert all(name in listed.output for name in PEERS)


def test_an_unknown_planner_is_named() -> None:
    with pytest.raises(InputError, match="no planner 'best'"):
        api_plan(EXAMPLES / "job.yaml", EXAMPLES / "cluster.yaml", planner="best")


def test_times_are_needed_for_every_layer() -> None:
    profile = chain([1.0, 1.0])
    layers = (profile.layers[0], replace(profile.layers[1], times={"other": profile.layers[1].times["ref"]}))
    cluster = devices_in_one_node([1.0])
    device = cluster.nodes[0].devices[0]
    other = replace(device, id="n/d1", kind="other", speed=None, memory=math.inf)
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], devices=(device, other)),))
    found = peer_plan(
        Problem(job=job(total=4), profile=replace(profile, layers=layers), cluster=cluster), "equal-layers"
    )
    assert isinstance(found, Infeasible)
    assert found.code == "planner"
