"""Planned against measured step time: the demo's jobs, each alone, on one to four stages, every plan run twice.

The second run of the same plan shows the noise floor: no prediction can be closer than the machine is to itself. A
measured step is the median over the steps after warm-up.

    python benchmarks/prediction.py [--steps N] [--stages 1,2,3,4] [--write FILE]

Takes about five minutes. The machine should have nothing else to do: other load slows down the measured side only.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

from ignite_scheduler import api
from ignite_scheduler.model import Cluster, Job, Profile
from parity import ARRIVALS, documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan, run twice. Seconds; ``num_steps`` is how many steps each median stands on."""

    job: str
    plan: str
    planned: float
    measured: tuple[float, float]
    num_steps: int

    @property
    def error(self) -> float:
        """First measured ÷ planned − 1."""
        return self.measured[0] / self.planned - 1

    @property
    def noise(self) -> float:
        """Second measured ÷ first − 1."""
        return self.measured[1] / self.measured[0] - 1


def measure(job: Job, cluster: Cluster, profile: Profile, stages: int, folder: Path) -> Row | None:
    """Run the best plan of so many stages twice; None where there is none."""
    fixed = replace(job, pipeline=replace(job.pipeline, stages=stages))
    if not api.plan(fixed, cluster, profile=profile).feasible:
        return None
    steps, text, planned, count = [], "", 0.0, 0
    for attempt in (1, 2):
        ran = api.run([fixed], cluster, directory=folder / str(attempt), profiles={job.name: profile}, policy="fifo")
        report = ran.report.jobs[0]
        if report.measured.step is None or report.planned_step is None:
            sys.exit(f"{job.name} on {stages} stages did not finish: {report.reason}")
        steps.append(report.measured.step)
        plan, planned, count = report.plans[-1], report.planned_step, report.measured.num_steps
        cuts = " │ ".join(f"{len(stage.layers)}@{stage.devices[0].device}" for stage in plan.stages)
        text = f"{plan.schedule} ×{len(plan.microbatches)}: {cuts}"
    return Row(job=job.name, plan=text, planned=planned, measured=(steps[0], steps[1]), num_steps=count)


def table(rows: Sequence[Row]) -> str:
    """The comparison as Markdown."""
    lines = ["| job | plan | planned ms | measured ms | error | again ms | again ÷ first |", f"|{'---|' * 7}"]
    for row in rows:
        first, second = row.measured
        lines.append(
            f"| {row.job} | {row.plan} | {1e3 * row.planned:.1f} | {1e3 * first:.1f} | {row.error:+.1%} | "
            f"{1e3 * second:.1f} | {row.noise:+.1%} |"
        )
    errors = sorted(abs(row.error) for row in rows)
    noise = sorted(abs(row.noise) for row in rows)
    p90 = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[-1]
    lines += [
        "",
        f"{len(rows)} plans, medians over {min(row.num_steps for row in rows)} steps. |error|: median "
        f"{median(errors):.1%}, 90th percentile {p90:.1%}, worst {errors[-1]:.1%}. "
        f"The same plan again: median {median(noise):.1%}, worst {noise[-1]:.1%}.",
        f"{datetime.date.today()}, `python benchmarks/prediction.py`, {platform.machine()}, {os.cpu_count()} cores, "
        f"load average over the last minute at the end {os.getloadavg()[0]:.1f}, Python {platform.python_version()}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="training steps of each run")
    parser.add_argument("--stages", default="1,2,3,4", help="numbers of stages")
    parser.add_argument("--jobs", default=",".join(ARRIVALS), help="names, separated by commas")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    cluster, jobs = documents(chosen.steps, chosen.jobs.split(","))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            profile = api.profile(job)
            for stages in map(int, chosen.stages.split(",")):
                row = measure(job, cluster, profile, stages, Path(folder) / f"{job.name}-{stages}")
                if row is not None:
                    rows.append(row)
                    print(f"{row.job}: {row.plan}: {row.error:+.1%}, again {row.noise:+.1%}", file=sys.stderr)
    text = table(rows)
    print(text)
    if chosen.write is not None:
        chosen.write.write_text(f"# Planned against measured step time\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
