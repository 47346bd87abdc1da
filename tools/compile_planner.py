"""Compile the planner's searches once, so that no plan has to wait for that: one small job of each kind is planned.

Usage: ``python tools/compile_planner.py``; ``make setup`` does it. What is compiled already is loaded in no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Optimizer,
    PipelineChoice,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.problem import ABILITIES

ACTIONS = PipelineChoice(recompute="auto", shard="auto", offload="auto")


def make_profile(num_layers: int, *, branches: bool = False) -> Profile:
    """A chain of unlike layers; with ``branches`` every third layer reads the one three before it instead."""
    layers = []
    for i in range(num_layers):
        source = i - 3 if branches and i % 3 == 0 and i >= 3 else i - 1
        seconds = 0.010 + 0.007 * (i * 5 % 7)
        inputs = [LayerInput(source=f"l{source}" if i else "input")]
        if branches and i == num_layers - 1:
            inputs += [LayerInput(source=f"l{j}") for j in range(2, i - 1, 3)]
        layers.append(
            Layer(
                name=f"l{i}",
                parameter_bytes=4e6 * (1 + i % 3),
                output_bytes=1e6,
                activation_bytes=4e6,
                times={"own": {1: LayerTimes(forward=seconds, backward=2 * seconds)}},
                inputs=tuple(inputs),
            )
        )
    return Profile(name="warm", precision="fp32", reference="own", layers=tuple(layers))


def make_cluster(num_devices: int, memory: float = math.inf) -> Cluster:
    """Unlike devices on two nodes."""
    nodes = [
        Node(
            name=f"n{n}",
            devices=tuple(
                Device(
                    id=f"n{n}/d{i}", node=f"n{n}", kind="box", speed=1.0 - 0.6 * i / num_devices, memory=memory,
                    host_bandwidth=1e10,
                )
                for i in range(n, num_devices, 2)
            ),
        )
        for n in range(2)
    ]  # fmt: skip
    links = (LinkRule(bandwidth=1.25e8, latency=1e-5), LinkRule(bandwidth=1.25e9, latency=1e-5, within=True))
    return Cluster(name="warm", nodes=tuple(nodes), links=links)


def make_problem(profile: Profile, cluster: Cluster, pipeline: PipelineChoice, abilities: frozenset[str]) -> Problem:
    """Eight samples a step in microbatches of two."""
    job = Job(
        name="warm",
        model=Reference(profile="warm"),
        batch=Batch(total=8, micro=2),
        steps=1,
        optimizer=Optimizer(name="adam"),
        pipeline=pipeline,
    )
    return Problem(job=job, profile=profile, cluster=cluster, abilities=abilities)


def kinds() -> Iterator[tuple[str, Problem]]:
    """A small job for each kind of search."""
    free, nothing = PipelineChoice(), frozenset[str]()
    yield "chains of single devices", make_problem(make_profile(8), make_cluster(4), free, nothing)
    hard = make_problem(make_profile(40), make_cluster(8), free, nothing)
    sixteen = replace(hard.job, batch=Batch(total=16, micro=2))
    yield "the same, hard to prove", replace(hard, job=sixteen, work=300_000)
    yield "groups of devices", make_problem(make_profile(8), make_cluster(4), free, frozenset({"replicas"}))
    tight = make_cluster(4, 1.2e8)
    yield "groups under tight memory", make_problem(make_profile(8), tight, ACTIONS, ABILITIES - {"graph", "workers"})
    branching = make_profile(10, branches=True)
    yield "graphs of stages", make_problem(branching, make_cluster(4), free, frozenset({"graph"}))
    yield "virtual workers", make_problem(make_profile(8), make_cluster(4), free, ABILITIES)
    yield "wide clusters", make_problem(make_profile(12), make_cluster(20), free, ABILITIES)


def main() -> None:
    """Plan one job of each kind and say how long that took."""
    for name, problem in kinds():
        before = time.perf_counter()
        print(f"compiling the planner's search, once: {name} …", end=" ", flush=True)
        plan(problem)
        print(f"{time.perf_counter() - before:.1f} s", flush=True)


if __name__ == "__main__":
    main()
