"""What binds a plan: shares of the step that an independent change of the figures confirms, and hand-solved cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ignite_scheduler.cost import Assignment, StageChoice, evaluate, straight
from ignite_scheduler.model import Cluster, Reason
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.neighbours import distinct, lighter_memory, shifts
from ignite_scheduler.planner.why import SPEED_UP, reasons
from planner_cases import chain, devices_in_one_node, job


def told(times: list[float], split: tuple[int, ...], speeds: list[float], *, total: int = 8, **terms: object) -> tuple:
    """Reasons for a straight plan on devices in one node, with the problem and the choice."""
    profile_terms = {key: terms.pop(key) for key in ("parameters", "outputs", "activations") if key in terms}
    problem = Problem(
        job=job(total=total),
        profile=chain(times, **profile_terms),  # type: ignore[arg-type]
        cluster=devices_in_one_node(speeds, **terms),  # type: ignore[arg-type]
    )
    choice = straight(split, [f"n/d{i}" for i in range(len(split))], (1,) * total, "1f1b")
    return reasons(problem, choice), problem, choice


def of_kind(found: tuple[Reason, ...], kind: str) -> list[Reason]:
    return [reason for reason in found if reason.kind == kind]


def test_one_stage_is_the_whole_step() -> None:
    found, *_ = told([1.0, 2.0], (2,), [1.0])

    assert [(reason.kind, reason.index) for reason in found] == [("stage", 0)]
    assert found[0].share == pytest.approx(1.0)
    assert found[0].text == "stage 0, 2 layers on n/d0: made 1 % faster, the step is 1.00 % shorter"


def test_the_slow_one_of_two_stages_takes_all_its_microbatches_of_the_step() -> None:
    first, *_ = told([4.0, 1.0], (1, 1), [1.0, 1.0])
    last, *_ = told([1.0, 4.0], (1, 1), [1.0, 1.0])

    assert [(reason.index, reason.share) for reason in first] == [(0, pytest.approx(1.0))]  # 8 · 4: it never waits
    assert (last[0].index, last[0].share) == (1, pytest.approx(32 / 33))  # it waits for the first forward, and the
    assert len(last) == 1  # last backward comes after it: together 1, less than is worth a word


def test_a_slow_link_binds() -> None:
    found, *_ = told([1.0, 1.0], (1, 1), [1.0, 1.0], total=32, outputs=[10.0, 0.0], bandwidth=1.0)

    assert (found[0].kind, found[0].index) == ("link", 0)
    assert found[0].share > 0.9
    assert "link between stage 0 (n/d0) and stage 1 (n/d1)" in found[0].text


def test_equal_stages_are_said_to_keep_the_same_pace() -> None:
    found, *_ = told([1.0] * 4, (1, 1, 1, 1), [1.0] * 4, total=64)

    assert "none alone binds" in found[0].text
    assert found[0].share < 0.1


def test_few_microbatches_leave_devices_idle() -> None:
    found, *_ = told([1.0] * 3, (1, 1, 1), [1.0] * 3, total=1)

    (batch,) = of_kind(found, "batch")
    assert batch.share == pytest.approx(1 - 4 / 6)  # (M + S − 1)(f + b): 3 for one sample, 4 for two
    assert "1 microbatch for 3 stages" in batch.text


def test_a_larger_batch_that_helps_little_or_does_not_fit_is_no_reason() -> None:
    many, *_ = told([1.0] * 3, (1, 1, 1), [1.0] * 3, total=64)
    full, *_ = told([1.0] * 3, (1, 1, 1), [1.0] * 3, total=1, activations=1.0, memory=[1.0] * 3)

    assert not of_kind(many, "batch")
    assert not of_kind(full, "batch")


def test_a_device_that_is_a_little_too_small_for_a_layer_more_is_named() -> None:
    found, *_ = told([1.0] * 3, (2, 1), [1.0, 2.0], parameters=[1.0] * 3, memory=[9.0, 1.96])

    (memory,) = of_kind(found, "memory")
    assert (memory.device, memory.index) == ("n/d1", 1)
    assert memory.share == pytest.approx(1 - 9 / 16)  # 8 · 1 and 1 around it, instead of 8 · 2
    assert "layer 'l1' of stage 0 would fit there" in memory.text
    assert "2.0 % of it" in memory.text


@pytest.mark.parametrize("limit", [1.0, 2.0])
def test_a_device_with_room_enough_or_far_too_little_is_not_named(limit: float) -> None:
    found, *_ = told([1.0] * 3, (2, 1), [1.0, 2.0], parameters=[1.0] * 3, memory=[9.0, limit])

    assert not of_kind(found, "memory")


def test_recomputation_for_want_of_memory_says_what_it_costs() -> None:
    profile = chain([3.0], activations=5.0)
    problem = Problem(job=job(total=4), profile=profile, cluster=devices_in_one_node([1.0], memory=[8.0]))
    stage = StageChoice(layers=(0,), devices=("n/d0",), samples=(2,), recompute=((0, 1),))
    choice = Assignment(stages=(stage,), microbatches=(2, 2), schedule="1f1b")
    wider = replace(profile, layers=(replace(profile.layers[0], activation_bytes=5.0),))

    found = reasons(replace(problem, profile=wider), choice)

    (memory,) = of_kind(found, "memory")
    assert "stage 0 need not recompute" in memory.text
    assert memory.share == pytest.approx(1 - 3 / 4)  # one more forward of 1 beside 1 + 2


def test_groups_move_samples_as_well_as_layers() -> None:
    stage = StageChoice(layers=(0, 1), devices=("a", "b"), samples=(3, 1))
    choice = Assignment(stages=(stage,), microbatches=(4,), schedule="gpipe")

    moved = [one.assignment.stages[0].samples for one in shifts(choice, ["x", "y"], [0], [])]

    assert moved == [(2, 2)]


def test_layers_move_only_between_stages_that_follow_each_other() -> None:
    graph = Assignment(
        stages=(
            StageChoice(layers=(0, 1), devices=("a",), samples=(1,), inputs=()),
            StageChoice(layers=(2, 3), devices=("b",), samples=(1,), inputs=()),
            StageChoice(layers=(4, 5), devices=("c",), samples=(1,), inputs=(0, 1)),
        ),
        microbatches=(1,),
        schedule="1f1b",
    )

    assert list(shifts(graph, list("uvwxyz"), [0, 1, 2], [(0, 2)])) == []


def test_segments_keep_what_is_left_of_them() -> None:
    first = StageChoice(layers=(0, 1, 2), devices=("a",), samples=(1,), recompute=((0, 3),))
    second = StageChoice(layers=(3, 4, 5), devices=("b",), samples=(1,), recompute=((3, 4), (5, 6)))
    choice = Assignment(stages=(first, second), microbatches=(1,), schedule="1f1b")

    onwards, back = (one.assignment.stages for one in shifts(choice, list("uvwxyz"), [0, 1], []))

    assert (onwards[0].recompute, onwards[1].recompute) == (((0, 2),), ((3, 4), (5, 6)))
    assert (back[0].recompute, back[1].recompute) == (((0, 4),), ((5, 6),))
    assert [one.text for one in lighter_memory(choice)] == ["stage 0 need not recompute", "stage 1 need not recompute"]


def sped_up(cluster: Cluster, device_id: str) -> Cluster:
    (node,) = cluster.nodes
    faster = (
        replace(device, speed=device.speed / SPEED_UP) if device.id == device_id else device for device in node.devices
    )
    return replace(cluster, nodes=(replace(node, devices=tuple(faster)),))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_share_is_what_a_device_one_percent_faster_saves(data: st.DataObject) -> None:
    split = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    times = data.draw(st.lists(st.integers(1, 9).map(float), min_size=sum(split), max_size=sum(split)))
    outputs = data.draw(st.lists(st.integers(0, 5).map(float), min_size=sum(split), max_size=sum(split)))
    found, problem, choice = told(
        times, split, [1.0] * len(split), total=data.draw(st.integers(1, 9)), outputs=outputs, bandwidth=2.0
    )
    step = evaluate(problem.job, problem.profile, problem.cluster, choice).predicted.step

    resources = [reason for reason in found if reason.kind in ("stage", "link")]
    assert resources
    assert all(-1e-9 <= reason.share <= 1 + 1e-9 for reason in resources)
    assert sum(reason.share for reason in resources) <= 1 + 1e-9
    for reason in of_kind(found, "stage"):
        cluster = sped_up(problem.cluster, f"n/d{reason.index}")
        faster = evaluate(problem.job, problem.profile, cluster, choice).predicted.step
        assert step - faster == pytest.approx((1 - SPEED_UP) * reason.share * step, abs=1e-9 * step)


@given(
    split=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    busy=st.lists(st.integers(0, 3), max_size=4, unique=True),
)
def test_neighbours_hold_each_layer_once(split: list[int], busy: list[int]) -> None:
    choice = straight(split, [f"d{i}" for i in range(len(split))], (1,), "1f1b")
    names = [f"l{i}" for i in range(sum(split))]
    cuts = list(pairwise(range(len(split))))

    for one in shifts(choice, names, [stage for stage in busy if stage < len(split)], cuts):
        assert [layer for stage in one.assignment.stages for layer in stage.layers] == list(range(sum(split)))
        ends = list(accumulate(one.assignment.split))
        assert sum(a != b for a, b in zip(ends, accumulate(split), strict=True)) == 1


def test_alternatives_that_place_layers_otherwise_come_before_those_that_only_cut_the_batch_otherwise() -> None:
    def choice(split: tuple[int, ...], devices: str, count: int) -> Assignment:
        return straight(split, tuple(devices), (1,) * count, "1f1b")

    best = choice((2, 1), "ab", 4)
    same, moved, moved_too, swapped = (
        choice((2, 1), "ab", 8), choice((1, 2), "ab", 4), choice((1, 2), "ab", 2), choice((2, 1), "ba", 4)
    )  # fmt: skip

    assert distinct(best, (same, moved, moved_too, swapped), 2) == (moved, swapped)
    assert distinct(best, (same, moved, moved_too, swapped), 3) == (same, moved, swapped)
    assert distinct(best, (), 3) == ()


def test_work_is_counted_and_limits_what_is_looked_at() -> None:
    _, problem, choice = told([1.0] * 6, (2, 2, 2), [1.0, 1.0, 2.0], total=16)

    (bare,) = reasons(problem, choice, work=1)

    assert "at most" in bare.text
    assert reasons(problem, choice) == reasons(problem, choice)
