"""Plans of a model that nobody measured: the search's tables are the cost model's roofline, at the job's precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    LinkRule,
    Node,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem, exhaustive, plan

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def unmeasured(draw: st.DrawFn) -> Problem:
    """A chain with FLOPs and no times, on devices with peaks and no speed."""
    figures = st.integers(1, 1000)
    layers = tuple(
        Layer(
            name=f"l{index}",
            parameter_bytes=draw(figures) * 1e3,
            output_bytes=draw(figures) * 1e3,
            activation_bytes=draw(figures) * 1e3,
            forward_flops=draw(figures) * 1e6,
            times={},
            inputs=(LayerInput(source=f"l{index - 1}" if index else "input"),),
        )
        for index in range(draw(st.integers(2, 5)))
    )
    devices = tuple(
        Device(
            id=f"n/d{index}",
            node="n",
            kind=draw(st.sampled_from(["card", "chip"])),
            memory=1e12,
            dtypes=frozenset({"fp32", "bf16"}),
            peak_flops=(("bf16", draw(figures) * 1e9), ("fp32", draw(figures) * 1e9)),
            memory_bandwidth=draw(figures) * 1e8,
            achievable_flops=draw(st.sampled_from([0.5, 1.0])),
            launch_overhead=draw(st.sampled_from([0.0, 1e-4])),
        )
        for index in range(draw(st.integers(1, 3)))
    )
    return Problem(
        job=Job(
            name="j",
            model=Reference(profile="p"),
            batch=Batch(total=draw(st.integers(1, 6)), micro=None),
            steps=1,
            precision=draw(st.sampled_from(["fp32", "bf16"])),
        ),
        profile=Profile(name="p", precision="fp32", reference=None, layers=layers),
        cluster=Cluster(
            name="c",
            nodes=(Node(name="n", devices=devices),),
            links=(LinkRule(bandwidth=draw(figures) * 1e7, latency=1e-5),),
        ),
    )


@FEW
@given(problem=unmeasured())
def test_the_plan_is_the_best_of_all_and_names_its_source(problem: Problem) -> None:
    found, reference = plan(problem), exhaustive(problem)

    assert not isinstance(found, Infeasible)
    assert not isinstance(reference, Infeasible)
    assert found.predicted.step == pytest.approx(reference.predicted.step, rel=1e-9)
    assert found.bound.step <= found.predicted.step
    assert f"of its {problem.job.precision} peak" in str(found.resolved["times"])


@FEW
@given(problem=unmeasured(), factor=st.sampled_from([2.0, 16.0]))
def test_a_launch_that_takes_longer_never_gives_a_faster_plan(problem: Problem, factor: float) -> None:
    def slower(device: Device) -> Device:
        return replace(device, launch_overhead=device.launch_overhead * factor + 1e-4)

    nodes = tuple(replace(n, devices=tuple(map(slower, n.devices))) for n in problem.cluster.nodes)
    first = plan(problem)
    second = plan(replace(problem, cluster=replace(problem.cluster, nodes=nodes)))

    assert not isinstance(first, Infeasible)
    assert not isinstance(second, Infeasible)
    assert second.predicted.step >= first.predicted.step * (1 - 1e-12)
