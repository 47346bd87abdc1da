"""D6–D8: stage order follows the links, cuts follow the bytes, few and uneven microbatches are exact."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from field_bench import FREE, Bench, busy, held, node, own, sizes

ONE_PERCENT = 0.01
MB = 1_000_000


def crossings(plan: dict[str, Any]) -> int:
    nodes = [device.split("/")[0] for device in held(plan)]
    return sum(a != b for a, b in pairwise(nodes))


def test_a_pipeline_crosses_between_hosts_once(bench: Bench) -> None:
    bench.profile([1.0] * 4, boundaries=[100 * MB] * 3)
    bench.cluster(
        node("A", own("gpu", "a1"), own("gpu", "a2")),
        node("B", own("gpu", "b1"), own("gpu", "b2")),
        links={
            "default": {"bandwidth": "1GB/s", "latency": "0s"},
            "pairs": [{"within": name, "bandwidth": "10GB/s"} for name in "AB"],
        },
    )
    bench.job(pipeline={"stages": 4})

    plan = bench.plan().plan

    assert crossings(plan) == 1
    hop = {True: 0.01, False: 0.1}
    hosts = [device.split("/")[0] for device in held(plan)]
    assert math.fsum(hop[a == b] for a, b in pairwise(hosts)) == pytest.approx(0.12, rel=ONE_PERCENT)


def test_the_host_with_the_good_links_stands_in_the_middle(bench: Bench) -> None:
    bench.profile([1.0] * 3, boundaries=[100 * MB] * 2)
    bench.cluster(
        *(node(name, own("gpu", name.lower())) for name in "ABC"),
        links={
            "default": {"bandwidth": "10GB/s", "latency": "0s"},
            "pairs": [{"between": ["A", "C"], "bandwidth": "0.1GB/s"}],
        },
    )
    bench.job(pipeline={"stages": 3})

    assert held(bench.plan().plan)[1] == "B/b"


def test_nodes_of_unlike_size_are_all_used_with_one_crossing(bench: Bench) -> None:
    bench.profile([1.0] * 10, boundaries=[100 * MB] * 9)
    bench.cluster(
        node("big", own("gpu", count=8)),
        node("little", own("gpu", count=2)),
        links={
            "default": {"bandwidth": "1GB/s", "latency": "0s"},
            "pairs": [{"within": name, "bandwidth": "10GB/s"} for name in ("big", "little")],
        },
    )
    bench.job(pipeline={"stages": 10})

    plan = bench.plan().plan

    nodes = [device.split("/")[0] for device in held(plan)]
    assert (nodes.count("big"), nodes.count("little")) == (8, 2)
    assert crossings(plan) == 1


def narrow_places(bench: Bench, bandwidth: Any) -> None:
    bench.profile([0.01] * 6, boundaries=[200 * MB, 10 * MB, 200 * MB, 10 * MB, 200 * MB])
    bench.cluster(node("n", own("gpu", count=2)), links={"default": {"bandwidth": bandwidth, "latency": "0s"}})
    bench.job()


def test_a_slow_link_moves_the_cut_to_a_narrow_place(bench: Bench) -> None:
    narrow_places(bench, "1GB/s")

    plan = bench.plan().plan

    assert sizes(plan) in ([2, 4], [4, 2])
    assert max(busy(plan)) == pytest.approx(0.04, rel=ONE_PERCENT)
    assert plan["predicted"]["bottleneck"]["busy_s"] == pytest.approx(0.04, rel=ONE_PERCENT)


def test_a_fast_link_leaves_the_cut_even(bench: Bench) -> None:
    narrow_places(bench, "100GB/s")

    plan = bench.plan().plan

    assert sizes(plan) == [3, 3]
    assert plan["predicted"]["bottleneck"]["busy_s"] == pytest.approx(0.03, rel=ONE_PERCENT)


def test_bits_and_bytes_give_the_same_plan(bench: Bench) -> None:
    narrow_places(bench, "16GB/s")
    in_bytes = bench.plan().plan
    narrow_places(bench, "128Gbit/s")

    assert bench.plan().plan == in_bytes


@pytest.mark.parametrize("bare", [16, "16"])
def test_a_bare_number_is_refused_with_both_spellings(bench: Bench, bare: Any) -> None:
    narrow_places(bench, bare)

    answer = bench.plan()

    assert answer.code == 2
    assert "16GB/s" in answer.stderr
    assert "16Gbit/s" in answer.stderr
    assert "cluster.yaml" in answer.stderr


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    ("num_stages", "num_microbatches", "step", "bubble"),
    [(4, 2, 15, 0.6), (4, 1, 12, 0.75), (8, 3, 30, 0.7), (4, 8, 33, 0.273), (1, 5, 15, 0.0)],
)
def test_few_microbatches_take_exactly_their_time(
    bench: Bench, schedule: str, num_stages: int, num_microbatches: int, step: float, bubble: float
) -> None:
    bench.profile([3.0] * num_stages)
    bench.cluster(node("n", own("gpu", count=num_stages)))
    bench.job(microbatches=num_microbatches, pipeline={"stages": num_stages, "schedule": schedule})

    predicted = bench.plan().plan["predicted"]

    assert predicted["step_s"] == pytest.approx(step, rel=1e-9)
    assert predicted["bubble_fraction"] == pytest.approx(bubble, abs=1e-3)


MODEL = '''
from collections import OrderedDict

import torch


class Scale(torch.nn.Module):
    """y = weight · x, from weight 1."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


def build():
    return torch.nn.Sequential(OrderedDict(l0=Scale(), l1=Scale()))


class Samples(torch.utils.data.Dataset):
    """With squared error at weight 1 the gradient of sample k (from 1) is k, for either weight."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(1), torch.full((1,), 1 - (index + 1) / 2)


def samples():
    return Samples()
'''


@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_uneven_microbatches_give_the_gradient_of_the_whole_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    pytest.importorskip("torch")
    bench.write(f"graded_{schedule}.py", MODEL)
    monkeypatch.syspath_prepend(str(bench.folder))
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    bench.profile([0.01, 0.01])
    bench.cluster(node("a", own("half", "x", speed=0.5), own("half", "y", speed=0.5)), links={"default": FREE})
    job = bench.job(
        model={"profile": "toy.profile.json", "module": f"graded_{schedule}:build"},
        data={"dataset": f"graded_{schedule}:samples"},
        loss="mse",
        batch={"global": 8, "micro": 3},
        steps=1,
        pipeline={"stages": 2, "schedule": schedule},
        output=str(bench.folder / "toy"),
    )

    answer = bench.ignite(
        "run", str(job), "--cluster", str(bench.folder / "cluster.yaml"),
        "--directory", str(bench.folder / "run"), "-o", "json",
    )  # fmt: skip

    assert answer.code == 0, answer.stdout + answer.stderr
    assert [job["state"] for job in answer.document["jobs"]] == ["finished"]
    [line] = (bench.folder / "toy" / "metrics.jsonl").read_text().splitlines()
    # Both weights have the gradient 4.5, the mean of 1…8 (a mean of means gives 4.83, a sum of means 14.5).
    assert json.loads(line)["grad_norm"] == pytest.approx(4.5 * math.sqrt(2), rel=1e-6)
