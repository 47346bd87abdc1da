"""What job, profile and cluster documents say, as plain numbers: layers, devices, links, seconds and bytes.

Written from the documents' descriptions (``docs/cost_model.md``, ``docs/devices.md``) alone: nothing of the package's
cost model, pipeline or planner is used, so that a plan can be judged by other code than that which made it. Only the
table of known kinds of device is the package's, since it is data.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

ELEMENT = {"fp64": 8.0, "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
HOST_SHARE = 0.8  # of a link's rate, which pinned copies to the host reach
_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0}
_TIMES |= {"h": 3600.0, "d": 86400.0}
_UNITS = {
    "bytes": {p + "B": f for p, f in (_PREFIX | _BINARY).items()},
    "bytes/s": {p + "B/s": f for p, f in (_PREFIX | _BINARY).items()}
    | {p + bits: f / 8 for p, f in (_PREFIX | _BINARY).items() for bits in ("bit/s", "bps")},
    "seconds": _TIMES,
    "money/s": {"/" + unit: 1 / seconds for unit, seconds in _TIMES.items()},
    "watts": {"mW": 1e-3, "W": 1.0, "kW": 1e3},
    "FLOP/s": {p + "FLOP/s": f for p, f in _PREFIX.items()},
}


def quantity(text: Any, noun: str) -> float | None:
    """A quantity of a document in SI base units; None stays None."""
    if text is None or isinstance(text, int | float):
        return text
    found = re.fullmatch(r"\s*([-+.\deE]*\d\.?)\s*(\S+)\s*", str(text))
    assert found, text
    return float(found[1]) * _UNITS[noun][found[2]]


class Device(NamedTuple):
    """One device, in SI base units; None = unknown. ``limit`` is what may be filled."""

    id: str
    node: str
    kind: str
    limit: float
    speed: float | None
    dtypes: frozenset[str]
    price: float | None
    busy_power: float | None
    idle_power: float | None
    peaks: Mapping[str, float]
    bandwidth: float | None
    host: float | None
    flops_share: float
    bandwidth_share: float
    launch: float


def devices_of(cluster: Mapping[str, Any]) -> dict[str, Device]:
    """The devices of a cluster document by id, in its order."""
    known = json.loads((files("ignite_scheduler.formats") / "devices.json").read_text(encoding="utf-8"))
    found: dict[str, Device] = {}
    for node in cluster["nodes"]:
        numbers: dict[str, int] = {}
        for entry in node["devices"]:
            kind = known["kinds"].get(entry["kind"], {})
            for _ in range(entry.get("count") or 1):
                own = entry.get("id")
                if own is None:
                    number = numbers[entry["kind"]] = numbers.get(entry["kind"], -1) + 1
                    own = f"{entry['kind']}-{number}"
                device = _device(entry, kind, known["classes"].get(kind.get("class"), {}), node["name"], own)
                found[device.id] = device
    return found


def _device(entry: Mapping[str, Any], kind: Mapping[str, Any], group: Mapping[str, Any], node: str, own: str) -> Device:
    rates = kind.get("compute", {}).get("flops_per_s", {})
    dtypes = entry.get("dtypes") or list(rates) or ["fp32"]
    peaks = entry.get("peak_flops")
    if peaks is None:
        peaks = rates
    elif not isinstance(peaks, Mapping):
        peaks = dict.fromkeys(dtypes, peaks)
    power, sheet = entry.get("power") or {}, kind.get("power") or {}
    host = kind.get("host", {}).get("bandwidth_bytes_per_s")
    return Device(
        id=f"{node}/{own}",
        node=node,
        kind=entry["kind"],
        limit=_limit(entry, kind),
        speed=entry.get("speed"),
        dtypes=frozenset(dtypes),
        price=quantity(entry.get("price"), "money/s"),
        busy_power=_first(quantity(power.get("busy"), "watts"), sheet.get("busy_w")),
        idle_power=quantity(power.get("idle"), "watts"),
        peaks={dtype: quantity(rate, "FLOP/s") or 0.0 for dtype, rate in peaks.items()},
        bandwidth=_first(
            quantity(entry.get("memory_bandwidth"), "bytes/s"), kind.get("memory", {}).get("bandwidth_bytes_per_s")
        ),
        host=_first(quantity(entry.get("host_bandwidth"), "bytes/s"), None if host is None else host * HOST_SHARE),
        flops_share=_first(
            entry.get("achievable_flops"), kind.get("achievable", {}).get("flops"), group.get("achievable_flops"), 1.0
        ),
        bandwidth_share=_first(entry.get("achievable_bandwidth"), group.get("achievable_bandwidth"), 1.0),
        launch=_first(quantity(entry.get("launch_overhead"), "seconds"), group.get("launch_overhead_s"), 0.0),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _limit(entry: Mapping[str, Any], kind: Mapping[str, Any]) -> float:
    whole, reserve = quantity(entry.get("memory"), "bytes"), quantity(entry.get("reserve"), "bytes")
    if whole is None:
        whole = kind["memory"]["memory_bytes"]
        reserve = max(0.05 * whole, 512 * 2.0**20) if reserve is None else reserve
    return whole - (quantity(entry.get("used_by_others"), "bytes") or 0.0) - (reserve or 0.0)


class Rule(NamedTuple):
    """One line of ``links``: the names of its two ends, None = all devices."""

    number: int
    ends: tuple[frozenset[str], frozenset[str]] | None
    within: bool
    both_ways: bool
    shared: bool
    bandwidth: float
    latency: float

    def covers(self, a: Device, b: Device) -> tuple[bool, bool]:
        """Whether the rule covers the pair in its own direction, and turned round."""
        if self.ends is None:
            return True, True
        if self.within and a.node != b.node:
            return False, False
        first, second = self.ends
        there = not first.isdisjoint((a.id, a.node)) and not second.isdisjoint((b.id, b.node))
        back = not first.isdisjoint((b.id, b.node)) and not second.isdisjoint((a.id, a.node))
        return there, back and self.both_ways


class Links:
    """Links of a cluster document: the last rule that covers a pair wins."""

    def __init__(self, cluster: Mapping[str, Any]) -> None:
        links = cluster.get("links") or {}
        default = links.get("default")
        entries = ([default] if default else []) + list(links.get("pairs") or ())
        self.rules = [_rule(number, entry) for number, entry in enumerate(entries)]

    def between(self, a: Device, b: Device) -> tuple[float, float, Any] | None:
        """Bandwidth, latency and the wire from ``a`` to ``b``; None where no rule covers the pair."""
        if not self.rules:
            return math.inf, 0.0, (a.id, b.id)
        for rule in reversed(self.rules):
            there, back = rule.covers(a, b)
            if there or back:
                wire = ("shared", rule.number, there) if rule.shared else (a.id, b.id)
                return rule.bandwidth, rule.latency, wire
        return None


def _rule(number: int, entry: Mapping[str, Any]) -> Rule:
    within = entry.get("within")
    ends = entry.get("between") or ((entry["from"], entry["to"]) if "from" in entry else within and (within, within))
    return Rule(
        number=number,
        ends=tuple(frozenset([end] if isinstance(end, str) else end) for end in ends) if ends else None,
        within=bool(within),
        both_ways="from" not in entry,
        shared=bool(entry.get("shared")),
        bandwidth=quantity(entry["bandwidth"], "bytes/s") or 0.0,
        latency=quantity(entry.get("latency"), "seconds") or 0.0,
    )


class Figures:
    """Seconds and bytes of layers under one job, profile and cluster, given as documents."""

    def __init__(self, job: Mapping[str, Any], profile: Mapping[str, Any], cluster: Mapping[str, Any]) -> None:
        self.job, self.links, self.devices = job, Links(cluster), devices_of(cluster)
        own = profile.get("precision", "fp32")
        wish = job.get("precision", "fp32")
        self.own, self.precision = own, own if wish == "auto" else wish
        self.scale = ELEMENT[self.precision] / ELEMENT[own]
        self.reference, self.tied = profile.get("reference"), profile.get("tied") or []
        self.overhead = profile.get("action_overhead_s", 0.0)
        self.layers = _sorted(profile["layers"])
        self.names = list(self.layers)
        self.position = {name: index for index, name in enumerate(self.names)}
        optimizer = {"name": "sgd"} | (job.get("optimizer") or {})
        self.optimizer = optimizer["name"]
        self.factors = self._factors(optimizer)

    def _factors(self, optimizer: Mapping[str, Any]) -> tuple[float, float, float]:
        if optimizer.get("memory"):
            memory = optimizer["memory"]
            return memory["weights"], memory["gradients"], memory["optimizer"]
        base, size, states = ELEMENT[self.own], ELEMENT[self.precision], STATES[self.optimizer]
        if size < 4:
            return size / base, size / base, (4 + 4 * states) / base
        return size / base, size / base, states * size / base

    def edges(self, name: str) -> dict[str, float]:
        """What a layer reads: bytes of one sample by the layer that made it; the model's input is left out."""
        found = {}
        for edge in self.layers[name]["inputs"]:
            source, size = (edge, None) if isinstance(edge, str) else (edge["from"], edge.get("bytes"))
            if source != "input":
                found[source] = self.layers[source]["output_bytes"] if size is None else size
        return found

    def seconds(self, name: str, device: Device, samples: int) -> tuple[float, float] | None:
        """Forward and backward of a layer; None where nothing tells them."""
        layer = self.layers[name]
        times = layer.get("times") or {}
        own, reference = times.get(device.kind), times.get(self.reference)
        scaled = device.speed is not None and self.reference is not None
        if own and not (scaled and device.kind == self.reference):
            return _measured(own, samples, 1.0)
        if reference and device.speed is not None:
            return _measured(reference, samples, device.speed)
        peak, flops = device.peaks.get(self.precision), layer.get("forward_flops")
        if peak is None or device.bandwidth is None or flops is None:
            return None
        moved = layer["parameter_bytes"] + samples * (layer["activation_bytes"] + layer["output_bytes"])
        moved *= self.scale / (device.bandwidth * device.bandwidth_share)
        again = layer.get("backward_flops")
        rate = peak * device.flops_share
        return (
            max(samples * flops / rate, moved) + device.launch,
            max(samples * (2 * flops if again is None else again) / rate, 2 * moved) + device.launch,
        )

    def parameters(self, names: Iterable[str]) -> float:
        """Parameter bytes of layers, weights that are tied among them once."""
        held = set(names)
        total = sum(self.layers[name]["parameter_bytes"] for name in held)
        for group in self.tied:
            sizes = [self.layers[name]["parameter_bytes"] for name in group if name in held]
            total -= max(0, len(sizes) - 1) * min(sizes, default=0.0)
        return total

    def read_from_outside(self, names: Sequence[str]) -> float:
        """Bytes of one sample of the tensors that these layers read from others."""
        read: dict[str, float] = {}
        for name in names:
            for source, size in self.edges(name).items():
                if source not in names:
                    read[source] = max(read.get(source, 0.0), size)
        return sum(read.values())


