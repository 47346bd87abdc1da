"""The field cases as whole kinds: random sizes, speeds and caps, with answers that follow by hand or by brute force."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from field_bench import GB, Bench, busy, held, layers, node, own, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

FEW = settings(max_examples=12, deadline=None)


def cuts(num_layers: int, num_stages: int) -> list[tuple[int, ...]]:
    """All ways to cut a chain into stages, as sizes."""
    inner = combinations(range(1, num_layers), num_stages - 1)
    return [tuple(b - a for a, b in pairwise((0, *places, num_layers))) for places in inner]


@FEW
@given(st.integers(1, 8).flatmap(lambda stages: st.tuples(st.integers(stages, 40), st.just(stages))))
def test_equal_layers_on_equal_devices_are_as_even_as_can_be(counts: tuple[int, int]) -> None:
    num_layers, num_stages = counts
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.profile([1.0] * num_layers)
        bench.cluster(node("n", own("gpu", count=num_stages)))
        bench.job(pipeline={"stages": num_stages})

        plan = bench.plan().plan

    assert layers(plan) == [f"l{index}" for index in range(num_layers)]
    assert len(plan["stages"]) == num_stages
    assert min(sizes(plan)) >= 1
    assert max(sizes(plan)) == math.ceil(num_layers / num_stages)


@FEW
@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(["1f1b", "gpipe"]))
def test_any_number_of_microbatches_takes_exactly_its_time(
    num_stages: int, num_microbatches: int, schedule: str
) -> None:
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.profile([3.0] * num_stages)
        bench.cluster(node("n", own("gpu", count=num_stages)))
        bench.job(microbatches=num_microbatches, pipeline={"stages": num_stages, "schedule": schedule})

        predicted = bench.plan().plan["predicted"]

    rounds = num_microbatches + num_stages - 1
    assert predicted["step_s"] == pytest.approx(3 * rounds, rel=1e-9)
    assert predicted["bubble_fraction"] == pytest.approx((num_stages - 1) / rounds, abs=1e-9)


@FEW
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=7),
    st.lists(st.sampled_from([1, 2, 4, 10]), min_size=2, max_size=3, unique=True),
)
def test_the_bottleneck_is_the_least_of_all_cuts_and_orders(times: list[int], speeds: list[int]) -> None:
    num_stages = len(speeds)
    if len(times) < num_stages:
        times = times + [1] * (num_stages - len(times))
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.profile([float(time) for time in times])
        bench.cluster(node("n", *(own(f"d{speed}", speed=speed) for speed in speeds)))
        bench.job(microbatches=256)

        plan = bench.plan().plan

    def slowest(cut: tuple[int, ...], order: tuple[int, ...]) -> float:
        ends = [sum(cut[: index + 1]) for index in range(len(cut))]
        loads = [sum(times[end - size : end]) for end, size in zip(ends, cut, strict=True)]
        return max(load / speed for load, speed in zip(loads, order, strict=True))

    best = min(
        slowest(cut, order)
        for used in range(1, num_stages + 1)
        for cut in cuts(len(times), used)
        for order in permutations(speeds, used)
    )
    # Of 256 microbatches filling and draining take a few: the least bottleneck decides but for them.
    assert max(busy(plan)) <= best * (1 + 2 * num_stages * 3 / 256)


@FEW
@given(st.integers(2, 24), st.lists(st.integers(1, 12), min_size=1, max_size=3), st.booleans())
def test_memory_is_a_cap_and_the_shortfall_is_what_is_missing(num_layers: int, caps: list[int], turned: bool) -> None:
    devices = [own(f"d{index}", memory=f"{cap}GB") for index, cap in enumerate(caps)]
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.profile([1.0] * num_layers, memory=[GB] * num_layers)
        bench.cluster(node("n", *(reversed(devices) if turned else devices)))
        bench.job()

        answer = bench.plan()

    missing = num_layers - sum(caps)
    if missing > 0:
        assert answer.code == 3
        assert answer.refusal["shortfall_bytes"] == pytest.approx(missing * GB)
        assert answer.refusal["cures"]
    else:
        for device, size in zip(held(answer.plan), sizes(answer.plan), strict=True):
            assert size <= caps[int(device.removeprefix("n/d").split("-")[0])]
