"""What chains over a wide cluster are worth: the arrays of one family, and chains as they are searched over."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ignite_scheduler.cost import Assignment, StageChoice, microbatch_sizes
from ignite_scheduler.planner.groups.costs import Costs, for_family
from ignite_scheduler.planner.groups.stage import CHEAPEST, EACH, KEEP, OFFLOAD, SHARD, WHOLE, share_out
from ignite_scheduler.planner.kernel import Floats, Ints
from ignite_scheduler.planner.large.chain import Family, Net, chain_value, make_sheet
from ignite_scheduler.planner.problem import Family as Kin


class Chain(NamedTuple):
    """Stages in order: the layers at which they begin, and the devices of each, by place in the world.

    Devices of a stage stand by block, then by place.
    """

    first: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


class Judge:
    """Values of chains of one family; ``timed`` counts them."""

    def __init__(self, costs: Costs, net: Net, kin: Kin) -> None:
        self.kin = kin
        self.costs = for_family(costs, kin.samples, kin.last_samples)
        self.net = net
        self.family = Family(kin.num_microbatches, kin.schedule == "gpipe")
        size = min(costs.num_layers, len(net.kind))
        self.sheet = make_sheet(size, len(net.kind), costs.num_layers)
        self.timed = 0
        self._base: dict[tuple[int, ...], Ints] = {}

    def value(self, chain: Chain, limit: float = np.inf) -> float:
        """The objective of the chain; infinite where it does not fit, lacks samples to share or exceeds the limit."""
        self.timed += 1
        bases = []
        for group in chain.groups:
            base = self._base_shares(group)
            if base is None:
                return np.inf
            bases.append(base)
        return float(
            chain_value(
                self.costs,
                self.net,
                self.family,
                self.sheet,
                np.array((*chain.first, self.costs.num_layers), dtype=np.int64),
                np.cumsum([0, *map(len, chain.groups)]),
                np.array([device for group in chain.groups for device in group], dtype=np.int64),
                np.concatenate(bases),
                len(chain.groups),
                limit * (1 + 1e-9),
            )
        )

    def _base_shares(self, group: tuple[int, ...]) -> Ints | None:
        """Shares where memory does not matter; None where there are more devices than samples."""
        if len(group) > self.kin.samples:
            return None
        base = self._base.get(group)
        if base is None:
            kinds = self.net.kind[list(group)]
            base = np.zeros(len(group), np.int64)
            share_out(self.costs, kinds, len(group), np.full(len(group), self.kin.samples), 1, base)
            self._base[group] = base
        return base

    def loads(self, chain: Chain) -> Floats:
        """[stage]: seconds of work and all-reduce of a step, after :meth:`value` of the chain."""
        stages = len(chain.groups)
        work = self.sheet.seconds[:stages, :2].sum(axis=1) * (self.kin.num_microbatches - 1)
        return np.asarray(work + self.sheet.seconds[:stages, 2:].sum(axis=1) + self.sheet.ring[:stages])

    def assignment(self, chain: Chain, ids: tuple[str, ...]) -> Assignment:
        """The chain in words of the cost model."""
        self.value(chain)
        stages = []
        ends = (*chain.first[1:], self.costs.num_layers)
        offset = 0
        for s, (i, j, group) in enumerate(zip(chain.first, ends, chain.groups, strict=True)):
            code = int(self.sheet.code[s])
            shares = self.sheet.shares[offset : offset + len(group)]
            offset += len(group)
            segments: tuple[tuple[int, int], ...] = ()
            if code & EACH == WHOLE:
                segments = ((i, j),)
            elif code & EACH != KEEP:
                assert code & EACH in (CHEAPEST, EACH)
                segments = tuple((layer, layer + 1) for layer in range(i, j) if self.sheet.again[layer])
            stages.append(
                StageChoice(
                    layers=tuple(range(i, j)),
                    devices=tuple(ids[device] for device in group),
                    samples=tuple(int(share) for share in shares),
                    recompute=segments,
                    offload=bool(code & OFFLOAD),
                    shard=bool(code & SHARD),
                )
            )
        total = self.kin.samples * (self.kin.num_microbatches - 1) + self.kin.last_samples
        return Assignment(
            stages=tuple(stages),
            microbatches=microbatch_sizes(total, self.kin.samples),
            schedule=self.kin.schedule,
        )
