"""The fixed large instances: transformer-like models on mixed clusters of catalogue kinds, seeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ignite_scheduler.formats.catalogue import catalogue, default_reserve
from ignite_scheduler.model import (
    MODEL_INPUT,
    Batch,
    Cluster,
    Device,
    Job,
    Layer,
    LayerInput,
    LinkRule,
    Node,
    Optimizer,
    PipelineChoice,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem

SEED: Final = 20
NODE_SIZE: Final = 8
WITHIN: Final = {"A100-SXM4-80GB": 250e9, "A100-SXM4-40GB": 250e9, "V100-SXM2-32GB": 120e9, "H100-SXM5-80GB": 400e9}
"""Bytes/s between two devices of a node with NVLink; other nodes have PCIe."""
PCIE: Final = 20e9
NETWORK: Final = 100e9 / 8
"""100 Gbit/s between nodes."""
SEQUENCE: Final = 2048
ABILITIES: Final = frozenset({"replicas", "recompute", "shard", "offload"})
"""What the runner of these plans is taken to be able to do."""

FOUR_KINDS: Final = ("A100-SXM4-40GB", "V100-SXM2-32GB", "A10", "T4")
EIGHT_KINDS: Final = (
    "A100-SXM4-80GB",
    "A100-SXM4-40GB",
    "V100-SXM2-32GB",
    "V100-PCIE-16GB",
    "A30",
    "A10",
    "RTX-3090",
    "T4",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance: number of layers and devices, kinds in turn over nodes of eight, samples of a step."""

    layers: int
    devices: int
    kinds: tuple[str, ...]
    hidden: int
    batch: int

    @property
    def name(self) -> str:
        """Short name for tables."""
        return f"{self.layers} layers × {self.devices} devices of {len(self.kinds)} kinds"


HALF: Final = Case(layers=50, devices=32, kinds=FOUR_KINDS, hidden=2560, batch=256)
SMALL: Final = Case(layers=100, devices=64, kinds=FOUR_KINDS, hidden=2560, batch=256)
HALF_LARGE: Final = Case(layers=100, devices=512, kinds=EIGHT_KINDS, hidden=4096, batch=2048)
LARGE: Final = Case(layers=200, devices=1024, kinds=EIGHT_KINDS, hidden=4096, batch=2048)
DOUBLE_LARGE: Final = Case(layers=400, devices=2048, kinds=EIGHT_KINDS, hidden=4096, batch=2048)


def catalogue_device(kind: str, node: str, index: int) -> Device:
    """A device of a catalogue kind, with the memory that a cluster file without figures gives it."""
    found = catalogue()[kind]
    assert found.memory is not None
    return Device(
        id=f"{node}/{index}",
        node=node,
        kind=kind,
        memory=found.memory - default_reserve(found.memory),
        dtypes=found.dtypes,
        peak_flops=found.peak_flops,
        memory_bandwidth=found.memory_bandwidth,
        achievable_flops=found.achievable_flops,
        achievable_bandwidth=found.achievable_bandwidth,
        launch_overhead=found.launch_overhead,
    )


def mixed_cluster(kinds: Sequence[str], num_devices: int) -> Cluster:
    """Nodes of eight devices of one kind, the kinds in turn; fast links inside, 100 Gbit/s between."""
    nodes = []
    rules = [
        LinkRule(bandwidth=NETWORK, latency=20e-6),
        LinkRule(bandwidth=PCIE, latency=10e-6, within=True),
    ]
    for n in range(num_devices // NODE_SIZE):
        kind, name = kinds[n % len(kinds)], f"n{n:03}"
        nodes.append(Node(name=name, devices=tuple(catalogue_device(kind, name, i) for i in range(NODE_SIZE))))
    for kind in kinds:
        if kind in WITHIN:
            names = frozenset(node.name for node in nodes if node.devices[0].kind == kind)
            rules.append(LinkRule(bandwidth=WITHIN[kind], latency=5e-6, sources=names, targets=names, within=True))
    return Cluster(name=f"mixed-{num_devices}", nodes=tuple(nodes), links=tuple(rules))


def transformer_profile(num_layers: int, hidden: int, seed: int = SEED) -> Profile:
    """Embedding, attention and feed-forward parts in turn, head; FLOPs up to 15 % off the formula, seeded."""
    source = np.random.default_rng(seed)
    vocabulary, tokens = 50_000, SEQUENCE
    stream = 2.0 * tokens * hidden
    layers: list[Layer] = []
    for index in range(num_layers):
        jitter = float(source.uniform(0.85, 1.15))
        if index in (0, num_layers - 1):
            parameters = vocabulary * hidden
            flops = 0.0 if index == 0 else 2.0 * tokens * parameters
            kept = stream
        elif index % 2:
            parameters = 4 * hidden * hidden
            flops = 2.0 * tokens * parameters + 4.0 * tokens * tokens * hidden
            kept = 11.0 / 2 * stream
        else:
            parameters = 8 * hidden * hidden
            flops = 2.0 * tokens * parameters
            kept = 19.0 / 2 * stream
        layers.append(
            Layer(
                name=f"l{index}",
                parameter_bytes=2.0 * parameters,
                output_bytes=stream,
                activation_bytes=kept,
                forward_flops=flops * jitter,
                backward_flops=2.0 * flops * jitter,
                times={},
                inputs=(LayerInput(source=f"l{index - 1}" if index else MODEL_INPUT),),
            )
        )
    return Profile(name=f"transformer-{num_layers}", precision="fp16", reference=None, layers=tuple(layers))


def make_problem(case: Case, replicas: int | Literal["auto"], work: int | None = None) -> Problem:
    """The instance with groups (``auto``) or one device a stage (1)."""
    job = Job(
        name="bench",
        model=Reference(profile="made"),
        batch=Batch(total=case.batch),
        steps=1,
        optimizer=Optimizer(name="adam"),
        precision="fp16",
        pipeline=PipelineChoice(replicas=replicas),
    )
    cluster = mixed_cluster(case.kinds, case.devices)
    profile = transformer_profile(case.layers, case.hidden)
    problem = Problem(job=job, profile=profile, cluster=cluster, abilities=ABILITIES)
    return problem if work is None else replace(problem, work=work)
