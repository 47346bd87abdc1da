"""How good and how quick plans are: public profiles on four clusters, against the proven bound and two usual baselines.

Every chain of the PipeDream and DAPPLE profiles (branches in line, their edges crossing cuts) × clusters A–D × memory
none and tight × 32 and 8 microbatches. Baselines split the layers without looking at the devices and are then placed
in the best order by trying all of them, which is more than they offer:

- *equal*: equal numbers of layers on all devices;
- *min-max*: a dynamic program for the least bottleneck on all devices, which sees the mean speed and the slowest link.

Usage: ``python benchmarks/planner_quality.py [--clusters ABCD] [--write]``. Profiles are looked for under
``$IGNITE_SHARED`` or ``../shared`` beside the checkout; without them it says so and ends.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np

from ignite_scheduler.formats.foreign import load_graph_text
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    LinkRule,
    Node,
    Optimizer,
    PipelineChoice,
    Plan,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.kernel import Numbers, make_room, value_of
from ignite_scheduler.planner.setup import Setup, prepare
from ignite_scheduler.planner.solve import first_plan
from tables import CHECKOUT, PROFILES, stamp

CHAINS = (
    "pipedream/alexnet.graph.txt",
    "pipedream/vgg16.graph.txt",
    "dapple/amoeba-36-pbs-1.txt",
    "dapple/amoeba-6-pbs-8-complicated.txt",
    "dapple/amoeba-6-pbs-8-simplified.txt",
    "dapple/bert-24-pbs-6.txt",
    "dapple/bert-48-pbs-2.txt",
    "dapple/gnmt-16-pbs-64.txt",
    "dapple/gnmt-32-pbs-64.txt",
    "dapple/vgg-19-pbs-32.txt",
    "dapple/xlnet-24-pbs-1.txt",
)
FAST, SLOW = 1.25e9, 0.125e9
SEED = 7


def make_cluster(name: str, scale: float = math.inf) -> Cluster:
    """Cluster A, B, C or D with memory ``scale`` × speed on each device, or E: twelve unlike devices."""
    boxes: dict[str, list[list[float]]] = {
        "A": [[1, 1, 0.5, 0.25]],
        "B": [[1, 0.5], [1, 0.25]],
        "C": [[1, 0.5, 0.5, 0.25], [1, 1, 0.5, 0.25]],
        "D": [[1], [0.6], [0.4], [0.2], [0.1]],
        "E": [[round(1.0 - 0.07 * i, 3)] for i in range(12)],
    }
    nodes = []
    for n, speeds in enumerate(boxes[name]):
        devices = tuple(
            Device(
                id=f"n{n}/d{i}",
                node=f"n{n}",
                kind="own",
                speed=speed,
                memory=scale * speed if scale < math.inf else scale,
            )
            for i, speed in enumerate(speeds)
        )
        nodes.append(Node(name=f"n{n}", devices=devices))
    if name in "ABC":
        links = (
            LinkRule(bandwidth=FAST if name == "A" else SLOW, latency=0.0),
            LinkRule(bandwidth=FAST, latency=0.0, within=True),
        )
        return Cluster(name=name, nodes=tuple(nodes), links=links)
    source = random.Random(SEED)
    low = SLOW / 10 if name == "D" else SLOW
    pairs = [
        LinkRule(
            bandwidth=low * 10 ** source.random(), latency=0.0, sources=frozenset([a.name]), targets=frozenset([b.name])
        )
        for i, a in enumerate(nodes)
        for b in nodes[i + 1 :]
    ]
    return Cluster(name=name, nodes=tuple(nodes), links=tuple(pairs))


def make_problem(
    profile: Profile, cluster: Cluster, microbatches: int, schedule: str = "auto", samples: int = 1
) -> Problem:
    """So many microbatches of ``samples`` samples. One minibatch of a public profile is one sample."""
    job = Job(
        name="bench",
        model=Reference(profile="public"),
        batch=Batch(total=microbatches * samples, micro=samples),
        steps=1,
        optimizer=Optimizer(name="adam"),
        pipeline=PipelineChoice(schedule=schedule),
    )
    return Problem(job=job, profile=profile, cluster=cluster)


def tight_scale(profile: Profile, name: str, microbatches: int, samples: int = 1) -> float:
    """1.25 × the least memory of a device of speed 1 with which any straight 1F1B plan exists, by exact bisection."""
    low, high = 1.0, 1e15
    while high > 1.0001 * low:
        middle = math.sqrt(low * high)
        setup = prepare(make_problem(profile, make_cluster(name, middle), microbatches, "1f1b", samples))
        assert isinstance(setup, Setup)
        _, bound = first_plan(_numbers(setup), sweep=1)
        if bound < math.inf:
            high = middle
        else:
            low = middle
    return 1.25 * high


def _numbers(setup: Setup, schedule: str = "1f1b") -> Numbers:
    family = next(family for family in setup.families if family.schedule == schedule)
    return setup.numbers(family, setup.arrays(family))


def best_placement(problem: Problem, split: list[int]) -> float:
    """Step time of a split on the best order of devices and the better schedule; infinite where none fits."""
    setup = prepare(problem)
    assert isinstance(setup, Setup)
    every = [c for c, count in enumerate(setup.classes.counts) for _ in range(int(count))]
    starts = np.concatenate(([0], np.cumsum(split)[:-1]))[::-1].astype(np.int64)
    best = math.inf
    for schedule in ("1f1b", "gpipe"):
        numbers = _numbers(setup, schedule)
        room = make_room(numbers.max_stages, numbers.num_microbatches)
        for order in set(permutations(every, len(split))):
            best = min(best, float(value_of(numbers, room, len(split), np.array(order, dtype=np.int64), starts)))
    return best


def equal_split(num_layers: int, stages: int) -> list[int]:
    """Numbers of layers that differ by one at most."""
    return [num_layers // stages + (s < num_layers % stages) for s in range(stages)]


def minmax_split(problem: Problem, stages: int) -> list[int]:
    """The split of least bottleneck on equal devices of mean speed and the slowest link."""
    setup = prepare(problem)
    assert isinstance(setup, Setup)
    numbers = _numbers(setup)
    speed = statistics.mean(device.speed or 1.0 for device in problem.cluster.devices)
    reference = max(range(len(setup.classes.devices)), key=lambda c: setup.classes.devices[c].speed or 1.0)
    total = (numbers.forward[reference, 0] + numbers.backward[reference, 0]) / speed
    link = numbers.once_bytes * float(numbers.per_byte.max())
    size = numbers.num_layers
    least = np.full((stages + 1, size + 1), np.inf)
    came = np.zeros((stages + 1, size + 1), dtype=int)
    least[0, 0] = 0.0
    for s in range(1, stages + 1):
        for j in range(s, size + 1):
            starts = np.arange(s - 1, j)
            worst = np.maximum(
                np.maximum(least[s - 1, starts], total[j] - total[starts]), np.where(starts > 0, link[starts], 0.0)
            )
            came[s, j] = starts[int(worst.argmin())]
            least[s, j] = worst.min()
    cuts = [size]
    for s in range(stages, 0, -1):
        cuts.append(int(came[s, cuts[-1]]))
    return [b - a for a, b in pairwise(reversed(cuts))]


def main() -> int:
    """Print the table; with ``--write`` keep it under ``benchmarks/results``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="ABCD")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not PROFILES.is_dir():
        print(f"skipped: no profiles at {PROFILES}; set IGNITE_SHARED")
        return 0
    plan(make_problem(load_graph_text(PROFILES / CHAINS[0]), make_cluster("C"), 32))  # compile all that is used
    lines = _table(options.clusters)
    if options.clusters == "ABCD":
        lines += ["", *_twelve()]
    if options.write:
        _write(lines)
    return 0


