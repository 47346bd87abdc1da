"""Ten other planners side by side with ours: public profiles × clusters A–D × memory none and tight, in one run.

Each planner is written from its paper's description (``ignite_scheduler.planner.peers``, ``docs/planners.md``) and sees
what its paper lets it see; all plans are judged by the same cost model. 8 microbatches of 8 samples, Adam. A profile
that was measured for one size of microbatch is taken as measured for 8 samples, so that replicas can share them.
Memory *tight*: caps in the proportion of the speeds, 25 % above the smallest scale at which any straight plan exists.

For every planner: its step ÷ ours (geometric mean and worst over the cases in which it fits), and in how many cases it
fits. *straight* is our best plan with one device a stage. The last lines say whether ours is ever worse.

Usage: ``python benchmarks/peers.py [--profiles TEXT] [--clusters ABCD] [--layers N] [--write]``. Profiles are looked
for under ``$IGNITE_SHARED`` or ``../shared`` beside the checkout; without them it says so and ends.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ignite_scheduler.formats.foreign import import_profile
from ignite_scheduler.model import Infeasible, PipelineChoice, Plan, Profile
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.peers import PEERS, peer_plan
from planner_quality import make_cluster, make_problem, tight_scale
from tables import CHECKOUT, PROFILES, stamp, table
from yardstick import yardstick

RESULT: Final = CHECKOUT / "benchmarks" / "results" / "peers.md"
MICROBATCHES: Final = 8
SAMPLES: Final = 8
ABILITIES: Final = frozenset({"replicas", "workers", "graph"})
TOLERANCE: Final = 1e-9
SOURCES: Final = (
    "pipedream/*.txt",
    "dapple/*.txt",
    "piper/*.json",
    "dnn-partitioning/LayerGraphs/*training.json",
    "sailor/compute/*/A100-40.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case: our plan, our best straight plan, and what each planner made; CPU seconds of ours and of them."""

    profile: str
    layers: int
    cluster: str
    tight: bool
    ours: Plan
    straight: Plan | Infeasible
    peers: dict[str, Plan | Infeasible]
    seconds: float
    peer_seconds: float

    def ratio(self, name: str) -> float | None:
        """The planner's step ÷ ours; None where it has no plan that fits."""
        found = self.straight if name == "straight" else self.peers[name]
        return found.predicted.step / self.ours.predicted.step if isinstance(found, Plan) else None


def in_samples(profile: Profile) -> Profile:
    """The profile with its one measured microbatch taken as :data:`SAMPLES` samples; unchanged with several sizes."""
    layers = []
    for layer in profile.layers:
        sizes = {size for measured in layer.times.values() for size in measured}
        if len(sizes) > 1:
            return profile
        factor = next(iter(sizes), SAMPLES) / SAMPLES
        layers.append(
            replace(
                layer,
                output_bytes=layer.output_bytes * factor,
                activation_bytes=layer.activation_bytes * factor,
                carried_bytes=layer.carried_bytes * factor,
                transient_bytes=layer.transient_bytes * factor,
                times={kind: {SAMPLES: next(iter(measured.values()))} for kind, measured in layer.times.items()},
                inputs=tuple(
                    replace(edge, bytes=None if edge.bytes is None else edge.bytes * factor) for edge in layer.inputs
                ),
            )
        )
    return replace(profile, layers=tuple(layers))


def profiles(shared: Path, wanted: str, most_layers: int) -> Iterator[tuple[str, Profile]]:
    """Yield the public profiles by name."""
    for pattern in SOURCES:
        for path in sorted(shared.glob(pattern)):
            name = str(path.relative_to(shared))
            if wanted not in name or "LICENSE" in name:
                continue
            found = in_samples(import_profile(path).profile)
            if len(found.layers) <= most_layers:
                yield name.removesuffix(".graph.txt").removesuffix(".txt").removesuffix(".json"), found


def compared(name: str, profile: Profile, cluster: str, *, tight: bool) -> Outcome:
    """All planners on one case."""
    scale = tight_scale(profile, cluster, MICROBATCHES, SAMPLES) if tight else math.inf
    problem = make_problem(profile, make_cluster(cluster, scale), MICROBATCHES, samples=SAMPLES)
    problem = replace(problem, job=replace(problem.job, precision=profile.precision), abilities=ABILITIES)
    begin = time.process_time()
    ours = plan(problem)
    middle = time.process_time()
    found = {peer: peer_plan(problem, peer) for peer in PEERS}
    end = time.process_time()
    assert isinstance(ours, Plan), f"{name} on {cluster}: {ours}"
    return Outcome(
        profile=name,
        layers=len(profile.layers),
        cluster=cluster,
        tight=tight,
        ours=ours,
        straight=plan(_straight(problem)),
        peers=found,
        seconds=middle - begin,
        peer_seconds=end - middle,
    )


