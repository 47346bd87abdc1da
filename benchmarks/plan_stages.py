"""Stages of a plan document and how they stand to each other: memory, seconds, messages, all-reduces, the step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plan_clock import Clock, Message, Reduction, depths, joined, order, step_seconds
from plan_figures import Device, Figures

ON_DEVICE = 2  # microbatches that stay on the device under offload: one at work, one on its way


def dealt(shares: Sequence[int], samples: int) -> list[int]:
    """Shares of a microbatch of so many samples: rounded down, the rest to the largest remainders, the first first."""
    full = sum(shares)
    parts = [share * samples // full for share in shares]
    rest = samples - sum(parts)
    by_remainder = sorted(range(len(shares)), key=lambda i: (-(shares[i] * samples % full), i))
    for index in by_remainder[:rest]:
        parts[index] += 1
    return parts


class HeldStage:
    """One stage entry: its layers in the profile's order, what it keeps and computes."""

    def __init__(self, figures: Figures, entry: Mapping[str, Any]) -> None:
        self.figures, self.entry, self.index = figures, entry, entry["index"]
        self.layers = sorted(entry["layers"], key=figures.position.__getitem__)
        self.devices = [figures.devices[share["id"]] for share in entry["devices"]]
        self.shares = [share["samples"] for share in entry["devices"]]
        self.segments = self._segments()
        self.again = {name for segment in self.segments for name in segment}

    def _segments(self) -> list[list[str]]:
        if not self.entry["recompute"]:
            return []
        place = self.figures.position
        ends = self.entry.get("recompute_segments") or [(self.layers[0], self.layers[-1])]
        return [[name for name in self.layers if place[a] <= place[name] <= place[b]] for a, b in ends]

    def _kept(self, names: Iterable[str]) -> tuple[float, float]:
        """Bytes of one sample that layers keep, and how far they rise above that."""
        total = top = beyond = 0.0
        for name in names:
            layer = self.figures.layers[name]
            total += layer["activation_bytes"]
            top = max(top, total + layer.get("transient_bytes", 0.0))
            after = self.figures.position[name] + 1
            if after == len(self.figures.names) or self.figures.names[after] not in self.layers:
                beyond += layer.get("carried_bytes", 0.0)
        return total + beyond, max(0.0, top - total - beyond)

    def kept(self) -> tuple[float, float]:
        """Bytes of one sample, in the profile's precision: kept for each microbatch, and there for a moment."""
        outside, peak = self._kept(name for name in self.layers if name not in self.again)
        for segment in self.segments:
            outside += self.figures.read_from_outside(segment)
            peak = max(peak, sum(self._kept(segment)))
        return outside, peak

    def memory(self, samples: int, held: int) -> float:
        """Bytes that a replica with so many samples needs."""
        figures, (kept, peak) = self.figures, self.kept()
        weights, gradients, optimizer = figures.factors
        on_device = min(held, ON_DEVICE) if self.entry["offload"] else held
        workspace = max(figures.layers[name].get("workspace_bytes", 0.0) for name in self.layers)
        return (
            figures.parameters(self.layers) * (weights + gradients + optimizer / self.entry["optimizer_shards"])
            + figures.scale * samples * (on_device * kept + peak)
            + figures.scale * workspace
        )

    def seconds(self, device: Device, samples: int, held: int) -> tuple[float, float] | None:
        """Forward and backward of a replica with so many samples, none without a sample; None where unknown."""
        if not samples:
            return 0.0, 0.0
        overhead = self.figures.overhead / (device.speed or 1.0)
        forward = backward = overhead
        for name in self.layers:
            found = self.figures.seconds(name, device, samples)
            if found is None:
                return None
            forward += found[0]
            backward += found[1] + (found[0] if name in self.again else 0.0)
        if self.entry["offload"] and held > ON_DEVICE and device.host is not None:
            over = samples * self.kept()[0] * self.figures.scale / device.host
            forward, backward = max(forward, over), max(backward, over)
        return forward, backward

    def update(self, device: Device) -> float:
        """Seconds of the optimizer on a replica."""
        layers = (self.figures.layers[name] for name in self.layers)
        seconds: float = sum((layer.get("update_s") or {}).get(self.figures.optimizer, 0.0) for layer in layers)
        return seconds / (device.speed or 1.0)