def _table(clusters: str) -> list[str]:
    lines = [
        "| chain | layers | cluster | memory | M | step s | bound s | gap % | proven | stages | schedule "
        "| equal × | min-max × | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    ratios: dict[str, list[float]] = {"equal": [], "min-max": []}
    unfit = {"equal": 0, "min-max": 0}
    slowest: dict[str, float] = {}
    unproven = 0
    for chain in CHAINS:
        profile = load_graph_text(PROFILES / chain)
        for name in clusters:
            for tight in (False, True):
                for count in (32, 8):
                    cluster = make_cluster(name, tight_scale(profile, name, count) if tight else math.inf)
                    problem = make_problem(profile, cluster, count)
                    before = time.process_time()
                    found = plan(problem)
                    seconds = time.process_time() - before
                    assert isinstance(found, Plan), found
                    stages = min(len(cluster.devices), len(profile.layers))
                    others = {
                        "equal": best_placement(problem, equal_split(len(profile.layers), stages)),
                        "min-max": best_placement(problem, minmax_split(problem, stages)),
                    }
                    for key, value in others.items():
                        if value < math.inf:
                            ratios[key].append(value / found.predicted.step)
                        else:
                            unfit[key] += 1
                    slowest[name] = max(slowest.get(name, 0.0), seconds)
                    unproven += not found.bound.optimal
                    lines.append(_row(profile, name, tight, count, found, others, seconds))
                    print(lines[-1], flush=True)
    lines.append("")
    for key, values in ratios.items():
        mean = math.exp(statistics.mean(math.log(value) for value in values))
        lines.append(
            f"- {key}: {mean:.2f} × our step (geometric mean of {len(values)}, worst {max(values):.1f}); "
            f"{unfit[key]} cases do not fit or have no links"
        )
    lines.append(
        f"- not proven optimal: {unproven} of {sum(map(len, ratios.values())) // 2 + sum(unfit.values()) // 2}"
    )
    lines.append("- slowest plan, CPU s: " + ", ".join(f"{name} {value:.2f}" for name, value in slowest.items()))
    print("\n".join(lines[-5:]), flush=True)
    return lines


def _row(
    profile: Profile, name: str, tight: bool, count: int, found: Plan, others: dict[str, float], seconds: float
) -> str:
    ratio = {
        key: f"{value / found.predicted.step:.2f}" if value < math.inf else "no fit" for key, value in others.items()
    }
    cells = [
        profile.name,
        len(profile.layers),
        name,
        "tight" if tight else "none",
        count,
        f"{found.predicted.step:.4f}",
        f"{found.bound.step:.4f}",
        f"{100 * found.bound.gap:.2f}",
        "yes" if found.bound.optimal else "no",
        len(found.stages),
        found.schedule,
        ratio["equal"],
        ratio["min-max"],
        f"{seconds:.2f}",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _twelve() -> list[str]:
    """Twelve unlike devices × 50 layers: the default budget against one ten times as large."""
    source = random.Random(SEED)
    layers = []
    for i in range(50):
        seconds = 0.005 + 0.02 * source.random()
        layers.append(
            Layer(
                name=f"l{i}",
                parameter_bytes=4e6,
                output_bytes=1e6 * (1 + 9 * source.random()),
                activation_bytes=1e7,
                times={"reference": {1: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
                inputs=(LayerInput(source=f"l{i - 1}" if i else "input"),),
            )
        )
    profile = Profile(name="random-50", precision="fp32", reference="reference", layers=tuple(layers))
    lines = ["| 12 unlike devices × 50 layers, M = 32 | step s | bound s | gap % | CPU s |", "|---|---|---|---|---|"]
    for text, factor in (("default budget", 1), ("ten times the budget", 10)):
        problem = make_problem(profile, make_cluster("E"), 32)
        before = time.process_time()
        found = plan(replace(problem, work=problem.work * factor))
        seconds = time.process_time() - before
        assert not isinstance(found, Infeasible)
        lines.append(
            f"| {text} | {found.predicted.step:.4f} | {found.bound.step:.4f} "
            f"| {100 * found.bound.gap:.1f} | {seconds:.1f} |"
        )
        print("\n".join(lines[-1:]), flush=True)
    return lines


def _write(lines: list[str]) -> None:
    target = CHECKOUT / "benchmarks" / "results" / "planner_quality.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    head = [
        "# Plans of public profiles: quality and time",
        "",
        f"{stamp()} CPU seconds of one core, compilation excluded.",
        "",
    ]
    target.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
