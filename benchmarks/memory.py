"""Planned against measured memory of each stage: what a rank holds at most beyond the idle process.

    python benchmarks/memory.py [--models NAME,…] [--write FILE]

Each model is measured once, as ``ignite profile`` does, up to its largest microbatch; then planned over one to
three stages with several batch sizes, schedules and optimizers, and trained for a few steps on CPU ranks. Stages that
need less than 200 MB are shown but not judged. Takes five minutes and 3 GB; other load changes only the minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_scheduler import api
from ignite_scheduler.engine.gang import Gang
from ignite_scheduler.engine.reports import Finished
from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.model import (
    Batch,
    Cluster,
    Device,
    Job,
    LinkRule,
    Node,
    Optimizer,
    PipelineChoice,
    Plan,
    Profile,
    Reference,
)
from tables import stamp, table

LEAST: Final = 200e6
"""Bytes from which a stage is judged."""
STEPS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with its data, and the cases that it is run in: (batch, microbatch, split, schedule, optimizer)."""

    name: str
    args: dict[str, Any]
    data: str
    data_args: dict[str, Any]
    samples: tuple[int, ...]
    cases: tuple[tuple[int, int, tuple[int, ...], str, str], ...]


MODELS: Final = (
    Model(
        name="vgg16",
        args={"size": 64},
        data="synthetic_images",
        data_args={"size": 64, "length": 64},
        samples=(4, 16),
        cases=(
            (16, 16, (22,), "gpipe", "sgd"),
            (32, 8, (11, 11), "gpipe", "momentum"),
            (32, 8, (4, 6, 12), "1f1b", "adamw"),
            (48, 16, (9, 13), "1f1b", "sgd"),
        ),
    ),
    Model(
        name="alexnet",
        args={},
        data="synthetic_images",
        data_args={"size": 224, "length": 64},
        samples=(4, 16),
        cases=(
            (32, 32, (12,), "1f1b", "adamw"),
            (64, 16, (6, 6), "gpipe", "sgd"),
            (64, 8, (3, 6, 3), "1f1b", "momentum"),
        ),
    ),
    Model(
        name="squeezenet",
        args={"size": 128, "classes": 100},
        data="synthetic_images",
        data_args={"size": 128, "classes": 100, "length": 128},
        samples=(8, 32),
        cases=(
            (64, 32, (14,), "1f1b", "sgd"),
            (128, 32, (4, 10), "gpipe", "adamw"),
            (96, 16, (2, 4, 8), "gpipe", "momentum"),
        ),
    ),
    Model(
        name="gpt",
        args={"vocabulary": 8000, "block": 128, "dim": 512, "heads": 8, "depth": 8},
        data="synthetic_tokens",
        data_args={"vocabulary": 8000, "block": 128, "length": 64},
        samples=(2, 8),
        cases=(
            (16, 4, (10,), "1f1b", "adamw"),
            (32, 8, (5, 5), "1f1b", "sgd"),
            (32, 8, (4, 3, 3), "gpipe", "momentum"),
        ),
    ),
    Model(
        name="mlp",
        args={"features": 2000, "hidden": [6000, 6000, 6000], "outputs": 10},
        data="synthetic_rows",
        data_args={"features": 2000, "classes": 10, "length": 1024},
        samples=(64, 256),
        cases=(
            (512, 256, (4,), "gpipe", "sgd"),
            (1024, 128, (2, 2), "1f1b", "adamw"),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stage of one run; bytes."""

    job: str
    plan: str
    stage: int
    planned: float
    measured: float

    @property
    def error(self) -> float:
        """Planned ÷ measured − 1: below 0 the stage needed more than it was planned to."""
        return self.planned / self.measured - 1


def jobs(model: Model) -> Iterator[Job]:
    """The model's cases as jobs."""
    for batch, micro, split, schedule, optimizer in model.cases:
        yield Job(
            name=model.name,
            model=Reference(zoo=model.name, args=model.args),
            data=Reference(zoo=model.data, args=model.data_args),
            batch=Batch(total=batch, micro=micro),
            optimizer=Optimizer(name=optimizer, lr=1e-3),
            steps=STEPS,
            pipeline=PipelineChoice(split=split, schedule=schedule, stages=len(split)),
        )


def cluster(num_devices: int) -> Cluster:
    """So many equal devices that are real: cores of this machine."""
    devices = tuple(Device(id=f"here/{i}", node="here", kind="cpu", memory=1e12, speed=1.0) for i in range(num_devices))
    link = LinkRule(bandwidth=10e9, latency=1e-5)
    return Cluster(name="here", nodes=(Node(name="here", devices=devices),), links=(link,))


def run(job: Job, profile: Profile, directory: Path) -> list[Row]:
    """Plan and train the job; its stages."""
    planned = api.plan(job, cluster(len(job.pipeline.split or ())), profile=profile)
    if not planned.feasible:
        sys.exit(f"{job.name}: {planned.to_dict()['reason']['text']}")
    plan: Plan = planned.plan
    spec = GangSpec(job=job, plan=plan, devices=tuple(RankDevice(id=i) for i in plan.device_ids), directory=directory)
    *_, ending = Gang.start(spec).wait(timeout=300)
    if not isinstance(ending, Finished):
        sys.exit(f"{job.name}: {ending}")
    text = (
        f"{job.optimizer.name}, {plan.schedule} {len(plan.microbatches)}×{plan.microbatches[0]}, {job.pipeline.split}"
    )
    return [
        Row(
            job=job.name,
            plan=text,
            stage=entry["stage"],
            planned=entry["planned_bytes"],
            measured=entry["peak_bytes"] - entry["idle_bytes"],
        )
        for entry in json.loads((directory / "memory.json").read_text())
    ]


def comparison(rows: Sequence[Row]) -> str:
    """The comparison as Markdown."""
    lines = [
        [
            row.job,
            row.plan,
            f"{row.stage}",
            f"{row.planned / 1e6:.1f}",
            f"{row.measured / 1e6:.1f}",
            f"{row.error:+.1%}{'' if row.measured >= LEAST else ' (not judged)'}",
        ]
        for row in rows
    ]
    errors = [row.error for row in rows if row.measured >= LEAST]
    found = [
        table(["job", "plan", "stage", "planned MB", "measured MB", "planned ÷ measured"], lines),
        "",
        f"{len(errors)} stages of at least {LEAST / 1e6:.0f} MB: worst over {max(errors):+.1%}, worst under "
        f"{min(errors):+.1%}, {sum(abs(error) <= 0.08 for error in errors)} within 8 %.",
        stamp(),
    ]
    return "\n".join(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(model.name for model in MODELS), help="names, separated by commas")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in (model for model in MODELS if model.name in chosen.models.split(",")):
            profile = None
            for number, job in enumerate(jobs(model)):
                if profile is None:
                    profile = api.profile(job, samples=model.samples, repeats=1, time_limit=0)
                for row in run(job, profile, Path(folder) / f"{model.name}-{number}"):
                    rows.append(row)
                    print(
                        f"{row.job}: {row.plan}: stage {row.stage}: {row.planned / 1e6:.1f} MB planned, "
                        f"{row.measured / 1e6:.1f} MB measured, {row.error:+.1%}",
                        file=sys.stderr,
                    )
    text = comparison(rows)
    print(text)
    if chosen.write is not None:
        chosen.write.write_text(f"# Planned against measured memory\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
