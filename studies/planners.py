"""What other planners would do with one job on one cluster, side by side with ours.

    python studies/planners.py [JOB CLUSTER] [--microbatch N]

Without documents: a transformer of 14 layers on five unlike devices in two boxes, the case that the README beside this
file talks about. Every plan is judged by the same cost model; a planner whose plan breaks a memory limit has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ignite_scheduler import api
from ignite_scheduler.api.planning import profile_of
from ignite_scheduler.formats import parse_cluster, parse_job
from ignite_scheduler.model import (
    MODEL_INPUT,
    Batch,
    Cluster,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    LayerTimes,
    PipelineChoice,
    Plan,
    Profile,
)
from ignite_scheduler.planner import Problem, plan
from ignite_scheduler.planner.peers import PEERS, peer_plan

ABILITIES: Final = frozenset({"replicas", "workers", "graph"})

BOXES: Final[Mapping[str, object]] = {
    "version": 1,
    "name": "two boxes",
    "nodes": [
        {
            "name": "new",
            "devices": [
                {"kind": "fast", "speed": 1, "memory": "24GB", "count": 2},
                {"kind": "middle", "speed": 0.5, "memory": "16GB", "count": 1},
            ],
        },
        {"name": "old", "devices": [{"kind": "slow", "speed": 0.25, "memory": "12GB", "count": 2}]},
    ],
    "links": {
        "default": {"bandwidth": "10Gbit/s", "latency": "0.1ms"},
        "pairs": [{"within": "new", "bandwidth": "10GB/s"}, {"within": "old", "bandwidth": "5GB/s"}],
    },
}
"""Two new and three older devices: speeds 1, 1, ½ in one box and ¼, ¼ in another."""


def transformer(blocks: int = 12) -> Profile:
    """An embedding, equal blocks and a head that takes as long as three of them; seconds for 8 samples."""
    embedding = _layer("embedding", 400e6, 0.002, 4e6, 8e6, MODEL_INPUT)
    body = [_layer(f"block{i}", 50e6, 0.060, 4e6, 60e6, f"block{i - 1}" if i else "embedding") for i in range(blocks)]
    head = _layer("head", 400e6, 0.180, 30e6, 60e6, f"block{blocks - 1}")
    return Profile(name="transformer", precision="fp32", reference="reference", layers=(embedding, *body, head))


def _layer(name: str, parameters: float, seconds: float, output: float, kept: float, source: str) -> Layer:
    return Layer(
        name=name,
        parameter_bytes=parameters,
        output_bytes=output,
        activation_bytes=kept,
        times={"reference": {8: LayerTimes(forward=seconds / 3, backward=2 * seconds / 3)}},
        inputs=(LayerInput(source=source),),
    )


def example() -> tuple[Job, Profile, Cluster]:
    """The job, profile and cluster of the README."""
    document = {
        "version": 1,
        "name": "transformer",
        "model": {"profile": "transformer.json"},
        "batch": {"global": 128, "micro": 8},
        "steps": 1,
        "optimizer": {"name": "adam"},
    }
    return parse_job(document), transformer(), parse_cluster(BOXES)


def side_by_side(problem: Problem) -> dict[str, Plan | Infeasible]:
    """Plans by name: ours, ours with one device a stage, and those of all other planners."""
    job = replace(problem.job, pipeline=PipelineChoice(schedule=problem.job.pipeline.schedule, replicas=1))
    ours = {"ignite": plan(problem), "ignite, one device a stage": plan(replace(problem, job=job))}
    return ours | {name: peer_plan(problem, name) for name in PEERS}


def rows(found: Mapping[str, Plan | Infeasible]) -> list[list[str]]:
    """Name, step, step ÷ ours, idle share and stages of each plan, the fastest first, then those without."""
    ours = found["ignite"]
    unit = ours.predicted.step if isinstance(ours, Plan) else None
    made = [(name, one) for name, one in found.items() if isinstance(one, Plan)]
    cells = [
        [
            name,
            f"{one.predicted.step:.3f} s",
            "" if unit is None else f"{one.predicted.step / unit:.2f}",
            f"{one.predicted.bubble_fraction:.0%}",
            stages_text(one),
        ]
        for name, one in sorted(made, key=lambda entry: entry[1].predicted.step)
    ]
    return cells + [[name, "no plan", "", "", one.text] for name, one in found.items() if isinstance(one, Infeasible)]


def stages_text(made: Plan) -> str:
    """Layers and devices of each stage, ``‖`` between virtual workers: ``5 on new/fast-0 ×6 + new/fast-1 ×2``."""
    parts: list[str] = []
    for stage in made.stages:
        shared = len(stage.devices) > 1
        devices = " + ".join(f"{one.device} ×{one.samples}" if shared else one.device for one in stage.devices)
        begins = bool(parts) and stage.inputs == ()
        parts.append(f"{'‖ ' if begins else ''}{len(stage.layers)} on {devices}")
    return ", ".join(parts)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns of text, the last as long as it is."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in (head, *lines)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plans of one case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", metavar="JOB CLUSTER")
    parser.add_argument("--microbatch", type=int, help="samples of a microbatch, instead of the job's")
    options = parser.parse_args(arguments)
    if len(options.documents) not in (0, 2):
        parser.error("expected a job and a cluster, or neither")
    job, profile, cluster = example()
    if options.documents:
        job, cluster = api.load_job(options.documents[0]), api.load_cluster(options.documents[1])
        profile = profile_of(job)
    if options.microbatch:
        job = replace(job, batch=Batch(total=job.batch.total, micro=options.microbatch))
    found = side_by_side(Problem(job=job, profile=profile, cluster=cluster, abilities=ABILITIES))
    print(table(("planner", "step", "÷ ours", "idle", "stages"), rows(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
