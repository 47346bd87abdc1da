"""What is asked of a measurement of links, what each rank finds, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ignite_scheduler.errors import InputError
from ignite_scheduler.model import Link
from ignite_scheduler.profiler.links.fit import LineFit

DEFAULT_SIZES: Final = tuple(4**power * 1024 for power in range(1, 8))
"""4 KiB … 16 MiB."""
LEAST_SIZE: Final = 64
"""Bytes; a message carries a header."""
MOST_SIZE: Final = 2**30

Backend = Literal["gloo", "nccl"]
Pair = tuple[int, int]
"""(sending rank, receiving rank)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to measure.

    ``sizes`` are bytes of a message; ``repeats`` messages of each size in each of ``rounds`` rounds over all pairs.
    ``patience`` are the seconds that one size of one pair may take: fewer repeats (never fewer than three) where they
    would take longer, and no larger messages after one that took as long by itself. ``timeout`` are the seconds
    without a sign of a peer after which it counts as lost.
    """

    sizes: tuple[int, ...] = DEFAULT_SIZES
    repeats: int = 10
    rounds: int = 3
    patience: float = 1.0
    timeout: float = 120.0
    backend: Backend = "gloo"

    def __post_init__(self) -> None:
        if len(set(self.sizes)) < 2 or not all(LEAST_SIZE <= size <= MOST_SIZE for size in self.sizes):
            raise InputError(
                f"expected at least 2 sizes of message from {LEAST_SIZE} B to 1 GiB, found {list(self.sizes)}"
            )
        if self.repeats < 1 or self.rounds < 1:
            raise InputError(f"expected at least 1 repeat and 1 round, found {self.repeats} and {self.rounds}")
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a rank stands for: a device of a node, really at ``place`` (``cpu``, or ``cuda:N`` for nccl)."""

    device: str
    node: str
    place: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A rank's place: who sits where, which pairs are measured, and which links are played (by pair; none = real).

    ``directory`` is where the ranks of one machine keep the wires that they share.
    """

    rank: int
    endpoints: tuple[Endpoint, ...]
    pairs: tuple[Pair, ...]
    links: Mapping[Pair, Link]
    directory: str = ""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.endpoints)

    @property
    def place(self) -> str:
        """Where this rank's messages lie."""
        return self.endpoints[self.rank].place


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds of messages of one size: one in ten is below ``low``, one in ten above ``high``.

    ``typical`` is the median of the faster half: what else the machines do only ever adds.
    """

    typical: float
    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLink:
    """One direction between two devices, measured.

    ``by_size`` maps bytes to seconds one way. ``stream`` are bytes/s of many messages in a row, alone; ``congestion``
    how much longer the stream took while all pairs streamed (1 = not at all; None = there is no other pair).
    ``played`` is the link that was emulated, None = real.
    """

    source: Endpoint
    target: Endpoint
    by_size: Mapping[int, Spread]
    fit: LineFit
    stream: float
    congestion: float | None
    played: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePair:
    """All pairs from the devices of one node to those of another (or within one), streaming together.

    ``sharing`` is 0 where they took as long as the slowest alone, 1 where they took as long as one after the other;
    None where there is only one pair.
    """

    source: str
    target: str
    sharing: float | None

    @property
    def shared(self) -> bool:
        """Whether one wire for all describes them better than a wire for each."""
        return self.sharing is not None and self.sharing >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksMeasured:
    """All that was measured, with how and where."""

    endpoints: tuple[Endpoint, ...]
    pairs: tuple[PairLink, ...]
    node_pairs: tuple[NodePair, ...]
    options: Options
    one_clock: bool
    provenance: Mapping[str, Any]

    def pair(self, source: str, target: str) -> PairLink | None:
        """The direction from one device to another; None if it was not measured."""
        for link in self.pairs:
            if (link.source.device, link.target.device) == (source, target):
                return link
        return None
