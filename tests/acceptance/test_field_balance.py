"""D1–D5: every layer once, time is balanced, memory is a cap, speed is the weight, useless devices stay out."""

from __future__ import annotations

import pytest
from field_bench import GB, Bench, busy, held, layers, node, own, sizes

ONE_PERCENT = 0.01


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "largest"), [(7, 5, 2), (45, 16, 3), (39, 8, 5), (31, 4, 8), (3, 3, 1), (12, 5, 3)]
)
def test_a_fixed_number_of_stages_gives_each_layer_once_and_no_empty_stage(
    bench: Bench, num_layers: int, num_stages: int, largest: int
) -> None:
    bench.profile([1.0] * num_layers)
    bench.cluster(node("n", own("gpu", count=num_stages)))
    bench.job(pipeline={"stages": num_stages})

    plan = bench.plan().plan

    assert len(plan["stages"]) == num_stages
    assert layers(plan) == [f"l{index}" for index in range(num_layers)]
    assert max(sizes(plan)) == largest
    assert min(sizes(plan)) >= 1
    assert len(set(held(plan))) == num_stages


def test_more_stages_than_layers_is_refused_with_both_numbers(bench: Bench) -> None:
    bench.profile([1.0] * 3)
    bench.cluster(node("n", own("gpu", count=5)))
    bench.job(pipeline={"stages": 5})

    answer = bench.plan()

    assert answer.code == 3
    assert answer.refusal["reason"]["code"] == "layers"
    assert "3 layers" in answer.refusal["reason"]["text"]
    assert "5 stages" in answer.refusal["reason"]["text"]


def test_time_is_balanced_not_parameters_or_count(bench: Bench) -> None:
    bench.profile([0.2, 1, 1, 1, 1, 1, 1, 2.0], memory=[2 * GB, *[GB] * 6, 2 * GB])
    bench.cluster(node("n", own("gpu", count=4)))
    bench.job()

    plan = bench.plan().plan

    assert sizes(plan) == [3, 2, 2, 1]
    assert max(busy(plan)) == pytest.approx(2.2, rel=ONE_PERCENT)
    assert plan["predicted"]["bottleneck"]["busy_s"] == pytest.approx(2.2, rel=ONE_PERCENT)


SMALL = own("small", memory="11GB")
LARGE = own("large", memory="19GB")


@pytest.mark.parametrize("devices", [(SMALL, LARGE), (LARGE, SMALL)], ids=["small first", "large first"])
def test_memory_is_a_cap_whatever_the_listing_order(bench: Bench, devices: tuple[dict, dict]) -> None:
    bench.profile([1.0] * 30, memory=[GB] * 30)
    bench.cluster(node("n", *devices))
    bench.job()

    plan = bench.plan().plan

    on = dict(zip(held(plan), sizes(plan), strict=True))
    assert on == {"n/small-0": 11, "n/large-0": 19}
    for stage in plan["stages"]:
        assert stage["memory_bytes"] <= stage["memory_limit_bytes"]


def test_one_layer_too_many_is_refused_with_the_shortfall_and_a_cure(bench: Bench) -> None:
    bench.profile([1.0] * 31, memory=[GB] * 31)
    bench.cluster(node("n", SMALL, LARGE))
    bench.job()

    answer = bench.plan()

    assert answer.code == 3
    refusal = answer.refusal
    assert refusal["reason"]["code"] == "memory"
    assert refusal["shortfall_bytes"] == pytest.approx(GB, rel=ONE_PERCENT)
    assert refusal["cures"]
    assert "1GB" in answer.stderr.replace(" ", "")


@pytest.mark.parametrize("turned", [False, True])
def test_an_indivisible_stage_goes_where_it_fits(bench: Bench, turned: bool) -> None:
    bench.profile([1.0, 1.0], memory=[14 * GB, 20 * GB])
    devices = [own("d16", memory="16GB"), own("d24", memory="24GB")]
    bench.cluster(node("n", *(reversed(devices) if turned else devices)))
    bench.job()

    assert held(bench.plan().plan) == ["n/d16-0", "n/d24-0"]


def test_speed_is_the_weight_where_memory_is_plentiful(bench: Bench) -> None:
    bench.profile([1.0] * 12, memory=[GB] * 12)
    bench.cluster(
        node("n", own("x", speed=2, memory="40GB"), own("y", speed=1, memory="40GB"), own("z", speed=3, memory="40GB"))
    )
    bench.job()

    plan = bench.plan().plan

    assert dict(zip(held(plan), sizes(plan), strict=True)) == {"n/z-0": 6, "n/x-0": 4, "n/y-0": 2}
    assert max(busy(plan)) == pytest.approx(2.0, rel=ONE_PERCENT)


def test_a_fast_small_device_is_filled_and_the_slow_large_one_takes_the_rest(bench: Bench) -> None:
    bench.profile([1.0] * 10, memory=[GB] * 10)
    bench.cluster(node("n", own("P", speed=4, memory="6GB"), own("Q", speed=1, memory="30GB")))
    bench.job()

    plan = bench.plan().plan

    assert dict(zip(held(plan), sizes(plan), strict=True)) == {"n/P-0": 6, "n/Q-0": 4}
    assert max(busy(plan)) == pytest.approx(4.0, rel=ONE_PERCENT)


def slow_box(bench: Bench, gpu_memory: str, **job: object) -> None:
    bench.profile([1.0] * 8, memory=[GB] * 8)
    bench.cluster(
        node("n", own("gpu", count=2, speed=10, memory=gpu_memory), own("cpu", "box", speed=0.1, memory="64GB"))
    )
    bench.job(**job)  # type: ignore[arg-type]


def test_a_useless_device_is_left_out_with_the_reason(bench: Bench) -> None:
    slow_box(bench, "80GB")

    plan = bench.plan().plan

    assert sizes(plan) == [4, 4]
    assert max(busy(plan)) == pytest.approx(0.4, rel=ONE_PERCENT)
    [unused] = plan["unused"]
    assert unused["device"] == "n/box"
    assert unused["reason"]


def test_a_slow_device_is_used_where_nothing_else_fits_and_a_warning_says_so(bench: Bench) -> None:
    slow_box(bench, "3GB")

    plan = bench.plan().plan

    on = dict(zip(held(plan), sizes(plan), strict=True))
    assert on["n/box"] == 2
    assert sorted(on.values()) == [2, 3, 3]
    assert max(busy(plan)) == pytest.approx(20, rel=ONE_PERCENT)
    assert any("n/box" in warning for warning in plan["warnings"])


def test_a_demanded_slow_device_is_used_and_warned_about(bench: Bench) -> None:
    slow_box(bench, "80GB", resources={"any_of": [{"gpu": 2, "cpu": 1}]})

    plan = bench.plan().plan

    assert sorted(held(plan)) == ["n/box", "n/gpu-0", "n/gpu-1"]
    assert max(busy(plan)) == pytest.approx(10, rel=ONE_PERCENT)
    assert any("n/box" in warning for warning in plan["warnings"])
