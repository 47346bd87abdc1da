"""Pareto sets of one job: the islands' set against the exact one, and the catalogue of a job on a wide cluster.

Every public chain × clusters A–D × memory none and tight × 8 microbatches, devices with prices and powers by their
speed. *Share* is the hypervolume of the islands' set ÷ that of the exact set; the reference point lies a tenth of the
exact set's extent beyond its worst values (a tenth of the value where it has no extent), so that a set of one point
counts too. Cases whose exact search does not end within its budget are told and not counted.

The catalogue is made for 8 and 16 nodes of 8 devices of four kinds and a chain of 100 layers with Adam, from nothing
and again with one node less and one more.

Usage: ``python benchmarks/pareto.py [--clusters ABCD] [--objectives time,money,devices] [--write]``.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from ignite_scheduler.formats.foreign import load_graph_text
from ignite_scheduler.model import Cluster, Device, Layer, LayerInput, LayerTimes, LinkRule, Node, Profile
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.build import assignment_of
from ignite_scheduler.planner.catalogue import Catalogue, catalogued
from ignite_scheduler.planner.pareto.exact import Front, exact_front
from ignite_scheduler.planner.pareto.front import Values, hypervolume
from ignite_scheduler.planner.pareto.islands import islands_front
from ignite_scheduler.planner.pareto.objectives import CRITERIA, Criterion, figures, losses
from ignite_scheduler.planner.pareto.search import ISLANDS_WORK
from ignite_scheduler.planner.setup import Setup, prepare
from planner_quality import CHAINS, make_cluster, make_problem, tight_scale
from tables import CHECKOUT, PROFILES, stamp
from yardstick import yardstick

MICROBATCHES = 8
EXACT_WORK = 60_000_000
MARGIN = 0.1


def priced(cluster: Cluster) -> Cluster:
    """The cluster with prices and powers: a fast device costs more for what it does, and takes less energy for it."""

    def one(device: Device) -> Device:
        speed = device.speed or 1.0
        return replace(
            device,
            price=(0.5 + 3 * speed**1.3) / 3600,
            busy_power=60 + 240 * speed**0.8,
            idle_power=20 + 30 * speed,
        )

    nodes = tuple(replace(node, devices=tuple(one(device) for device in node.devices)) for node in cluster.nodes)
    return replace(cluster, nodes=nodes)


def values_of(setup: Setup, front: Front, criteria: Sequence[Criterion]) -> list[Values]:
    """The points of a front."""
    return [losses(figures(setup.problem, assignment_of(setup, *one)), criteria) for one in front.chosen]


def share_of(found: list[Values], exact: list[Values]) -> float:
    """Hypervolume of the one set over that of the other."""
    corner = []
    for column in zip(*exact, strict=True):
        low, high = min(column), max(column)
        corner.append(high + MARGIN * ((high - low) or abs(high) or 1.0))
    reference = tuple(corner)
    return hypervolume(found, reference) / hypervolume(exact, reference)


def sets_table(clusters: str, criteria: tuple[Criterion, ...]) -> Iterator[str]:
    """A row for each case, then what they come to."""
    unit = yardstick()
    yield f"Objectives: {', '.join(criteria)}. Yardstick: {unit:.4f} CPU s."
    yield ""
    yield "| chain | layers | cluster | memory | exact points | CPU s | islands' points | CPU s | share |"
    yield "|---|---|---|---|---|---|---|---|---|"
    shares: list[float] = []
    open_cases = 0
    for path in CHAINS:
        profile = load_graph_text(PROFILES / path)
        for name in clusters:
            for tight in (False, True):
                scale = tight_scale(profile, name, MICROBATCHES) if tight else math.inf
                problem = make_problem(profile, priced(make_cluster(name, scale)), MICROBATCHES)
                setup = prepare(problem)
                assert isinstance(setup, Setup)
                begin = time.process_time()
                exact = exact_front(setup, criteria, EXACT_WORK)
                middle = time.process_time()
                found = islands_front(setup, criteria, ISLANDS_WORK, np.random.default_rng(0))
                end = time.process_time()
                text, points = "exact set unknown", len(exact.chosen)
                if exact.complete:
                    shares.append(share_of(values_of(setup, found, criteria), values_of(setup, exact, criteria)))
                    text = f"{100 * shares[-1]:.2f} %"
                open_cases += not exact.complete
                yield (
                    f"| {profile.name} | {len(profile.layers)} | {name} | {'tight' if tight else 'none'} "
                    f"| {points} | {middle - begin:.2f} | {len(found.chosen)} | {end - middle:.2f} | {text} |"
                )
    yield ""
    yield (
        f"- share of the hypervolume: mean {100 * statistics.mean(shares):.2f} %, least {100 * min(shares):.2f} %, "
        f"{sum(share < 0.99 for share in shares)} of {len(shares)} below 99 %; exact set unknown: {open_cases}"
    )


def lab(nodes: int) -> Cluster:
    """Nodes of 8 equal devices, four kinds in turn; 200 GB/s within a node, 100 Gbit/s between."""
    made = []
    for n in range(nodes):
        kind = n % 4
        speed, memory = (1.0, 0.6, 0.35, 0.2)[kind], (80e9, 40e9, 24e9, 16e9)[kind]
        devices = tuple(
            Device(id=f"n{n:03}/{i}", node=f"n{n:03}", kind=f"k{kind}", speed=speed, memory=memory) for i in range(8)
        )
        made.append(Node(name=f"n{n:03}", devices=devices))
    links = (LinkRule(bandwidth=12.5e9, latency=1e-5), LinkRule(bandwidth=200e9, latency=3e-6, within=True))
    return priced(Cluster(name="lab", nodes=tuple(made), links=links))


def chain_of(num_layers: int) -> Profile:
    """A chain of like layers of 100 million parameters."""
    source = random.Random(1)
    layers = []
    for i in range(num_layers):
        seconds = 0.016 + 0.008 * source.random()
        layers.append(
            Layer(
                name=f"l{i}",
                parameter_bytes=4e8,
                output_bytes=1.6e7,
                activation_bytes=2e8,
                times={"reference": {1: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
                inputs=(LayerInput(source=f"l{i - 1}" if i else "input"),),
            )
        )
    return Profile(name=f"chain-{num_layers}", precision="fp32", reference="reference", layers=tuple(layers))


def catalogue_table() -> Iterator[str]:
    """From nothing, then with a node less and a node more."""
    yield "| devices | what | multisets | pipelines timed | plans | fastest s | on devices | mixed kinds | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    profile = chain_of(100)
    for nodes in (8, 16):
        before: Catalogue | None = None
        for what, count in (("from nothing", nodes), ("a node less", nodes - 1), ("a node more", nodes + 1)):
            problem: Problem = make_problem(profile, lab(count), 64)
            begin = time.process_time()
            made = catalogued(problem, before)
            seconds = time.process_time() - begin
            assert isinstance(made, Catalogue)
            kinds = {device.id: device.kind for device in problem.cluster.devices}
            mixed = sum(len({kinds[name] for name in plan.device_ids}) > 1 for plan in made.plans)
            best = made.plans[0]
            yield (
                f"| {8 * count} | {what} | {len(made.solved)} | {made.work} | {len(made.plans)} "
                f"| {best.predicted.step:.3f} | {len(best.device_ids)} | {mixed} | {seconds:.2f} |"
            )
            before = before or made


def main() -> int:
    """Print the tables; with ``--write`` keep them under ``benchmarks/results``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="ABCD")
    parser.add_argument("--objectives", default="time,money,devices")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not PROFILES.is_dir():
        print(f"skipped: no profiles at {PROFILES}; set IGNITE_SHARED")
        return 0
    criteria = tuple(name for name in CRITERIA if name in options.objectives.split(","))
    setup = prepare(make_problem(load_graph_text(PROFILES / CHAINS[0]), priced(make_cluster("A")), MICROBATCHES))
    assert isinstance(setup, Setup)
    islands_front(setup, criteria, 2_000, np.random.default_rng(0), exact_front(setup, criteria, 2_000).chosen)
    catalogued(make_problem(chain_of(6), lab(5), 4))  # compile all that is used
    lines = []
    for line in chain(sets_table(options.clusters, criteria), [""], catalogue_table()):
        lines.append(line)
        print(line, flush=True)
    if options.write:
        target = CHECKOUT / "benchmarks" / "results" / "pareto.md"
        head = ["# Pareto sets and catalogues", "", f"{stamp()} CPU seconds of one core, compilation excluded.", ""]
        target.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
