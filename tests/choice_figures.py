"""The figures of a choice worked out in plain loops that share no code with the package.

With the small whole numbers of ``choice_cases`` both sides are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from choice_cases import FACTORS, Case
from ignite_scheduler.cost import Assignment


def fed_by(assignment: Assignment) -> list[tuple[int, ...]]:
    """The inputs of each stage."""
    return [
        (tuple([index - 1] if index else [])) if stage.inputs is None else stage.inputs
        for index, stage in enumerate(assignment.stages)
    ]


def depth(inputs: Sequence[Sequence[int]], stage: int) -> int:
    """Stages on the longest way from the stage to the end."""
    return 1 + max((depth(inputs, other) for other, sources in enumerate(inputs) if stage in sources), default=0)


def split_over(shares: Sequence[int], samples: int) -> list[int]:
    """Shares of a microbatch of another size: rounded down, then one more to the largest remainders."""
    whole_parts = [share * samples // sum(shares) for share in shares]
    remainders = [share * samples % sum(shares) for share in shares]
    while sum(whole_parts) < samples:
        i = remainders.index(max(remainders))
        whole_parts[i] += 1
        remainders[i] = -1
    return whole_parts


class Worked:
    """The figures of one case by plain loops."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.layers, self.stages = case.profile.layers, case.assignment.stages
        self.sizes, self.inputs = case.assignment.microbatches, fed_by(case.assignment)
        self.devices = {device.id: device for device in case.cluster.devices}
        num_microbatches = len(self.sizes)
        gpipe = case.assignment.schedule == "gpipe"
        self.held = [
            num_microbatches if gpipe else min(num_microbatches, depth(self.inputs, s)) for s in range(len(self.stages))
        ]

    def worker_of(self, stage: int) -> set[int]:
        found = {stage}
        while True:
            more = {t for t, sources in enumerate(self.inputs) for s in sources if s in found or t in found}
            more |= {s for t in found for s in self.inputs[t]}
            if more <= found:
                return found
            found |= more

    def shares(self, stage: int, samples: int) -> list[int]:
        """Shares of the stage's replicas in a microbatch of so many."""
        own, full = self.stages[stage].samples, self.sizes[0]
        if sum(own) == full:
            return split_over(own, samples)
        workers = []
        for other in range(len(self.stages)):
            members = self.worker_of(other)
            if members not in workers:
                workers.append(members)
        parts = split_over([sum(self.stages[min(members)].samples) for members in workers], samples)
        return split_over(own, next(part for part, members in zip(parts, workers, strict=True) if stage in members))

    def again(self, stage: int) -> set[int]:
        choice = self.stages[stage]
        return {i for i in choice.layers for first, end in choice.recompute if first <= i < end}

    def kept(self, stage: int) -> float:
        """Activation bytes of one sample that are kept for each microbatch in flight."""
        choice = self.stages[stage]
        found = sum(self.layers[i].activation_bytes for i in choice.layers if i not in self.again(stage))
        names = {layer.name: layer for layer in self.layers}
        for first, end in choice.recompute:
            inside = {self.layers[i].name for i in choice.layers if first <= i < end}
            read = {edge.source for name in inside for edge in names[name].inputs} - inside - {"input"}
            found += sum(names[name].output_bytes for name in read)
        return found

    def seconds(self, stage: int, device: str, share: int) -> tuple[float, float]:
        """Forward and backward seconds of a replica."""
        if share == 0:
            return 0.0, 0.0
        choice, speed = self.stages[stage], self.devices[device].speed
        overhead = self.case.profile.action_overhead / speed
        times = {i: self.layers[i].times["ref"][1] for i in choice.layers}
        forward = sum(times[i].forward for i in choice.layers) * share / speed + overhead
        backward = sum(times[i].backward for i in choice.layers) * share / speed + overhead
        backward += sum(times[i].forward for i in self.again(stage)) * share / speed
        if choice.offload and self.held[stage] > 2:
            moved = share * self.kept(stage) / self.devices[device].host_bandwidth
            forward, backward = max(forward, moved), max(backward, moved)
        return forward, backward

    def stage_seconds(self, stage: int, samples: int) -> tuple[float, float]:
        choice = self.stages[stage]
        each = [self.seconds(stage, d, n) for d, n in zip(choice.devices, self.shares(stage, samples), strict=True)]
        return max(f for f, _ in each), max(b for _, b in each)

    def memory(self, stage: int, share: int) -> float:
        choice, gradients = self.stages[stage], FACTORS.gradients
        parameters = {self.layers[i].name: self.layers[i].parameter_bytes for i in choice.layers}
        total = sum(parameters.values())
        for group in self.case.profile.tied:
            here = [parameters[name] for name in group if name in parameters]
            total -= min(here) if len(here) == 2 else 0
        optimizer = FACTORS.optimizer / (len(choice.devices) if choice.shard else 1)
        held = min(2, self.held[stage]) if choice.offload else self.held[stage]
        segments = [
            sum(self.layers[i].activation_bytes for i in choice.layers if first <= i < end)
            for first, end in choice.recompute
        ]
        workspace = max(self.layers[i].workspace_bytes for i in choice.layers)
        activations = share * (held * self.kept(stage) + max(segments, default=0))
        return total * (FACTORS.weights + gradients + optimizer) + activations + workspace

    def edge_bytes(self, source: int, target: int) -> float:
        """Bytes of one sample over an edge: hop by hop along a chain, else from the maker to the reader."""
        members = self.worker_of(source)
        feeds = [s for t in members for s in self.inputs[t]]
        line = all(len(self.inputs[t]) <= 1 for t in members) and len(set(feeds)) == len(feeds)
        line = line and sum(not self.inputs[t] for t in members) == 1
        stage_of = {i: s for s in members for i in self.stages[s].layers}
        place = {name: i for i, name in enumerate(layer.name for layer in self.layers)}
        total = 0.0
        for reader in members:
            wanted = {
                place[edge.source]
                for i in self.stages[reader].layers
                for edge in self.layers[i].inputs
                if edge.source != "input" and stage_of[place[edge.source]] != reader
            }
            for made in wanted:
                maker = stage_of[made]
                if line:
                    before = depth(self.inputs, maker), depth(self.inputs, reader)
                    crosses = before[0] >= depth(self.inputs, source) and before[1] <= depth(self.inputs, target)
                else:
                    crosses = (maker, reader) == (source, target)
                total += self.layers[made].output_bytes if crosses else 0.0
        return total

    def edge_seconds(self, source: int, target: int, samples: int) -> float:
        """Seconds of the busiest pair; links are alike in both directions here."""
        sent = [i for i, n in enumerate(self.shares(source, samples)) for _ in range(n)]
        got = [i for i, n in enumerate(self.shares(target, samples)) for _ in range(n)]
        pairs = list(zip(sent, got, strict=True))
        link, num_bytes = self.case.cluster.links[0], self.edge_bytes(source, target)
        return max((link.latency + pairs.count(p) * num_bytes / link.bandwidth for p in set(pairs)), default=0.0)

    def ring(self, num_bytes: float, members: int) -> float:
        link = self.case.cluster.links[0]
        return 2 * (members - 1) / members * num_bytes / link.bandwidth + 2 * (members - 1) * link.latency

    def rings(self) -> list[tuple[tuple[int, ...], float]]:
        """All-reduces in order: stages that wait for each other, and seconds."""
        holders = [
            tuple(s for s, choice in enumerate(self.stages) if i in choice.layers) for i in range(len(self.layers))
        ]
        found = []
        for group in dict.fromkeys(holders):
            members = sum(len(self.stages[s].devices) for s in group)
            alike = {
                self.layers[i].name: self.layers[i].parameter_bytes for i, held in enumerate(holders) if held == group
            }
            total = sum(alike.values())
            for tied in self.case.profile.tied:
                total -= min(alike[name] for name in tied) if set(tied) <= set(alike) else 0
            if members > 1:
                found.append((group, self.ring(total, members)))
        for tied in self.case.profile.tied:
            ends = [int(name[1:]) for name in tied]
            if holders[ends[0]] != holders[ends[1]]:
                group = tuple(sorted({*holders[ends[0]], *holders[ends[1]]}))
                members = sum(len(self.stages[s].devices) for s in group)
                found.append((group, self.ring(min(self.layers[i].parameter_bytes for i in ends), members)))
        return found

    def update(self, stage: int) -> float:
        choice = self.stages[stage]
        own = sum(self.layers[i].update["sgd"] for i in choice.layers)
        return max(own / self.devices[d].speed for d in choice.devices)

    def order(self, stage: int) -> list[tuple[str, int]]:
        """What the stage does, one action after the other."""
        count = len(self.sizes)
        first = count if self.case.assignment.schedule == "gpipe" else min(count, depth(self.inputs, stage) - 1)
        todo = [("F", k) for k in range(first)]
        for k in range(first, count):
            todo += [("F", k), ("B", k - first)]
        return todo + [("B", k) for k in range(count - first, count)]

    def step(self) -> float:
        """The end of the step, by relaxation to the fixed point; each direction of each edge is a wire of its own."""
        ends: dict[tuple[int, str, int], float] = defaultdict(float)
        edges = [(source, target) for target, sources in enumerate(self.inputs) for source in sources]
        action = {(s, u): self.stage_seconds(s, u) for s in range(len(self.stages)) for u in set(self.sizes)}
        message = {(edge, u): self.edge_seconds(*edge, u) for edge in edges for u in set(self.sizes)}
        changed = True
        while changed:
            changed = False
            arrived: dict[tuple[int, str, int], float] = defaultdict(float)
            for source, target in edges:
                for sender, receiver, kind in ((source, target, "F"), (target, source, "B")):
                    wire = 0.0
                    for k, size in enumerate(self.sizes):
                        wire = max(wire, ends[sender, kind, k]) + message[(source, target), size]
                        arrived[receiver, kind, k] = max(arrived[receiver, kind, k], wire)
            for s in range(len(self.stages)):
                free = 0.0
                for kind, k in self.order(s):
                    free = max(free, arrived[s, kind, k]) + action[s, self.sizes[k]][kind == "B"]
                    if ends[s, kind, k] != free:
                        ends[s, kind, k], changed = free, True
        ready = [ends[s, "B", len(self.sizes) - 1] for s in range(len(self.stages))]
        for group, seconds in self.rings():
            done = max(ready[s] for s in group) + seconds
            for s in group:
                ready[s] = done
        return max(ready[s] + self.update(s) for s in range(len(self.stages)))
