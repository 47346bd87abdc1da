"""Random choices of every kind for small jobs.

All figures are small whole numbers, and speeds and bandwidths powers of two, so that what is worked out is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.model import (
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
    Profile,
    Reference,
)

FACTORS = MemoryFactors(weights=1, gradients=2, optimizer=12)  # 12: whole after division by 1, 2, 3 and 4 replicas
NUM_DEVICES = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job on a cluster with one choice for it."""

    job: Job
    profile: Profile
    cluster: Cluster
    assignment: Assignment

    @property
    def parts(self) -> tuple[Job, Profile, Cluster, Assignment]:
        """Arguments of the package's functions."""
        return self.job, self.profile, self.cluster, self.assignment


def job(total: int, **more: object) -> Job:
    """A job with ``total`` samples a step."""
    given = {"name": "j", "model": Reference(profile="p"), "batch": Batch(total=total), "steps": 4}
    return Job(**(given | {"optimizer": Optimizer(name="sgd", memory=FACTORS)} | more))


def toy_layer(name: str, sources: Sequence[str], *, forward: float = 1, backward: float = 2, **figures: float) -> Layer:
    """A layer whose times are proportional to the number of samples; bytes are 0 unless given."""
    known = {"parameter_bytes": 0.0, "output_bytes": 0.0, "activation_bytes": 0.0}
    return Layer(
        name=name,
        times={"ref": {1: LayerTimes(forward=forward, backward=backward)}},
        inputs=tuple(LayerInput(source=source) for source in sources or ("input",)),
        update={"sgd": figures.pop("update", 0.0)},
        **(known | figures),
    )


def toy_profile(*layers: Layer, tied: tuple[tuple[str, ...], ...] = (), overhead: float = 0.0) -> Profile:
    """A profile with the reference kind ``ref``."""
    return Profile(name="toy", precision="fp32", reference="ref", layers=layers, tied=tied, action_overhead=overhead)


def toy_cluster(
    speeds: Sequence[float], *, bandwidth: float = 1.0, latency: float = 0.0, hosts: Sequence[float] = (), **more: float
) -> Cluster:
    """Devices ``n0/d0``, ``n1/d1``, … each in a node of its own."""
    devices = [
        Device(
            id=f"n{i}/d{i}",
            node=f"n{i}",
            kind="own",
            memory=1e9,
            speed=speed,
            host_bandwidth=hosts[i] if hosts else None,
            **more,
        )
        for i, speed in enumerate(speeds)
    ]
    return Cluster(
        name="c",
        nodes=tuple(Node(name=device.node, devices=(device,)) for device in devices),
        links=(LinkRule(bandwidth=bandwidth, latency=latency),),
    )


# --- drawing --------------------------------------------------------------------------------------------------------

whole = st.integers(0, 9).map(float)


@st.composite
def profiles(draw: st.DrawFn, *, branching: bool = True, most: int = 6) -> Profile:
    layers = []
    for index in range(draw(st.integers(3 if branching else 1, most))):
        earlier = [f"l{i}" for i in range(index)]
        sources = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=2)) if earlier else []
        if not branching:
            sources = [*earlier[-1:], *sources[:1]]
        layers.append(
            toy_layer(
                f"l{index}",
                list(dict.fromkeys(sources)),
                forward=draw(whole),
                backward=draw(whole),
                parameter_bytes=draw(whole),
                output_bytes=draw(whole),
                activation_bytes=draw(whole),
                workspace_bytes=draw(whole),
                update=draw(whole),
            )
        )
    tied = ((layers[0].name, layers[-1].name),) if len(layers) > 1 and draw(st.booleans()) else ()
    return toy_profile(*layers, tied=tied, overhead=draw(st.sampled_from([0.0, 0.5])))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    powers = st.sampled_from([0.25, 0.5, 1.0, 2.0])
    several = st.lists(powers, min_size=NUM_DEVICES, max_size=NUM_DEVICES)
    return toy_cluster(draw(several), bandwidth=draw(powers), latency=draw(whole), hosts=draw(several))


@st.composite
def compositions(draw: st.DrawFn, total: int, parts: int) -> tuple[int, ...]:
    """``parts`` whole numbers ≥ 1 with that sum."""
    cuts = sorted(draw(st.sets(st.integers(1, total - 1), min_size=parts - 1, max_size=parts - 1))) if parts > 1 else []
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))


