"""Every public profile that can be imported, planned on a cluster of two kinds: how long it takes, what comes out.

Four devices with all the memory they want, two of the profile's reference kind and two at half its speed, 10 GB/s
between them; 8 microbatches. It shows that whatever is imported can be planned, and in what time; files that are
refused are listed with the reason.

Usage: ``python benchmarks/imported_profiles.py [--write]``. Profiles are looked for under ``$IGNITE_SHARED`` or
``../shared`` beside the checkout; without them it says so and ends.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ignite_scheduler.errors import IgniteError
from ignite_scheduler.formats import parse_cluster, parse_job
from ignite_scheduler.formats.foreign import Imported, import_profile
from ignite_scheduler.model import Infeasible, Profile
from ignite_scheduler.planner import Problem, plan
from tables import CHECKOUT, PROFILES, stamp

RESULT = CHECKOUT / "benchmarks" / "results" / "imported_profiles.md"
MICROBATCHES = 8
CLUSTER = {
    "version": 1,
    "name": "two kinds",
    "nodes": [
        {"name": "a", "devices": [{"kind": "fast", "speed": 1, "memory": "1000TB", "count": 2}]},
        {"name": "b", "devices": [{"kind": "slow", "speed": 0.5, "memory": "1000TB", "count": 2}]},
    ],
    "links": {"default": {"bandwidth": "10GB/s", "latency": "50us"}},
}


def files(shared: Path) -> Iterator[Path]:
    """Every file, and the folders that hold one model in several files."""
    yield from sorted((shared / "sailor" / "compute").iterdir())
    yield shared / "pipeedge"
    yield from sorted(path for path in shared.rglob("*") if path.is_file())


def problem_of(profile: Profile) -> Problem:
    """8 microbatches of the size that was measured, the least of several."""
    assert profile.reference is not None
    samples = min(profile.layers[0].times[profile.reference])
    batch = {"global": samples * MICROBATCHES, "micro": samples}
    job = parse_job(
        {"version": 1, "name": "j", "model": {"profile": "p.json"}, "batch": batch, "precision": "auto", "steps": 1}
    )
    return Problem(job=job, profile=profile, cluster=parse_cluster(CLUSTER))


def row(name: str, found: Imported, import_seconds: float) -> str:
    """A line of the table of what was imported."""
    profile = found.profile
    before = time.process_time()
    answer = plan(problem_of(profile))
    seconds = time.process_time() - before
    if isinstance(answer, Infeasible):
        outcome = f"{answer.text} | |"
    else:
        split = "+".join(str(len(stage.layers)) for stage in answer.stages)
        gap = "optimal" if answer.bound.optimal else f"{100 * answer.bound.gap:.2g} %"
        outcome = f"{split} | {answer.predicted.step * 1e3:.4g} | {gap}"
    kinds = len(profile.layers[0].times)
    return f"| {name} | {len(profile.layers)} | {kinds} | {import_seconds:.2f} | {seconds:.1f} | {outcome} |"


def main() -> int:
    """Import and plan everything, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if not PROFILES.is_dir():
        print(f"skipped: no profiles at {PROFILES}; set IGNITE_SHARED")
        return 0
    planned, refused = [], []
    for path in files(PROFILES):
        name = str(path.relative_to(PROFILES))
        before = time.process_time()
        try:
            found = import_profile(path)
        except IgniteError as error:
            refused.append(f"| {name} | {str(error).removeprefix(f'{path}: ')} |")
            continue
        planned.append(row(name, found, time.process_time() - before))
        print(planned[-1], file=sys.stderr)
    lines = [
        "# Imported profiles",
        "",
        *(__doc__ or "").split("\n\n")[1].splitlines(),
        "CPU seconds; the first plan also loads the compiled search.",
        "",
        stamp(),
        "",
        "| file | layers | kinds | import s | plan s | layers a stage | step ms | gap |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *planned,
        "",
        "| refused | reason |",
        "| --- | --- |",
        *refused,
    ]
    text = "\n".join(lines) + "\n"
    if options.write:
        RESULT.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