def _measured(table: Mapping[str, Sequence[float]], samples: int, speed: float) -> tuple[float, float]:
    points = sorted((int(size), row[0], sum(row[1:])) for size, row in table.items())
    sizes = [point[0] for point in points]
    forward, backward = (_curve(sizes, [point[part] for point in points], samples) for part in (1, 2))
    return forward / speed, backward / speed


def _curve(sizes: Sequence[int], values: Sequence[float], samples: int) -> float:
    if len(sizes) == 1:
        return values[0] * samples / sizes[0]
    for low in range(len(sizes) - 1):
        if sizes[low] <= samples <= sizes[low + 1]:
            weight = (samples - sizes[low]) / (sizes[low + 1] - sizes[low])
            return values[low] * (1 - weight) + values[low + 1] * weight
    a, b = (0, 1) if samples < sizes[0] else (len(sizes) - 2, len(sizes) - 1)
    slope = max(0.0, (values[b] - values[a]) / (sizes[b] - sizes[a]))
    near = a if samples < sizes[0] else b
    return max(0.0, values[near] + slope * (samples - sizes[near]))


def _sorted(layers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Layers by name in an order in which each reads earlier ones only: always the first of the file that may come."""
    waiting, before = {}, "input"
    for layer in layers:
        waiting[layer["name"]] = {**layer, "inputs": layer.get("inputs") or [before]}
        before = layer["name"]
    found: dict[str, dict[str, Any]] = {}
    while waiting:
        name = next(
            name
            for name, layer in waiting.items()
            if all((edge if isinstance(edge, str) else edge["from"]) not in waiting for edge in layer["inputs"])
        )
        found[name] = waiting.pop(name)
    return found
