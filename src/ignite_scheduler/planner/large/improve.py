"""Local search on the exact step of a chain: boundaries, devices and whole groups move; stages merge and split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ignite_scheduler.planner.large.ground import Ground
from ignite_scheduler.planner.large.judge import Chain, Judge

WARMTH: Final = 0.01
"""How much worse, as a share of the value, a step may be accepted in the beginning."""
FAR: Final = 6
"""Layers that a boundary moves at most."""
PICK: Final = 0.6
"""How often the busiest stages are looked at before others."""


class Walk:
    """One seeded walk over chains; every trial is timed exactly."""

    def __init__(self, ground: Ground, judge: Judge, chain: Chain, value: float, source: np.random.Generator) -> None:
        self.ground, self.judge, self.source = ground, judge, source
        self.chain, self.value = chain, value
        self.best, self.best_value = chain, value
        self.size = judge.costs.num_layers
        self.kind = ground.net.kind
        self.loads = self._loads()
        straight = ground.request.replicas
        self.moves: list[Callable[[], Chain | None]] = [
            self._shift,
            self._shift,
            self._exchange,
            self._regroup,
            self._slide,
        ]
        if straight is None:
            self.moves += [self._hand_over, self._hand_over, self._split, self._merge]
        if straight == 1:
            self.moves += [self._split, self._merge]

    def run(self, trials: int) -> None:
        """Try so many changes; ``best`` and ``best_value`` hold the best chain met."""
        for trial in range(trials):
            warmth = WARMTH * (1 - trial / trials) ** 2
            changed = self.moves[int(self.source.integers(len(self.moves)))]()
            if changed is None:
                continue
            limit = self.value * (1 + warmth * float(self.source.random()))
            value = self.judge.value(changed, limit)
            if value <= limit:
                self.chain, self.value = changed, value
                self.loads = self.judge.loads(changed)
                if value < self.best_value * (1 - 1e-12):
                    self.best, self.best_value = changed, value
            if trial % 400 == 399 and self.value > self.best_value:
                self.chain, self.value = self.best, self.best_value
                self.loads = self._loads()

    def _loads(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        self.judge.value(self.chain)
        return self.judge.loads(self.chain)

    def _stage(self) -> int:
        """A stage, more often one of the busiest."""
        count = len(self.loads)
        if self.source.random() < PICK:
            busiest = np.argsort(-self.loads)[: max(1, count // 6)]
            return int(busiest[int(self.source.integers(len(busiest)))])
        return int(self.source.integers(count))

    def _end(self, s: int) -> int:
        return self.chain.first[s + 1] if s + 1 < len(self.chain.first) else self.size

    def _free(self) -> list[int]:
        held = {device for group in self.chain.groups for device in group}
        if len(held) >= self.ground.request.max_devices:
            return []
        return [device for device in range(len(self.kind)) if device not in held]

    def _put(self, first: list[int], groups: list[tuple[int, ...]]) -> Chain | None:
        if any(a >= b for a, b in zip(first, [*first[1:], self.size], strict=True)):
            return None
        if not self.ground.permits(first, groups):
            return None
        stood = set(self.chain.groups)
        groups = [group if group in stood else self.ground.standing(group) for group in groups]
        return Chain(tuple(first), tuple(groups))

    def _shift(self) -> Chain | None:
        """Layers go from a stage to its neighbour."""
        s = self._stage()
        first = list(self.chain.first)
        step = 1 + int(self.source.integers(FAR)) if self.source.random() < 0.3 else 1
        if self.source.random() < 0.5:
            if s == 0:
                return None
            first[s] += step
        else:
            if s + 1 == len(first):
                return None
            first[s + 1] -= step
        return self._put(first, list(self.chain.groups))

    def _slide(self) -> Chain | None:
        """The boundaries between two stages all move one layer: what one gives away passes along the stages between."""
        s, t = self._stage(), int(self.source.integers(len(self.loads)))
        first = list(self.chain.first)
        if s == t:
            return None
        if s < t:
            for q in range(s + 1, t + 1):
                first[q] -= 1
        else:
            for q in range(t + 1, s + 1):
                first[q] += 1
        return self._put(first, list(self.chain.groups))

    def _hand_over(self) -> Chain | None:
        """A stage gets a device from another stage, or one that is free."""
        s = self._stage()
        groups = list(self.chain.groups)
        free = self._free()
        t = int(self.source.integers(len(groups) + 1))
        if t == len(groups) or (free and self.source.random() < 0.3):
            if not free:
                return None
            groups[s] = (*groups[s], free[int(self.source.integers(len(free)))])
        elif t == s:
            if len(groups[s]) == 1:
                return None
            at = int(self.source.integers(len(groups[s])))
            groups[s] = groups[s][:at] + groups[s][at + 1 :]
        else:
            if len(groups[t]) == 1:
                return None
            count = 1 if self.source.random() < 0.6 else int(self.source.integers(1, len(groups[t])))
            at = int(self.source.integers(len(groups[t]) - count + 1))
            groups[s] = groups[s] + groups[t][at : at + count]
            groups[t] = groups[t][:at] + groups[t][at + count :]
        return self._put(list(self.chain.first), groups)

    def _exchange(self) -> Chain | None:
        """Devices of two stages, or one of them and a free one, change places."""
        s = self._stage()
        groups = list(self.chain.groups)
        own = int(self.source.integers(len(groups[s])))
        free = self._free()
        if free and self.source.random() < 0.3:
            other = free[int(self.source.integers(len(free)))]
            groups[s] = (*groups[s][:own], *groups[s][own + 1 :], other)
            return self._put(list(self.chain.first), groups)
        t = int(self.source.integers(len(groups)))
        theirs = int(self.source.integers(len(groups[t])))
        if t == s or self.kind[groups[s][own]] == self.kind[groups[t][theirs]]:
            return None
        mine, other = groups[s][own], groups[t][theirs]
        groups[s] = (*groups[s][:own], *groups[s][own + 1 :], other)
        groups[t] = (*groups[t][:theirs], *groups[t][theirs + 1 :], mine)
        return self._put(list(self.chain.first), groups)

    def _regroup(self) -> Chain | None:
        """Two stages change all their devices; with luck each keeps its number of layers with them."""
        s, t = sorted((self._stage(), int(self.source.integers(len(self.loads)))))
        if s == t:
            return None
        groups = list(self.chain.groups)
        first = list(self.chain.first)
        groups[s], groups[t] = groups[t], groups[s]
        if self.source.random() < 0.5:
            delta = (self._end(t) - first[t]) - (self._end(s) - first[s])
            for q in range(s + 1, t + 1):
                first[q] += delta
        return self._put(first, groups)

    def _split(self) -> Chain | None:
        """A stage becomes two, the devices and the layers shared out; a lone device gets a free one beside it."""
        s = self._stage()
        i, j, group = self.chain.first[s], self._end(s), self.chain.groups[s]
        if j - i < 2:
            return None
        if len(group) == 1:
            free = self._free()
            if not free:
                return None
            group = (*group, free[int(self.source.integers(len(free)))])
        at = len(group) // 2 if self.source.random() < 0.5 else 1 + int(self.source.integers(len(group) - 1))
        cut = i + max(1, min(j - i - 1, round((j - i) * at / len(group))))
        parts = [group[:at], group[at:]]
        first, groups = list(self.chain.first), list(self.chain.groups)
        first[s : s + 1], groups[s : s + 1] = [i, cut], parts
        return self._put(first, groups)

    def _merge(self) -> Chain | None:
        """Two neighbours become one stage; of one device only where a stage has no more."""
        if len(self.loads) < 2:
            return None
        s = int(self.source.integers(len(self.loads) - 1))
        first, groups = list(self.chain.first), list(self.chain.groups)
        joint = groups[s] + groups[s + 1]
        if self.ground.request.replicas == 1:
            joint = groups[s + int(self.source.integers(2))]
        del first[s + 1]
        groups[s : s + 2] = [joint]
        return self._put(first, groups)