class LaidOut:
    """All stages of a plan together. ``complaints`` say what cannot be timed; then there is nothing else."""

    def __init__(
        self, figures: Figures, plan: Mapping[str, Any], stages: Sequence[HeldStage], inputs: Sequence[Sequence[int]]
    ) -> None:
        self.figures, self.stages, self.inputs = figures, stages, inputs
        self.sizes, self.schedule = plan["microbatches"], plan["schedule"]
        self.depths = depths(inputs)
        self.complaints: list[str] = []
        self.workers = joined(inputs)
        self.parts = {size: self._parts(size) for size in set(self.sizes)}
        self.replicas = self._replicas()
        self.moved = 0.0
        if self.complaints:
            return
        self.seconds = [
            {
                kind: [max(each[place] for each in replicas[k]) for k in range(len(self.sizes))]
                for place, kind in enumerate("FB")
            }
            for replicas in self.replicas
        ]
        self.updates = [max(stage.update(device) for device in stage.devices) for stage in stages]
        self.reductions = self._reductions()
        messages = self._messages()
        if self.complaints:
            return
        rows = [order(self.schedule, depth, len(self.sizes)) for depth in self.depths]
        self.last = Clock(rows, self.seconds, messages).run()
        self.step = step_seconds(self.last, self.reductions, self.updates)

    def _parts(self, size: int) -> list[list[int]]:
        """Samples of each replica of each stage in a microbatch of that size."""
        alike: dict[frozenset[str], list[list[int]]] = defaultdict(list)
        for worker in self.workers:
            alike[frozenset(name for stage in worker for name in self.stages[stage].layers)].append(worker)
        found: list[list[int]] = [[] for _ in self.stages]
        for workers in alike.values():
            parts = dealt([sum(self.stages[worker[0]].shares) for worker in workers], size)
            for worker, part in zip(workers, parts, strict=True):
                for stage in worker:
                    found[stage] = dealt(self.stages[stage].shares, part)
        return found

    def _replicas(self) -> list[list[list[tuple[float, float]]]]:
        """Seconds by stage, microbatch and replica."""
        found = []
        for stage, depth in zip(self.stages, self.depths, strict=True):
            held = len(self.sizes) if self.schedule == "gpipe" else min(len(self.sizes), depth)
            rows = []
            for size in self.sizes:
                shares = self.parts[size][stage.index]
                row = [stage.seconds(device, n, held) for device, n in zip(stage.devices, shares, strict=True)]
                if None in row:
                    self.complaints.append(f"stage {stage.index} has a layer without times")
                rows.append([each or (0.0, 0.0) for each in row])
            found.append(rows)
        return found

    # --- messages ---------------------------------------------------------------------------------------------------

    def _messages(self) -> list[Message]:
        found = []
        for worker in self.workers:
            for (source, target), size in self._routes(worker).items():
                found.append(self._message(source, target, size * self.figures.scale))
                for samples in self.sizes:
                    self.moved += 2 * sum(self.parts[samples][source]) * size * self.figures.scale
        return found

    def _routes(self, worker: Sequence[int]) -> dict[tuple[int, int], float]:
        """Bytes of one sample over each edge between stages."""
        edges = sorted((source, target) for target in worker for source in self.inputs[target])
        found = dict.fromkeys(edges, 0.0)
        chain = len({a for a, _ in edges}) == len({b for _, b in edges}) == len(edges)
        holder = {name: stage for stage in worker for name in self.stages[stage].layers}
        for reader in worker:
            read: dict[str, float] = {}
            for name in self.stages[reader].layers:
                for source, size in self.figures.edges(name).items():
                    if holder.get(source) != reader:
                        read[source] = max(read.get(source, 0.0), size)
            for source, size in read.items():
                way = self._way(holder.get(source, -1), reader, chain)
                if way is None or any(edge not in found for edge in way):
                    self.complaints.append(f"nothing brings {source} to stage {reader}")
                    continue
                for edge in way:
                    found[edge] += size
        return found

    def _way(self, maker: int, reader: int, chain: bool) -> list[tuple[int, int]] | None:
        """Edges over which a tensor goes: hop by hop along a chain, straight in any other graph."""
        if not chain:
            return [(maker, reader)]
        way = []
        while reader != maker:
            if not self.inputs[reader]:
                return None
            way.append((self.inputs[reader][0], reader))
            reader = self.inputs[reader][0]
        return way

    def _message(self, source: int, target: int, sample_bytes: float) -> Message:
        wires = [self._wires(source, target, sample_bytes, size) for size in self.sizes]
        there, back = zip(*wires, strict=True)
        return Message(
            source,
            target,
            [max(each.values(), default=0.0) for each in there],
            [max(each.values(), default=0.0) for each in back],
            max(there[0], key=lambda wire: there[0][wire]),
            max(back[0], key=lambda wire: back[0][wire]),
        )

    def _wires(self, source: int, target: int, sample_bytes: float, size: int) -> tuple[dict[Any, float], ...]:
        """Seconds by wire, there and back: samples lie as runs in the order of the devices."""
        there: dict[Any, float] = defaultdict(float)
        back: dict[Any, float] = defaultdict(float)
        for a, ahead in self._runs(source, size):
            for b, behind in self._runs(target, size):
                count = min(ahead[1], behind[1]) - max(ahead[0], behind[0])
                if count <= 0:
                    continue
                for wires, ends in ((there, (a, b)), (back, (b, a))):
                    link = self.figures.links.between(*ends)
                    if link is None:
                        self.complaints.append(f"no link from {ends[0].id} to {ends[1].id}")
                        link = math.inf, 0.0, None
                    wires[link[2]] += link[1] + count * sample_bytes / link[0]
        return there, back

    def _runs(self, stage: int, size: int) -> list[tuple[Device, tuple[int, int]]]:
        found, begin = [], 0
        for device, count in zip(self.stages[stage].devices, self.parts[size][stage], strict=True):
            found.append((device, (begin, begin + count)))
            begin += count
        return found

    # --- end of the step --------------------------------------------------------------------------------------------

    def _reductions(self) -> list[Reduction]:
        holders = {
            name: tuple(stage.index for stage in self.stages if name in stage.layers) for name in self.figures.names
        }
        alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, stages in holders.items():
            alike[stages].append(name)
        found = [
            Reduction(stages, self._ring(stages, self.figures.parameters(names))) for stages, names in alike.items()
        ]
        for group in self.figures.tied:
            if len({holders[name] for name in group}) > 1:
                stages = tuple(sorted({stage for name in group for stage in holders[name]}))
                size = min(self.figures.layers[name]["parameter_bytes"] for name in group)
                found.append(Reduction(stages, self._ring(stages, size)))
        return found

    def _ring(self, stages: Sequence[int], num_bytes: float) -> float:
        members = [device for stage in stages for device in self.stages[stage].devices]
        count = len(members)
        if count == 1:
            return 0.0
        links = [self.figures.links.between(a, b) for a in members for b in members if a is not b]
        known = [link for link in links if link is not None]
        if len(known) < len(links):
            self.complaints.append(f"devices of stages {list(stages)} have no links for an all-reduce")
            return 0.0
        slowest, latency = min(link[0] for link in known), max(link[1] for link in known)
        return 2 * (count - 1) / count * num_bytes * self.figures.scale / slowest + 2 * (count - 1) * latency

    def busy(self) -> dict[str, float]:
        """Seconds that each device computes or takes part in an all-reduce or waits for one."""
        ready = list(self.last)
        for reduction in self.reductions:
            end = max(ready[stage] for stage in reduction.stages) + reduction.seconds
            for stage in reduction.stages:
                ready[stage] = end
        found = {}
        for stage in self.stages:
            for index, device in enumerate(stage.devices):
                computing = sum(sum(row[index]) for row in self.replicas[stage.index])
                found[device.id] = computing + ready[stage.index] - self.last[stage.index] + stage.update(device)
        return found
