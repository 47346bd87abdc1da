"""What groups of devices gain over single ones, and how long it takes to prove the best chain of groups.

Public chains (branches in line) × clusters A–D × memory none and tight, 8 microbatches of 16 samples, 1F1B and GPipe:
the best chain of groups against the best straight pipeline by the same search. Then random chains of 50 layers on
eight unlike devices in two nodes.

Usage: ``python benchmarks/replicated_stages.py [--clusters ABCD] [--chains N] [--write]``. Profiles are looked for
under ``$IGNITE_SHARED`` or ``../shared`` beside the checkout; without them only the random chains are planned.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from dataclasses import replace

from ignite_scheduler.formats.foreign import load_graph_text
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
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.groups import search
from ignite_scheduler.planner.request import Request, requested
from planner_quality import CHAINS, make_cluster, tight_scale
from tables import CHECKOUT, PROFILES, stamp
from yardstick import yardstick

SAMPLES = 16
"""Samples of a microbatch: the profile's own batch, cut into that many."""
MICROBATCHES = 8
RANDOM_CHAINS = 5


def cut_into_samples(profile: Profile) -> Profile:
    """The profile with its one batch counted as :data:`SAMPLES` samples."""
    layers = tuple(
        replace(
            layer,
            output_bytes=layer.output_bytes / SAMPLES,
            activation_bytes=layer.activation_bytes / SAMPLES,
            times={kind: {u * SAMPLES: t for u, t in table.items()} for kind, table in layer.times.items()},
            inputs=tuple(
                replace(edge, bytes=None if edge.bytes is None else edge.bytes / SAMPLES) for edge in layer.inputs
            ),
        )
        for layer in profile.layers
    )
    return replace(profile, layers=layers)


def make_problem(profile: Profile, cluster: Cluster) -> Problem:
    """Eight microbatches of one profile batch each, Adam, any groups."""
    job = Job(
        name="bench",
        model=Reference(profile="public"),
        batch=Batch(total=MICROBATCHES * SAMPLES, micro=SAMPLES),
        steps=1,
        optimizer=Optimizer(name="adam"),
    )
    return Problem(job=job, profile=profile, cluster=cluster, abilities=frozenset({"replicas"}))


def solved(problem: Problem, replicas: int | None) -> tuple[Found, float]:
    """The best chain, and CPU seconds."""
    request = requested(problem)
    assert isinstance(request, Request), request
    before = time.process_time()
    found = search(problem, replace(request, replicas=replicas))
    return found, time.process_time() - before


def random_problem(seed: int) -> Problem:
    """Fifty layers of unlike lengths on eight unlike devices in two nodes: 10 Gbit/s inside, 1 Gbit/s between."""
    source = random.Random(seed)
    layers = []
    for i in range(50):
        seconds = 0.005 + 0.02 * source.random()
        layers.append(
            Layer(
                name=f"l{i}",
                parameter_bytes=4e6 * (0.2 + source.random()),
                output_bytes=1e6 * (1 + 9 * source.random()) / SAMPLES,
                activation_bytes=1e7 / SAMPLES,
                times={"reference": {SAMPLES: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
                inputs=(LayerInput(source=f"l{i - 1}" if i else "input"),),
            )
        )
    nodes = []
    for n in range(2):
        speeds = [round(0.2 + 0.8 * source.random(), 3) for _ in range(4)]
        devices = [
            Device(id=f"n{n}/d{i}", node=f"n{n}", kind="own", speed=speed, memory=math.inf)
            for i, speed in enumerate(speeds)
        ]
        nodes.append(Node(name=f"n{n}", devices=tuple(devices)))
    links = (LinkRule(bandwidth=0.125e9, latency=0.0), LinkRule(bandwidth=1.25e9, latency=0.0, within=True))
    profile = Profile(name=f"random-{seed}", precision="fp32", reference="reference", layers=tuple(layers))
    return make_problem(profile, Cluster(name="8 unlike", nodes=tuple(nodes), links=links))


def row(name: str, problem: Problem, ratios: list[float], unit: float) -> str:
    """One line of the table; the ratio of straight to groups is added to ``ratios``."""
    found, seconds = solved(problem, None)
    straight, _ = solved(problem, 1)
    ratio = straight.value / found.value if straight.best is not None and found.best is not None else math.nan
    if not math.isnan(ratio):
        ratios.append(ratio)
    stages = "" if found.best is None else " + ".join(f"{len(s.devices)}×{len(s.layers)}" for s in found.best.stages)
    cells = [
        name,
        len(problem.profile.layers),
        f"{found.value:.4f}",
        f"{found.bound:.4f}",
        "yes" if found.complete else "no",
        stages,
        f"{ratio:.2f}",
        f"{seconds:.2f}",
        f"{seconds / unit:.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    """Print the tables; with ``--write`` keep them under ``benchmarks/results``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="ABCD")
    parser.add_argument("--chains", type=int, default=len(CHAINS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    solved(random_problem(0), None)  # compile all that is used
    unit = yardstick()
    lines = [
        "| case | layers | step s | bound s | proven | devices × layers | straight ÷ groups | CPU s | yardsticks |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ratios: list[float] = []
    cases = [(f"random {seed}", random_problem(seed)) for seed in range(RANDOM_CHAINS)]
    if PROFILES.is_dir():
        for chain in CHAINS[: options.chains]:
            whole = load_graph_text(PROFILES / chain)
            for name in options.clusters:
                for tight in (False, True):
                    scale = tight_scale(whole, name, MICROBATCHES) if tight else math.inf
                    case = f"{whole.name} {name}{' tight' if tight else ''}"
                    cases.append((case, make_problem(cut_into_samples(whole), make_cluster(name, scale))))
    for case, problem in cases:
        lines.append(row(case, problem, ratios, unit))
        print(lines[-1], flush=True)
    mean = math.exp(statistics.mean(math.log(ratio) for ratio in ratios))
    lines.append(f"\nStraight ÷ groups: geometric mean {mean:.3f}, at most {max(ratios):.3f} over {len(ratios)} cases.")
    print(lines[-1])
    if options.write:
        target = CHECKOUT / "benchmarks" / "results" / "replicated_stages.md"
        target.write_text("\n".join(["# Groups of devices as stages", "", stamp(), "", *lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