def _straight(problem: Problem) -> Problem:
    pipeline = PipelineChoice(schedule=problem.job.pipeline.schedule, replicas=1)
    return replace(problem, job=replace(problem.job, pipeline=pipeline), abilities=frozenset())


def cells(outcome: Outcome) -> list[str]:
    """A line of the table."""
    ratios = [outcome.ratio(name) for name in ("straight", *PEERS)]
    return [
        outcome.profile,
        str(outcome.layers),
        outcome.cluster,
        "tight" if outcome.tight else "none",
        f"{outcome.ours.predicted.step:.4g}",
        "yes" if outcome.ours.bound.optimal else f"{100 * outcome.ours.bound.gap:.2g} %",
        *("no plan" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        f"{outcome.seconds:.2f}",
    ]


HEAD: Final = ("profile", "layers", "cluster", "memory", "our step s", "proven", "straight", *PEERS, "our CPU s")


def summary(outcomes: Sequence[Outcome]) -> str:
    """For each planner: cases that fit by memory, geometric mean and worst of its step ÷ ours."""
    rows = []
    for name in ("straight", *PEERS):
        cells = [name]
        for chosen in (outcomes, [one for one in outcomes if one.tight]):
            ratios = [ratio for one in chosen if (ratio := one.ratio(name)) is not None]
            cells.append(f"{len(ratios)} of {len(chosen)}")
        ratios = [ratio for one in outcomes if (ratio := one.ratio(name)) is not None]
        mean = math.exp(statistics.mean(map(math.log, ratios))) if ratios else math.nan
        cells += [f"{mean:.3f}", f"{max(ratios, default=math.nan):.2f}", f"{min(ratios, default=math.nan):.3f}"]
        rows.append(cells)
    return table(("planner", "fits", "fits, tight", "geometric mean", "worst", "best"), rows)


def verdict(outcomes: Sequence[Outcome]) -> list[str]:
    """Whether ours is worse than any planner in any case, and where."""
    worse = [
        f"- {one.profile} on {one.cluster}, memory {'tight' if one.tight else 'none'}: {name} takes {ratio:.4f} of ours"
        for one in outcomes
        for name in ("straight", *PEERS)
        if (ratio := one.ratio(name)) is not None and ratio < 1 - TOLERANCE
    ]
    if worse:
        return [f"Ours is worse than another planner {len(worse)} times:", "", *worse]
    return [f"Ours is never worse than any of them in {len(outcomes)} cases."]


def best_of_all(outcomes: Sequence[Outcome]) -> str:
    """What the best of all other planners leaves in each case."""
    best = [
        min(ratios)
        for one in outcomes
        if (ratios := [ratio for name in PEERS if (ratio := one.ratio(name)) is not None])
    ]
    if not best:
        return "No other planner has a plan in any case."
    mean = math.exp(statistics.mean(map(math.log, best)))
    return (
        f"The best of the {len(PEERS)} others in each case: {mean:.3f} of our step (geometric mean of {len(best)}, "
        f"worst {max(best):.2f}); in {len(outcomes) - len(best)} cases none of them has a plan that fits."
    )


def main() -> int:
    """Print the tables; with ``--write`` keep them under ``benchmarks/results``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", default="", help="only profiles whose name holds this text")
    parser.add_argument("--clusters", default="ABCD")
    parser.add_argument("--layers", type=int, default=10_000, help="only profiles of at most so many layers")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not PROFILES.is_dir():
        print(f"skipped: no profiles at {PROFILES}; set IGNITE_SHARED")
        return 0
    unit = yardstick()
    outcomes = []
    print("\n".join(table(HEAD, []).splitlines()), flush=True)
    for name, profile in profiles(PROFILES, options.profiles, options.layers):
        for cluster in options.clusters:
            for tight in (False, True):
                outcomes.append(compared(name, profile, cluster, tight=tight))
                print("| " + " | ".join(cells(outcomes[-1])) + " |", flush=True)
    end = [
        summary(outcomes),
        "",
        *verdict(outcomes),
        best_of_all(outcomes),
        f"CPU seconds in all: ours {sum(one.seconds for one in outcomes):.1f}, the others "
        f"{sum(one.peer_seconds for one in outcomes):.1f}; yardstick {unit:.4f}.",
    ]
    print("\n".join(["", *end]), flush=True)
    if options.write:
        head = ["# Other planners beside ours", "", *(__doc__ or "").split("\n\n")[1:3], "", stamp(), ""]
        rows = table(HEAD, [cells(one) for one in outcomes])
        RESULT.write_text("\n".join([*head, *end, "", rows, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