@st.composite
def stage_choices(
    draw: st.DrawFn, layers: tuple[int, ...], devices: list[str], samples: int, inputs: tuple[int, ...] | None = None
) -> StageChoice:
    """A stage with these layers on one or more of the ``devices``, which it takes from the list."""
    count = draw(st.integers(1, min(3, len(devices), samples)))
    segments = []
    if draw(st.booleans()):
        edges = sorted(draw(st.lists(st.integers(0, len(layers)), unique=True, max_size=4)))
        segments = [(layers[a], layers[b - 1] + 1) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    return StageChoice(
        layers=layers,
        devices=tuple(devices.pop(0) for _ in range(count)),
        samples=draw(compositions(samples, count)),
        inputs=inputs,
        recompute=tuple(segments),
        offload=draw(st.booleans()),
        shard=draw(st.booleans()),
    )


@st.composite
def chains(draw: st.DrawFn, profile: Profile, devices: list[str], samples: int, first: int = 0) -> list[StageChoice]:
    """A chain over the whole profile; ``first`` > 0 numbers its stages from there, as a further virtual worker."""
    num_layers = len(profile.layers)
    num_stages = draw(st.integers(1, min(num_layers, 3, len(devices))))
    bounds = (
        [0, *sorted(draw(st.sets(st.integers(1, num_layers - 1), min_size=num_stages - 1, max_size=num_stages - 1)))]
        if num_layers > 1
        else [0]
    )
    stages = []
    for index, (a, b) in enumerate(zip(bounds, [*bounds[1:], num_layers], strict=True)):
        inputs = None if not first else ((first + index - 1,) if index else ())
        left = len(bounds) - index - 1  # each later stage needs a device
        usable = devices[: len(devices) - left]
        stage = draw(stage_choices(tuple(range(a, b)), usable, samples, inputs))
        del devices[: len(stage.devices)]
        stages.append(stage)
    return stages


@st.composite
def cases(draw: st.DrawFn, *, kinds: Sequence[str] = ("chain", "workers", "graph")) -> Case:
    """A choice of one of the kinds: a chain of groups, virtual workers, or a graph of stages."""
    kind = draw(st.sampled_from(list(kinds)))
    profile = draw(profiles(branching=kind == "graph"))
    cluster = draw(clusters())
    devices = draw(st.permutations([device.id for device in cluster.devices]))
    samples = draw(st.integers(2 if kind == "workers" else 1, 6))
    total = samples * draw(st.integers(1, 4)) + draw(st.integers(0, samples - 1))
    if kind == "chain":
        stages = draw(chains(profile, devices, samples))
    elif kind == "workers":
        parts = draw(compositions(samples, 2))
        half = devices[:4]
        stages = draw(chains(profile, half, parts[0]))
        rest = devices[4:]
        stages += draw(chains(profile, rest, parts[1], first=len(stages)))
    else:
        stages = draw(graphs(profile, devices, samples))
    schedule = draw(st.sampled_from(["1f1b", "gpipe"]))
    sizes = microbatch_sizes(total, samples)
    return Case(
        job=job(total),
        profile=profile,
        cluster=cluster,
        assignment=Assignment(stages=tuple(stages), microbatches=sizes, schedule=schedule),
    )


@st.composite
def graphs(draw: st.DrawFn, profile: Profile, devices: list[str], samples: int) -> list[StageChoice]:
    """Stages of any layers such that they feed each other in no circle, joined to one worker by extra edges."""
    num_layers = len(profile.layers)
    stage_of = [draw(st.integers(0, 3)) for _ in range(num_layers)]
    reads = {
        (index, int(edge.source[1:]))
        for index, layer in enumerate(profile.layers)
        for edge in layer.inputs
        if edge.source != "input"
    }
    for index, source in sorted(reads):  # stages rise along edges: no circles
        stage_of[index] = max(stage_of[index], stage_of[source])
    used = sorted(set(stage_of))
    number = {stage: position for position, stage in enumerate(used)}
    fed = defaultdict(set)
    for index, source in reads:
        if stage_of[index] != stage_of[source]:
            fed[number[stage_of[index]]].add(number[stage_of[source]])
    for stage in range(1, len(used)):  # something joins it to the stages before
        if not fed[stage] or draw(st.booleans()):
            fed[stage].add(draw(st.integers(0, stage - 1)))
    stages = []
    for stage, original in enumerate(used):
        layers = tuple(index for index in range(num_layers) if stage_of[index] == original)
        usable = devices[: max(1, len(devices) - (len(used) - stage - 1))]
        choice = draw(stage_choices(layers, usable, samples, tuple(sorted(fed[stage]))))
        del devices[: len(choice.devices)]
        stages.append(choice)
    return stages
