"""Small random planning problems, and a simulation of a plan that shares no code with the package's timeline."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from ignite_scheduler.model import (
    MODEL_INPUT,
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    MemoryFactors,
    Node,
    Optimizer,
    PipelineChoice,
    Plan,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem

WEIGHTS_ONLY = Optimizer(name="sgd", memory=MemoryFactors(weights=1, gradients=0, optimizer=0))


def chain(
    times: list[float],
    *,
    parameters: list[float] | None = None,
    outputs: list[float] | None = None,
    activations: float = 0.0,
) -> Profile:
    """A chain of layers; forward : backward = 1 : 2; one measured size, 1 sample, on kind ``ref``."""
    return Profile(
        name="chain",
        precision="fp32",
        reference="ref",
        layers=tuple(
            Layer(
                name=f"l{i}",
                parameter_bytes=0.0 if parameters is None else parameters[i],
                output_bytes=0.0 if outputs is None else outputs[i],
                activation_bytes=activations,
                times={"ref": {1: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
                inputs=(LayerInput(source=f"l{i - 1}" if i else MODEL_INPUT),),
            )
            for i, seconds in enumerate(times)
        ),
    )


def devices_in_one_node(
    speeds: list[float],
    *,
    memory: list[float] | None = None,
    prices: list[float] | None = None,
    bandwidth: float = 1e30,
    **figures: Any,
) -> Cluster:
    """Devices ``n/d0``, ``n/d1``, … with one link figure between all of them."""
    devices = tuple(
        Device(
            id=f"n/d{i}",
            node="n",
            kind="own",
            speed=speed,
            memory=math.inf if memory is None else memory[i],
            price=None if prices is None else prices[i],
            **figures,
        )
        for i, speed in enumerate(speeds)
    )
    return Cluster(
        name="small", nodes=(Node(name="n", devices=devices),), links=(LinkRule(bandwidth=bandwidth, latency=0.0),)
    )


def job(*, total: int = 64, micro: int | None = 1, **terms: Any) -> Job:
    """A job of ``total`` samples a step."""
    terms = {"optimizer": WEIGHTS_ONLY, "steps": 10} | terms
    return Job(name="job", model=Reference(profile="chain"), batch=Batch(total=total, micro=micro), **terms)


@st.composite
def profiles(draw: st.DrawFn, most_layers: int, *, skips: bool = False) -> Profile:
    """A profile of up to ``most_layers`` layers with affine microbatch times, sometimes with skip edges or tied
    weights.
    """
    count = draw(st.integers(1, most_layers))
    layers = []
    carried = 0.0  # what a layer carries counts as the next one's
    for i in range(count):
        forward, backward = draw(st.integers(0, 6)), draw(st.integers(0, 6))
        slope = draw(st.sampled_from([0.25, 0.5, 1.0]))
        table = {1: LayerTimes(forward=float(forward), backward=float(backward))}
        if draw(st.booleans()):
            table[4] = LayerTimes(forward=forward * (1 + 3 * slope), backward=backward * (1 + 3 * slope))
        inputs = [LayerInput(source=f"l{i - 1}" if i else MODEL_INPUT)]
        if skips and i >= 2 and draw(st.booleans()):
            share = draw(st.sampled_from([None, 3.0]))
            inputs.append(LayerInput(source=f"l{draw(st.integers(0, i - 2))}", bytes=share))
        layers.append(
            Layer(
                name=f"l{i}",
                parameter_bytes=float(draw(st.integers(0, 4))),
                output_bytes=float(draw(st.integers(0, 6))),
                activation_bytes=draw(st.integers(0, 2)) + carried,
                carried_bytes=(carried := float(draw(st.integers(0, 1)))),
                transient_bytes=float(draw(st.integers(0, 3))),
                workspace_bytes=float(draw(st.integers(0, 1))),
                times={"ref": table},
                inputs=tuple(inputs),
                update={"sgd": float(draw(st.integers(0, 3)))} if skips else {},
            )
        )
    tied: tuple[tuple[str, ...], ...] = ()
    if skips and count >= 2 and draw(st.booleans()):
        tied = (("l0", f"l{count - 1}"),)
    overhead = draw(st.sampled_from([0.0, 0.5])) if skips else 0.0
    return Profile(
        name="random", precision="fp32", reference="ref", layers=tuple(layers), tied=tied, action_overhead=overhead
    )


@st.composite
def clusters(draw: st.DrawFn, most_devices: int) -> Cluster:
    """Up to ``most_devices`` devices with few distinct figures, so that equal ones occur, and links that may be
    missing.
    """
    count = draw(st.integers(1, most_devices))
    tight = draw(st.booleans())
    devices = []
    for i in range(count):
        memory = float(draw(st.sampled_from([4, 9, 16, 30]))) if tight else math.inf
        devices.append(
            Device(
                id=f"n{i % 2}/d{i}",
                node=f"n{i % 2}",
                kind="own",
                speed=draw(st.sampled_from([1.0, 0.5, 0.25])),
                memory=memory,
                price=float(draw(st.sampled_from([1, 2]))),
                busy_power=float(draw(st.sampled_from([3, 5]))),
                idle_power=1.0,
            )
        )
    links = [
        LinkRule(bandwidth=float(draw(st.sampled_from([1, 2, 1000]))), latency=draw(st.sampled_from([0.0, 0.25]))),
        LinkRule(bandwidth=float(draw(st.sampled_from([2, 1000]))), latency=0.0, within=True),
    ]
    if draw(st.booleans()) and count > 1:
        source, target = draw(st.permutations([device.id for device in devices]))[:2]
        links.append(
            LinkRule(
                bandwidth=1.0,
                latency=draw(st.sampled_from([0.0, 2.0])),
                sources=frozenset([source]),
                targets=frozenset([target]),
                both_ways=draw(st.booleans()),
            )
        )
    if draw(st.integers(0, 4)) == 0:
        del links[0]  # no links between nodes
    nodes = tuple(
        Node(name=f"n{k}", devices=tuple(device for device in devices if device.node == f"n{k}"))
        for k in range(min(2, count))
    )
    return Cluster(name="random", nodes=nodes, links=tuple(links))


@st.composite
def problems(
    draw: st.DrawFn, *, most_layers: int, most_devices: int, skips: bool = False, objective: str = "time"
) -> Problem:
    """A small problem; more devices come with fewer layers, so that looking at every choice stays quick."""
    cluster = draw(clusters(most_devices))
    fewer = 2 if len(cluster.devices) == 4 else 0
    profile = draw(profiles(most_layers - fewer, skips=skips))
    total = draw(st.integers(1, 5))
    micro = draw(st.sampled_from([None, 1, 2, 2, 3])) if len(cluster.devices) < 4 else draw(st.sampled_from([1, 2]))
    pipeline = PipelineChoice(schedule=draw(st.sampled_from(["auto", "1f1b", "gpipe"])))
    return Problem(
        job=job(total=total, micro=micro, pipeline=pipeline, optimizer=Optimizer(name="sgd")),
        profile=profile,
        cluster=cluster,
        objective=objective,  # type: ignore[arg-type]
    )


def simulated_step(problem: Problem, plan: Plan) -> float:  # noqa: PLR0915
    """Step time of a plan of a profile without tied weights, updates and overhead, by advancing a clock over all
    resources.

    Every stage and every direction of every link is a resource with a queue of jobs in their order; a job may start
    when its predecessor and what it waits for are done.
    """
    profile, cluster = problem.profile, problem.cluster
    names = [layer.name for layer in profile.layers]
    devices = [cluster.device(stage.devices[0].device) for stage in plan.stages]
    stage_of = {name: s for s, stage in enumerate(plan.stages) for name in stage.layers}
    assert [name for stage in plan.stages for name in stage.layers] == names
    num_stages, sizes = len(plan.stages), plan.microbatches
    count = len(sizes)

    def seconds(s: int, k: int, part: str) -> float:
        total = 0.0
        for layer in profile.layers:
            if stage_of[layer.name] == s:
                table = layer.times["ref"]
                points = sorted(table)
                low = getattr(table[points[0]], part)
                if len(points) == 1:
                    total += low * sizes[k] / points[0]
                else:
                    high = getattr(table[points[-1]], part)
                    total += low + (high - low) * (sizes[k] - points[0]) / (points[-1] - points[0])
        return total / (devices[s].speed or 1.0)

    def crossing(s: int) -> float:
        moved = {}
        for layer in profile.layers:
            for edge in layer.inputs:
                if edge.source == MODEL_INPUT:
                    continue
                made, read = stage_of[edge.source], stage_of[layer.name]
                if made <= s < read:
                    size = profile.layers[names.index(edge.source)].output_bytes if edge.bytes is None else edge.bytes
                    key = (edge.source, read)
                    moved[key] = max(moved.get(key, 0.0), size)
        return sum(moved.values())

    queues: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for s in range(num_stages):
        ahead = count if plan.schedule == "gpipe" else min(count, num_stages - s)
        work, done_f, done_b = [], 0, 0
        while done_b < count:
            if done_f < count and done_f - done_b < ahead:
                work.append(("F", s, done_f))
                done_f += 1
            else:
                work.append(("B", s, done_b))
                done_b += 1
        queues["stage", s] = work
        if s + 1 < num_stages:
            queues["there", s] = [("SF", s, k) for k in range(count)]
            queues["back", s] = [("SB", s, k) for k in range(count)]

    def waits_for(task: tuple[str, int, int]) -> tuple[str, int, int] | None:
        kind, s, k = task
        if kind == "F":
            return ("SF", s - 1, k) if s > 0 else None
        if kind == "B":
            return ("SB", s, k) if s + 1 < num_stages else None
        return ("F", s, k) if kind == "SF" else ("B", s + 1, k)

    def length(task: tuple[str, int, int]) -> float:
        kind, s, k = task
        if kind in ("F", "B"):
            return seconds(s, k, "forward" if kind == "F" else "backward")
        a, b = (s, s + 1) if kind == "SF" else (s + 1, s)
        link = cluster.link(devices[a], devices[b])
        assert link is not None
        return link.latency + crossing(s) * sizes[k] / link.bandwidth

    ends: dict[tuple[str, int, int], float] = {}
    free_at = dict.fromkeys(queues, 0.0)
    while any(queues.values()):
        progressed = False
        for resource, queue in queues.items():
            while queue:
                before = waits_for(queue[0])
                if before is not None and before not in ends:
                    break
                start = max(free_at[resource], 0.0 if before is None else ends[before])
                free_at[resource] = ends[queue[0]] = start + length(queue[0])
                queue.pop(0)
                progressed = True
        assert progressed, "the plan can never finish"
    return max(end for (kind, _, _), end in ends.items() if kind in ("F", "B"))
