"""Small random job, profile and cluster documents, with every option that a job has for its plan.

All figures are small whole numbers, and speeds, prices and bandwidths mostly powers of two, so that equal plans occur.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

LARGE = 100_000


class Documents(NamedTuple):
    """Plain data of the three documents."""

    job: dict[str, Any]
    profile: dict[str, Any]
    cluster: dict[str, Any]


class Dice:
    """Draws from a seeded source."""

    def __init__(self, seed: int) -> None:
        self.source = np.random.default_rng(seed)

    def whole(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(self.source.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.source.random() < share)

    def one_of(self, *values: Any) -> Any:
        return values[self.whole(0, len(values) - 1)]

    def cuts(self, total: int, parts: int) -> list[int]:
        """``parts`` whole numbers of at least 1 with that sum."""
        inner = sorted(self.source.choice(np.arange(1, total), parts - 1, replace=False)) if parts > 1 else []
        bounds = [0, *map(int, inner), total]
        return [b - a for a, b in pairwise(bounds)]


def small_documents(seed: int, *, most_layers: int = 5, most_devices: int = 4, most_samples: int = 6) -> Documents:
    """Documents that depend on the seed only; about one in ten asks for what cannot be."""
    dice = Dice(seed)
    num_layers, num_devices = dice.whole(1, most_layers), dice.whole(1, most_devices)
    profile, cluster = _profile(dice, num_layers), _cluster(dice, num_devices)
    job = _job(dice, dice.whole(1, most_samples), num_layers, num_devices)
    if job.get("precision") == "fp16":
        for node in cluster["nodes"]:
            for device in node["devices"]:
                device["dtypes"] = ["fp32", "fp16"]
    if dice.chance(0.1):
        node = cluster["nodes"][0]
        job.setdefault("resources", {})["exclude"] = [f"{node['name']}/{node['devices'][0]['id']}"]
    return Documents(job, profile, cluster)


def _profile(dice: Dice, num_layers: int) -> dict[str, Any]:
    branching = dice.chance(0.4)
    profile: dict[str, Any] = {"schema": "ignite/profile/v1", "name": "p", "precision": "fp32", "reference": "ref"}
    profile["layers"] = [_layer(dice, index, branching) for index in range(num_layers)]
    if num_layers > 1 and dice.chance(0.3):
        first = dice.whole(0, num_layers - 2)
        profile["tied"] = [[f"l{first}", f"l{dice.whole(first + 1, num_layers - 1)}"]]
    if dice.chance(0.3):
        profile["action_overhead_s"] = 0.5
    return profile


def _layer(dice: Dice, index: int, branching: bool) -> dict[str, Any]:
    forward, backward = float(dice.whole(0, 6)), float(dice.whole(0, 6))
    times = {"ref": {"1": [forward, backward]}}
    if dice.chance(0.3):
        times["ref"]["4"] = [forward * (1 + 3 * dice.one_of(0.25, 0.5, 1)), backward * 2.5]
    if dice.chance(0.15):
        times["fast"] = {"1": [forward / 4, backward / 4]}
    inputs: list[Any] = [f"l{index - 1}" if index else "input"]
    if branching and index >= 2 and dice.chance(0.6):
        other = f"l{dice.whole(0, index - 2)}"
        inputs = [other] if dice.chance(0.5) else [*inputs, dice.one_of(other, {"from": other, "bytes": 3.0})]
    layer = {
        "name": f"l{index}",
        "parameter_bytes": float(dice.whole(0, 7)),
        "output_bytes": float(dice.whole(0, 5)),
        "activation_bytes": float(dice.whole(0, 5)),
        "times": times,
        "inputs": inputs,
    }
    for key, most in (("workspace_bytes", 3), ("transient_bytes", 3)):
        if dice.chance(0.3):
            layer[key] = float(dice.whole(0, most))
    if dice.chance(0.3):
        layer["update_s"] = {"adam": float(dice.whole(0, 2)), "sgd": 1.0}
    return layer


def _cluster(dice: Dice, num_devices: int) -> dict[str, Any]:
    tight, priced, powered = dice.chance(0.6), dice.chance(0.5), dice.chance(0.4)
    nodes: dict[str, list[dict[str, Any]]] = {}
    for index in range(num_devices):
        device = {
            "kind": dice.one_of("own", "own", "fast", "ref"),
            "id": f"d{index}",
            "speed": dice.one_of(0.25, 0.5, 1.0, 2.0),
            "memory": f"{dice.one_of(8, 16, 24, 40, 60) if tight else LARGE}B",
        }
        if dice.chance(0.4):
            device["host_bandwidth"] = f"{dice.one_of(1, 4, 16)}B/s"
        if priced:
            device["price"] = f"{dice.one_of(1, 2)}/s"
        if powered:
            device["power"] = {"busy": f"{dice.one_of(3, 5)}W", "idle": "1W"}
        if dice.chance(0.2):
            device["used_by_others"] = f"{dice.one_of(1, 4)}B"
        nodes.setdefault(f"n{dice.whole(0, 1)}", []).append(device)
    names = sorted(nodes)
    cluster: dict[str, Any] = {"version": 1, "name": "c", "currency": "EUR"}
    cluster["nodes"] = [{"name": name, "devices": nodes[name]} for name in names]
    links = _links(dice, names)
    return cluster | ({"links": links} if links else {})


def _links(dice: Dice, nodes: list[str]) -> dict[str, Any]:
    pairs: list[dict[str, Any]] = []
    if dice.chance(0.5):
        pairs.append({"within": nodes, "bandwidth": f"{dice.one_of(2, 1000)}B/s"})
    if len(nodes) > 1 and dice.chance(0.4):
        ends = {"between": nodes} if dice.chance(0.5) else {"from": nodes[0], "to": nodes[1]}
        pairs.append({**ends, "bandwidth": f"{dice.one_of(1, 2)}B/s", "latency": f"{dice.one_of(0, 0.25, 2)}s"})
        if dice.chance(0.3):
            pairs[-1]["shared"] = True
    links: dict[str, Any] = {"pairs": pairs} if pairs else {}
    if dice.chance(0.85):
        links["default"] = {"bandwidth": f"{dice.one_of(1, 4, 1000)}B/s", "latency": f"{dice.one_of(0, 0.25)}s"}
    return links


def _job(dice: Dice, total: int, num_layers: int, num_devices: int) -> dict[str, Any]:
    pipeline: dict[str, Any] = {
        action: dice.one_of(False, False, "auto") for action in ("recompute", "shard", "offload")
    }
    if dice.chance(0.1):
        pipeline[dice.one_of("recompute", "shard", "offload")] = True
    if dice.chance(0.3):
        pipeline["schedule"] = dice.one_of("1f1b", "gpipe")
    if dice.chance(0.15):
        pipeline["replicas"] = dice.whole(1, 2)
    fewest = min(num_layers, num_devices)
    if dice.chance(0.12):
        pipeline["stages"] = dice.whole(1, fewest)
    elif dice.chance(0.08):
        pipeline["split"] = dice.cuts(num_layers, dice.whole(1, fewest))
    resources: dict[str, Any] = {}
    if dice.chance(0.15):
        resources["max_devices"] = dice.whole(1, num_devices)
    if dice.chance(0.1):
        resources["any_of"] = [{"own": dice.whole(1, 2)}, {"fast": 1, "ref": 1}]
    job = {
        "version": 1,
        "name": "j",
        "model": {"profile": "p"},
        "steps": 10,
        "batch": {"global": total, "micro": "auto" if dice.chance(0.4) else dice.whole(1, total)},
        "optimizer": {"name": dice.one_of("sgd", "adam", "momentum")},
        "pipeline": pipeline,
        "resources": resources,
    }
    if dice.chance(0.1):
        job["precision"] = "fp16"
    if dice.chance(0.1):
        job["queue"] = {"deadline": f"{dice.whole(20, 2000)}s"}
    return job
