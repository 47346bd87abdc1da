"""Who holds what: the ranks of each stage, and the samples of a microbatch that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ignite_scheduler.cost.replicas import last_shares, samples_between
from ignite_scheduler.model import Plan


class Piece(NamedTuple):
    """Samples of one microbatch that go from one rank to another.

    ``size`` of them; ``taken`` and ``put`` are where they begin among the sender's and among the receiver's samples of
    the microbatch.
    """

    sender: int
    receiver: int
    taken: int
    put: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The ranks of a pipeline. A stage's replicas hold runs of each microbatch's samples, in the order of ``ranks``.

    Parameters
    ----------
    ranks
        Of each stage, the ranks of its replicas.
    samples
        Of each stage, the replicas' shares of a full microbatch.
    """

    ranks: tuple[tuple[int, ...], ...]
    samples: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, plan: Plan) -> Crew:
        """The crew of a plan; its devices are ranks in the order in which they are held."""
        rank_of = {device: rank for rank, device in enumerate(plan.device_ids)}
        return cls(
            ranks=tuple(tuple(rank_of[share.device] for share in stage.devices) for stage in plan.stages),
            samples=tuple(tuple(share.samples for share in stage.devices) for stage in plan.stages),
        )

    @classmethod
    def straight(cls, ranks: Sequence[int]) -> Crew:
        """One rank for each stage."""
        return cls(ranks=tuple((rank,) for rank in ranks), samples=((1,),) * len(ranks))

    @cached_property
    def replicated(self) -> bool:
        """Whether a stage has several ranks."""
        return any(len(ranks) > 1 for ranks in self.ranks)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that the rank holds, or has a share of."""
        return tuple(stage for stage, ranks in enumerate(self.ranks) if rank in ranks)

    def shares(self, stage: int, size: int) -> tuple[int, ...]:
        """Samples of each replica in a microbatch of ``size``; 0 = it has nothing to do with it."""
        if len(self.ranks[stage]) == 1:
            return (size,)
        full = self.samples[stage]
        return full if size == sum(full) else last_shares(full, size)

    def run(self, stage: int, rank: int, size: int) -> tuple[int, int]:
        """First and end of the rank's samples within a microbatch of ``size``."""
        shares, place = self.shares(stage, size), self.ranks[stage].index(rank)
        first = sum(shares[:place])
        return first, first + shares[place]

    def runs(self, stage: int, rank: int, microbatches: Sequence[int]) -> tuple[range, ...]:
        """Places in the batch of the rank's samples, by microbatch."""
        starts = accumulate(microbatches, initial=0)
        owned = (self.run(stage, rank, size) for size in microbatches)
        return tuple(range(start + first, start + end) for start, (first, end) in zip(starts, owned, strict=False))

    def pieces(self, source: int, target: int, size: int) -> tuple[Piece, ...]:
        """What goes from stage to stage of a microbatch of ``size``, in the order of its samples."""
        senders, receivers = self.shares(source, size), self.shares(target, size)
        starts, places = list(accumulate(senders, initial=0)), list(accumulate(receivers, initial=0))
        found = []
        for (i, j), count in samples_between(senders, receivers).items():
            first = max(starts[i], places[j])
            sender, receiver = self.ranks[source][i], self.ranks[target][j]
            found.append(Piece(sender, receiver, first - starts[i], first - places[j], count))
        return tuple(found)
