"""What the job fixes is obeyed exactly; what cannot be planned is refused with a reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations

import pytest

from ignite_scheduler.errors import InputError, NotFoundError
from ignite_scheduler.model import Infeasible, LinkRule, Node, PipelineChoice, Plan, QueueTerms, Resources
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.problem import Objective
from planner_cases import WEIGHTS_ONLY, chain, devices_in_one_node, job


def planned(**terms: object) -> Plan:
    found = plan(Problem(**terms))  # type: ignore[arg-type]
    assert isinstance(found, Plan), found
    return found


def refused(**terms: object) -> Infeasible:
    found = plan(Problem(**terms))  # type: ignore[arg-type]
    assert isinstance(found, Infeasible), found
    return found


def sizes(found: Plan) -> list[int]:
    return [len(stage.layers) for stage in found.stages]


@pytest.mark.parametrize(("layers", "stages", "largest"), [(7, 5, 2), (45, 16, 3), (39, 8, 5), (31, 4, 8)])
def test_a_fixed_number_of_stages_is_obeyed_with_the_least_largest_stage(
    layers: int, stages: int, largest: int
) -> None:
    found = planned(
        job=job(pipeline=PipelineChoice(stages=stages)),
        profile=chain([1.0] * layers),
        cluster=devices_in_one_node([1.0] * stages),
    )
    assert len(found.stages) == stages
    assert sum(sizes(found)) == layers
    assert max(sizes(found)) == largest
    assert found.bound.optimal


def test_more_stages_than_layers_is_refused_with_both_numbers() -> None:
    answer = refused(
        job=job(pipeline=PipelineChoice(stages=5)), profile=chain([1.0] * 3), cluster=devices_in_one_node([1.0] * 5)
    )
    assert answer.code == "layers"
    assert "3 layers < 5 stages" in answer.text


def test_more_stages_than_devices_is_refused() -> None:
    answer = refused(
        job=job(pipeline=PipelineChoice(stages=3)), profile=chain([1.0] * 4), cluster=devices_in_one_node([1.0] * 2)
    )
    assert answer.code == "devices"


def test_a_fixed_split_is_obeyed() -> None:
    found = planned(
        job=job(pipeline=PipelineChoice(split=(1, 4, 2))),
        profile=chain([1.0] * 7),
        cluster=devices_in_one_node([1.0, 2.0, 1.0, 1.0]),
    )
    assert sizes(found) == [1, 4, 2]
    assert found.stages[1].devices[0].device == "n/d1"


def test_a_split_that_does_not_fit_the_model_is_an_error() -> None:
    with pytest.raises(InputError, match="7 layers"):
        planned(
            job=job(pipeline=PipelineChoice(split=(1, 4))),
            profile=chain([1.0] * 7),
            cluster=devices_in_one_node([1.0, 1.0]),
        )


def test_requested_kinds_are_all_used() -> None:
    found = planned(
        job=job(resources=Resources(any_of=({"own": 3},))),
        profile=chain([1.0] * 8),
        cluster=devices_in_one_node([10.0, 10.0, 0.1]),
    )
    assert len(found.device_ids) == 3
    assert found.predicted.bottleneck.busy == pytest.approx(10.0)
    assert any("sets the pace" in warning for warning in found.warnings)


def test_a_request_that_the_cluster_cannot_meet_is_refused() -> None:
    answer = refused(
        job=job(resources=Resources(any_of=({"own": 4}, {"other": 1}))),
        profile=chain([1.0] * 8),
        cluster=devices_in_one_node([1.0] * 3),
    )
    assert answer.code == "devices"
    assert "3 own" in answer.text


def test_max_devices_and_exclude_are_limits_and_reasons() -> None:
    found = planned(
        job=job(resources=Resources(max_devices=1, exclude=("n/d0",))),
        profile=chain([1.0] * 8),
        cluster=devices_in_one_node([4.0, 2.0, 1.0]),
    )
    assert found.device_ids == ("n/d1",)
    reasons = {entry.device: entry.reason for entry in found.unused}
    assert "exclude" in reasons["n/d0"]
    assert "n/d2" in reasons


def test_excluding_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(NotFoundError, match="n/d9"):
        planned(
            job=job(resources=Resources(exclude=("n/d9",))),
            profile=chain([1.0]),
            cluster=devices_in_one_node([1.0]),
        )


def test_precision_filters_devices() -> None:
    cluster = devices_in_one_node([1.0, 1.0])
    fast = replace(cluster.devices[1], dtypes=frozenset({"fp32", "bf16"}), speed=0.5)
    cluster = replace(cluster, nodes=(Node(name="n", devices=(cluster.devices[0], fast)),))
    found = planned(job=job(precision="bf16"), profile=chain([1.0] * 4), cluster=cluster)
    assert found.device_ids == ("n/d1",)
    answer = refused(job=job(precision="fp16"), profile=chain([1.0] * 4), cluster=cluster)
    assert answer.code == "dtype"


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        (PipelineChoice(replicas=2), "replicas"),
        (PipelineChoice(recompute=True), "recompute"),
        (PipelineChoice(shard=True), "shard"),
        (PipelineChoice(offload=True), "offload"),
        (PipelineChoice(schedule="zb-h1"), "schedule"),
    ],
)
def test_what_this_version_cannot_plan_is_refused(choice: PipelineChoice, code: str) -> None:
    asked = job(micro=None, pipeline=choice)
    answer = refused(job=asked, profile=chain([1.0] * 4), cluster=devices_in_one_node([1.0, 1.0]))
    assert answer.code == code
    assert answer.cures


def test_auto_resolves_and_is_printed() -> None:
    found = planned(
        job=job(micro=None, pipeline=PipelineChoice(recompute="auto", shard="auto", offload="auto")),
        profile=chain([1.0] * 4),
        cluster=devices_in_one_node([1.0, 1.0]),
    )
    assert found.resolved["replicas"] == 1
    assert found.resolved["recompute"] is False
    assert found.resolved["micro"] == found.microbatches[0]


def test_a_deadline_that_cannot_be_met_names_the_earliest_finish() -> None:
    terms = {"profile": chain([1.0] * 4), "cluster": devices_in_one_node([1.0])}
    answer = refused(job=job(total=1, steps=10, queue=QueueTerms(deadline=35.0)), **terms)
    assert answer.code == "deadline"
    assert answer.earliest_finish == pytest.approx(40.0)
    assert planned(job=job(total=1, steps=10, queue=QueueTerms(deadline=40.0)), **terms).predicted.duration == 40.0


def test_a_time_limit_that_cannot_hold_the_steps_is_a_warning() -> None:
    found = planned(
        job=job(total=1, steps=1000, queue=QueueTerms(max_time=1200.0)),
        profile=chain([2.0]),
        cluster=devices_in_one_node([1.0]),
    )
    assert any("~600 steps fit" in warning for warning in found.warnings)


def test_a_budget_rules_out_dear_plans() -> None:
    terms = {"profile": chain([1.0] * 12), "cluster": devices_in_one_node([3.0, 2.0, 1.0], prices=[3.0, 1.0, 1.0])}
    free = planned(job=job(), **terms)
    assert free.predicted.cost is not None
    bound = planned(job=job(queue=QueueTerms(budget=4000.0)), **terms)
    assert bound.predicted.cost is not None
    assert bound.predicted.cost <= 4000.0 < free.predicted.cost
    assert refused(job=job(queue=QueueTerms(budget=1.0)), **terms).code == "budget"


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_an_objective_without_figures_is_an_error(objective: str) -> None:
    with pytest.raises(InputError, match=objective):
        planned(job=job(), profile=chain([1.0] * 4), cluster=devices_in_one_node([1.0, 1.0]), objective=objective)


def test_a_layer_without_time_anywhere_is_an_error() -> None:
    profile = chain([1.0, 1.0])
    broken = replace(profile, layers=(profile.layers[0], replace(profile.layers[1], times={})))
    with pytest.raises(InputError, match="l1"):
        planned(job=job(), profile=broken, cluster=devices_in_one_node([1.0]))


def test_the_order_of_the_listing_changes_nothing() -> None:
    cluster = devices_in_one_node([1.0, 1.0, 2.0], memory=[5.0, 9.0, 4.0], bandwidth=3.0)
    profile = chain([1.0, 2.0, 1.0, 3.0, 1.0], parameters=[2.0] * 5, outputs=[1.0] * 5)
    answers = set()
    for order in permutations(cluster.devices):
        shuffled = replace(cluster, nodes=(Node(name="n", devices=order),))
        found = planned(job=job(total=6), profile=profile, cluster=shuffled)
        answers.add((found.device_ids, tuple(sizes(found)), found.predicted.step))
    assert len(answers) == 1


def test_one_crossing_where_links_between_hosts_are_slow() -> None:
    plain = devices_in_one_node([1.0] * 4)
    hosts = tuple(
        Node(name=name, devices=tuple(replace(plain.devices[2 * k + i], id=f"{name}/{i}", node=name) for i in range(2)))
        for k, name in enumerate("ab")
    )
    links = (LinkRule(bandwidth=1e9, latency=0.0), LinkRule(bandwidth=1e10, latency=0.0, within=True))
    found = planned(
        job=job(total=8, pipeline=PipelineChoice(stages=4)),
        profile=chain([0.1] * 4, outputs=[1e8] * 4),
        cluster=replace(plain, nodes=hosts, links=links),
    )
    nodes = [name.split("/")[0] for name in found.device_ids]
    assert sum(a != b for a, b in pairwise(nodes)) == 1


def test_memory_shortfall_is_exact() -> None:
    terms = {"job": job(optimizer=WEIGHTS_ONLY), "cluster": devices_in_one_node([1.0, 1.0], memory=[11e9, 19e9])}
    found = planned(profile=chain([1.0] * 30, parameters=[1e9] * 30), **terms)
    assert {share.device: len(stage.layers) for stage in found.stages for share in stage.devices} == {
        "n/d0": 11,
        "n/d1": 19,
    }
    answer = refused(profile=chain([1.0] * 31, parameters=[1e9] * 31), **terms)
    assert (answer.code, answer.shortfall) == ("memory", 1e9)
    assert answer.cures


def test_a_profile_without_reference_is_told_to_name_one() -> None:
    profile = replace(chain([1.0] * 2), reference=None)
    cluster = devices_in_one_node([1.0])
    other = replace(cluster, nodes=(Node(name="n", devices=(replace(cluster.devices[0], kind="unmeasured"),)),))
    with pytest.raises(InputError, match="name the kind that its times are of"):
        plan(Problem(job=job(), profile=profile, cluster=other))


def test_unlinked_devices_that_are_all_demanded_are_refused() -> None:
    cluster = replace(devices_in_one_node([1.0, 1.0]), links=())
    answer = refused(job=job(pipeline=PipelineChoice(stages=2)), profile=chain([1.0] * 2), cluster=cluster)
    assert answer.code == "links"


def test_a_useless_device_is_left_out_with_what_it_would_take() -> None:
    found = planned(job=job(), profile=chain([1.0] * 8), cluster=devices_in_one_node([10.0, 10.0, 0.1]))
    assert sizes(found) == [4, 4]
    (left,) = found.unused
    assert left.device == "n/d2"
    assert "with one layer on it the best is 10.0 s" in left.reason


def test_shared_wires_are_counted_in_the_step() -> None:
    cluster = devices_in_one_node([1.0] * 3)
    shared = replace(cluster, links=(LinkRule(bandwidth=1e6, latency=0.0, shared=True),))
    own = replace(cluster, links=(LinkRule(bandwidth=1e6, latency=0.0),))
    profile = chain([1.0] * 6, outputs=[4e5] * 6)
    with_wire = planned(job=job(total=16), profile=profile, cluster=shared)
    without = planned(job=job(total=16), profile=profile, cluster=own)
    assert with_wire.predicted.step >= without.predicted.step
    assert with_wire.bound.step <= without.predicted.step * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["time", "cost"])
def test_the_dearer_of_equal_devices_on_a_shared_wire_is_left_out(objective: Objective) -> None:
    cluster = devices_in_one_node([1.0, 1.0])
    dear, cheap = (replace(device, price=price) for device, price in zip(cluster.devices, (6.0, 4.0), strict=True))
    wire = (LinkRule(bandwidth=1.0, latency=0.0, shared=True),)
    shared = replace(cluster, nodes=(Node(name="n", devices=(dear, cheap)),), links=wire)
    found = planned(
        job=job(total=2), profile=chain([1.0, 1.0], outputs=[1e6, 1e6]), cluster=shared, objective=objective
    )
    assert found.device_ids == (cheap.id,)


def test_a_large_cluster_is_answered_with_a_valid_plan_and_a_bound() -> None:
    speeds = [1.0 + (7 * i % 11) / 10 + i / 1000 for i in range(40)]
    found = planned(
        job=job(total=16),
        profile=chain([0.05 + (3 * i % 7) / 100 for i in range(60)], outputs=[1e6] * 60),
        cluster=devices_in_one_node(speeds, bandwidth=1e9),
        work=200_000,
    )
    assert sum(sizes(found)) == 60
    assert 0 < found.bound.step <= found.predicted.step
    assert found.bound.gap == pytest.approx(found.predicted.step / found.bound.step - 1)


def test_a_profile_that_was_only_sized_needs_figures_of_the_devices() -> None:
    measured = chain([1.0] * 3)
    sized = replace(
        measured, reference=None, layers=tuple(replace(each, times={}, forward_flops=1.0) for each in measured.layers)
    )
    with pytest.raises(InputError, match="give the devices in the cluster file their figures"):
        plan(Problem(job=job(), profile=sized, cluster=devices_in_one_node([1.0])))
