"""Branching models on four clusters: the best chain of stages found, its proven gap, and the best graph of stages.

PipeDream's branching profiles and the layer graphs of dnn-partitioning × clusters A–D × 8 and 32 microbatches, one
profile minibatch each. The *chain* is that of the search over blocks of layers; its gap speaks of all chains in the
orders of the layers that were searched. *Ratio* is the chain's step ÷ the graph's. CPU seconds of one core for each
search, compiled before.

Usage: ``python benchmarks/branching_models.py [--clusters ABCD] [--microbatches 8,32] [--write]``. Profiles are looked
for under ``$IGNITE_SHARED`` or ``../shared`` beside the checkout; without them it says so and ends.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path

from ignite_scheduler.formats.foreign import import_profile
from ignite_scheduler.model import Infeasible, Profile
from ignite_scheduler.planner.graphs import linear
from ignite_scheduler.planner.graphs import search as graphs
from ignite_scheduler.planner.graphs.dag import branches
from ignite_scheduler.planner.request import requested
from planner_quality import make_cluster, make_problem
from tables import CHECKOUT, PROFILES, stamp, table
from yardstick import yardstick

FOLDERS = ("pipedream", "dnn-partitioning/LayerGraphs")
HEAD = ("model", "layers", "cluster", "M", "chain", "gap", "chain CPU s", "graph", "graph CPU s", "ratio")


def models() -> Iterator[tuple[str, Profile]]:
    """Name and profile of every branching model."""
    for folder in FOLDERS:
        for path in sorted((PROFILES / folder).iterdir()):
            if path.suffix in (".txt", ".json") and "LICENSE" not in path.name:
                profile = import_profile(path).profile
                if branches(profile):
                    yield name_of(path), profile


def name_of(path: Path) -> str:
    """The model's name, as its file has it."""
    return path.name.partition(".")[0]


def row(name: str, profile: Profile, cluster: str, microbatches: int) -> tuple[list[str], float]:
    """One line of the table, and the ratio."""
    problem = make_problem(profile, make_cluster(cluster), microbatches)
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    begin = time.process_time()
    chain = linear.search(problem, request, None)
    middle = time.process_time()
    graph = graphs.search(problem, request, chain.best)
    end = time.process_time()
    gap = chain.value / chain.bound - 1 if chain.bound > 0 else math.inf
    ratio = chain.value / graph.value
    cells = [f"{chain.value:.4g} s", f"{gap:.1%}", f"{middle - begin:.2f}"]
    cells += [f"{graph.value:.4g} s", f"{end - middle:.2f}", f"{ratio:.3f}"]
    return [name, str(len(profile.layers)), cluster, str(microbatches), *cells], ratio


def main() -> int:
    """Print the table; with ``--write`` keep it under ``benchmarks/results``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="ABCD")
    parser.add_argument("--microbatches", default="8,32")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not PROFILES.is_dir():
        print(f"skipped: no profiles at {PROFILES}; set IGNITE_SHARED")
        return 0
    found = list(models())
    row(*found[0], "C", 8)  # compile all that is used
    rows, ratios = [], []
    for name, profile in found:
        for cluster in options.clusters:
            for microbatches in map(int, options.microbatches.split(",")):
                cells, ratio = row(name, profile, cluster, microbatches)
                print(" | ".join(cells), flush=True)
                rows.append(cells)
                ratios.append(ratio)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines = [f"Chain ÷ graph of stages: geometric mean {mean:.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}."]
    lines += ["", table(HEAD, rows), "", f"Yardstick {yardstick():.4f} CPU s. {stamp()}"]
    print("\n".join(lines))
    if options.write:
        target = CHECKOUT / "benchmarks" / "results" / "branching_models.md"
        target.write_text("# Branching models\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
