"""Other people's measured steps, predicted: Sailor's plans, vTrain's points, Arena's profiles.

    python benchmarks/public_plans.py [--sailor DIR] [--plans PATH …] [--model NAME] [--vtrain FILE …]
        [--vtrain-fit FILE] [--node-bandwidth GB/s] [--arena DIR] [--write [FILE]]

Without options it takes what lies in ``../shared`` beside the repository; with any, only what is named. Every file of
the same formats will do: ``--plans`` takes Sailor's plan files (or folders of them) from elsewhere, with the profiles
of ``--sailor``; ``--vtrain`` takes tables of points, predicted with a machine fitted on ``--vtrain-fit``, or, where
that is the same table, on its own one-stage points. Nothing is fitted for Sailor's and Arena's plans. What a model says
and assumes is in docs/public_plans.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from ignite_scheduler.errors import InputError
from published import arena_report, sailor_report, vtrain_report
from published.sailor_files import Sailor
from published.vtrain import Node, read_points
from tables import stamp

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
RESULTS = Path(__file__).resolve().parent / "results" / "public_plans.md"


def sailor(root: Path, plans: Sequence[Path], model: str | None) -> str:
    """The section on Sailor's plans."""
    data = Sailor(root, model)
    files = [file for path in plans for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    found = sailor_report.rows(data, files or data.plans())
    if not found:
        raise InputError(f"{root}: expected plans in measured/CLUSTER/*.json, found none")
    head = "## Sailor's plans\n\nNothing is fitted, so each cluster is predicted without the other."
    return f"{head}\n\n{sailor_report.report(found)}"


def vtrain(files: Sequence[Path], fit_on: Path | None, node: Node) -> str:
    """The section on vTrain's points."""
    sections = []
    for file in files:
        other = None if fit_on is None or fit_on.resolve() == file.resolve() else read_points(fit_on)
        sections.append(f"## vTrain's points: {file.name}\n\n{vtrain_report.report(read_points(file), other, node)}")
    return "\n\n".join(sections)


def arena(folder: Path) -> str:
    """The section on Arena's plans."""
    return f"## Arena's plans\n\n{arena_report.report(*arena_report.read(folder))}"


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for; everything that is there, if nothing was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sailor", type=Path, help="directory with compute, memory, network and measured")
    parser.add_argument("--plans", type=Path, nargs="+", default=[], help="Sailor's plan files, or folders of them")
    parser.add_argument("--model", help="the model that the plans train, where their folder does not say")
    parser.add_argument("--vtrain", type=Path, nargs="+", default=[], help="tables of points")
    parser.add_argument("--vtrain-fit", type=Path, help="table whose one-stage points the machine is fitted on")
    parser.add_argument("--node-bandwidth", type=float, default=Node().bandwidth / 1e9, help="GB/s of a whole node")
    parser.add_argument("--arena", type=Path, help="directory with plan_profiles")
    parser.add_argument("--write", type=Path, nargs="?", const=RESULTS, help="also write the tables to this file")
    chosen = parser.parse_args(words)
    if not 0 < chosen.node_bandwidth < math.inf:
        parser.error(f"--node-bandwidth: expected GB/s above 0, found {chosen.node_bandwidth}")
    if chosen.write is not None and not chosen.write.parent.is_dir():
        parser.error(f"--write: there is no folder {chosen.write.parent}")
    single = SHARED / "traces" / "vtrain" / "ground_truth_single.csv"
    if not (chosen.sailor or chosen.plans or chosen.vtrain or chosen.arena):
        chosen.sailor, chosen.vtrain, chosen.arena = (
            SHARED / "profiles" / "sailor",
            [single],
            SHARED / "traces" / "arena",
        )
    if chosen.plans and chosen.sailor is None:
        chosen.sailor = SHARED / "profiles" / "sailor"
    if chosen.vtrain and chosen.vtrain_fit is None:
        chosen.vtrain_fit = single
    return chosen


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables; 2 where an input is wrong."""
    chosen = parse(words)
    sections = ["# Other people's measured steps, predicted"]
    try:
        if chosen.sailor is not None:
            sections.append(sailor(chosen.sailor, chosen.plans, chosen.model))
        if chosen.vtrain:
            sections.append(vtrain(chosen.vtrain, chosen.vtrain_fit, Node(bandwidth=chosen.node_bandwidth * 1e9)))
        if chosen.arena is not None:
            sections.append(arena(chosen.arena))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    text = "\n\n".join(sections)
    print(text)
    if chosen.write is not None:
        note = "The figures do not depend on the machine: nothing is timed here."
        chosen.write.write_text(f"{text}\n\n{stamp()} {note}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
