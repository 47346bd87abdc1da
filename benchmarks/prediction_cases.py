"""What the benchmark of predictions plans and runs: six models of the zoo, three emulated clusters.

A step takes one tenth to half a second on these devices, whose speeds sum up to less than two cores in each cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ignite_scheduler.formats import parse_cluster, parse_job
from ignite_scheduler.model import Cluster, Job

STAGES: Final = (1, 2, 3, 4)
SCHEDULES: Final = ("gpipe", "1f1b")

_SGD: Final = {"name": "momentum", "lr": 0.001}
_ADAMW: Final = {"name": "adamw", "lr": 0.0003}

_JOBS: Final[Mapping[str, Mapping[str, Any]]] = {
    "alexnet": {
        "model": {"zoo": "alexnet", "args": {"width": 0.5, "size": 64, "classes": 10}},
        "data": {"dataset": "digits", "args": {"size": 64}},
        "batch": {"global": 96},
        "optimizer": _SGD,
    },
    "vgg11": {
        "model": {"zoo": "vgg11", "args": {"width": 0.5, "size": 32, "classes": 10}},
        "data": {"dataset": "digits", "args": {"size": 32}},
        "batch": {"global": 48},
        "optimizer": _SGD,
    },
    "squeezenet": {
        "model": {"zoo": "squeezenet", "args": {"width": 0.5, "size": 64, "classes": 10}},
        "data": {"dataset": "digits", "args": {"size": 64}},
        "batch": {"global": 64},
        "optimizer": {"name": "adam", "lr": 0.001},
    },
    "gpt": {
        "model": {"zoo": "gpt", "args": {"dim": 128, "depth": 4, "heads": 4, "block": 64}},
        "data": {"dataset": "stdlib", "args": {"block": 64}},
        "batch": {"global": 24},
        "optimizer": _ADAMW,
    },
    "bert": {
        "model": {"zoo": "bert", "args": {"dim": 128, "depth": 4, "heads": 4, "block": 64}},
        "data": {"dataset": "synthetic_masked_tokens", "args": {"block": 64}},
        "batch": {"global": 24},
        "optimizer": _ADAMW,
    },
    "air-quality": {
        "model": {"zoo": "air-quality", "args": {"hours": 24, "hidden": [768, 768, 768, 768, 384, 128]}},
        "data": {"dataset": "air_quality", "args": {"hours": 24, "length": 4096}},
        "loss": "mse",
        "batch": {"global": 512},
        "optimizer": _SGD,
    },
}

CLUSTERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "two kinds, fast link": {
        "nodes": [
            {"name": "one", "devices": [{"kind": "p60", "speed": 0.6, "memory": "4GB", "count": 2}]},
            {"name": "two", "devices": [{"kind": "p30", "speed": 0.3, "memory": "4GB", "count": 2}]},
        ],
        "links": {"default": {"bandwidth": "2GB/s", "latency": "50us"}},
    },
    "four unlike, slow shared link": {
        "nodes": [
            {
                "name": "left",
                "devices": [
                    {"kind": "p70", "speed": 0.7, "memory": "4GB"},
                    {"kind": "p35", "speed": 0.35, "memory": "4GB"},
                ],
            },
            {
                "name": "right",
                "devices": [
                    {"kind": "p50", "speed": 0.5, "memory": "4GB"},
                    {"kind": "p20", "speed": 0.2, "memory": "4GB"},
                ],
            },
        ],
        "links": {
            "default": {"bandwidth": "200Mbit/s", "latency": "1ms", "shared": True},
            "pairs": [{"within": "left", "bandwidth": "1GB/s"}, {"within": "right", "bandwidth": "1GB/s"}],
        },
    },
    "one fast, three weak": {
        "nodes": [
            {"name": "big", "devices": [{"kind": "p80", "speed": 0.8, "memory": "4GB"}]},
            {"name": "small", "devices": [{"kind": "p25", "speed": 0.25, "memory": "4GB", "count": 3}]},
        ],
        "links": {
            "default": {"bandwidth": "1Gbit/s", "latency": "0.3ms"},
            "pairs": [{"within": "small", "bandwidth": "500MB/s", "latency": "0.1ms"}],
        },
    },
}

MODELS: Final = tuple(_JOBS)


def cluster(name: str) -> Cluster:
    """One of the emulated clusters."""
    return parse_cluster({"version": 1, "name": name.replace(",", "").replace(" ", "-"), **CLUSTERS[name]})


def job(model: str, *, steps: int, stages: int | None = None, schedule: str | None = None) -> Job:
    """The job that trains a model on so many stages in that order; whatever is None is left to the planner."""
    pipeline = {key: value for key, value in (("stages", stages), ("schedule", schedule)) if value is not None}
    document = {"version": 1, "name": model, "steps": steps, **_JOBS[model]}
    return parse_job(document | ({"pipeline": pipeline} if pipeline else {}))
