"""From what the ranks noted to links: typical seconds, lines, asymmetry, congestion."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Link
from ignite_scheduler.profiler.links.fit import LineFit, fit_line
from ignite_scheduler.profiler.links.nouns import Endpoint, LinksMeasured, NodePair, Options, Pair, PairLink, Spread
from ignite_scheduler.profiler.summary import typical

UNLIKE_BANDWIDTH: Final = 1.25
"""Ratio from which the two directions of a pair are called asymmetric."""
UNLIKE_LATENCY: Final = 1.5
_LATENCY_FLOOR: Final = 20e-6
"""Seconds; latencies that differ by less are the operating system's."""


@dataclass(slots=True)
class Trips:
    """Seconds of messages by size, as the sender noted them: one way (where clocks are one) and there and back."""

    one_way: dict[int, list[float]] = field(default_factory=dict)
    round_trip: dict[int, list[float]] = field(default_factory=dict)

    def add(self, size: int, one_way: float, round_trip: float) -> None:
        """Note one message."""
        self.one_way.setdefault(size, []).append(one_way)
        self.round_trip.setdefault(size, []).append(round_trip)

    def merge(self, other: Trips) -> None:
        """Take over what another round noted."""
        for mine, theirs in ((self.one_way, other.one_way), (self.round_trip, other.round_trip)):
            for size, values in theirs.items():
                mine.setdefault(size, []).extend(values)

    def seconds(self, *, one_clock: bool) -> dict[int, list[float]]:
        """Seconds of one way by size; from round trips, half of the shortest kind is the way back of the answer."""
        if one_clock:
            return self.one_way
        back = typical(self.round_trip[min(self.round_trip)]) / 2
        return {size: [max(trip - back, trip / 2) for trip in trips] for size, trips in self.round_trip.items()}


def spread(values: Sequence[float]) -> Spread:
    """What is typical, the median, and deciles."""
    ordered = sorted(values)
    last = len(ordered) - 1
    low, high = ordered[round(0.1 * last)], ordered[round(0.9 * last)]
    return Spread(typical=typical(ordered), median=statistics.median(ordered), low=low, high=high, count=len(ordered))


def fits(trips: Mapping[Pair, Trips], *, one_clock: bool) -> dict[Pair, LineFit]:
    """A line for each pair, through what is typical of each size."""
    return {
        pair: fit_line({s: typical(v) for s, v in found.seconds(one_clock=one_clock).items()})
        for pair, found in trips.items()
    }


def sharing(alone: Sequence[float], together: float) -> float | None:
    """Where the seconds of streams together lie between those of the slowest alone (0) and of all in turn (1).

    >>> sharing([1.0, 1.0], 2.0), sharing([1.0, 0.5], 1.0), sharing([1.0], 1.0)
    (1.0, 0.0, None)
    """
    if len(alone) < 2:
        return None
    return max(0.0, min(1.0, (together - max(alone)) / (sum(alone) - max(alone))))


def are_unlike(one: LineFit, other: LineFit) -> bool:
    """Whether the two directions of a pair differ by more than measuring does."""
    fast, slow = sorted((one.bandwidth, other.bandwidth), reverse=True)
    near, far = sorted((one.latency, other.latency))
    return fast > UNLIKE_BANDWIDTH * slow or (far - near > _LATENCY_FLOOR and far > UNLIKE_LATENCY * near)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Seconds and bytes of streams: ``alone`` by pair; ``groups`` by pair of nodes, ``every`` by pair, while together.

    ``one_by_one`` are the seconds of the same messages by the pair's line.
    """

    alone: Mapping[Pair, float]
    num_bytes: Mapping[Pair, float]
    one_by_one: Mapping[Pair, float]
    groups: Mapping[tuple[str, str], float]
    every: Mapping[Pair, float]


def node_groups(endpoints: Sequence[Endpoint], pairs: Iterable[Pair]) -> dict[tuple[str, str], list[Pair]]:
    """The ``pairs`` between the devices of each ordered pair of nodes, in order."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        source, target = endpoints[pair[0]].node, endpoints[pair[1]].node
        groups.setdefault((source, target), []).append(pair)
    return groups


def ordered_pairs(world: int) -> list[Pair]:
    """All pairs of ranks, each in both directions."""
    return [(a, b) for a in range(world) for b in range(world) if a != b]


def conclude(
    endpoints: tuple[Endpoint, ...],
    trips: Mapping[Pair, Trips],
    streams: Streams,
    links: Mapping[Pair, Link],
    options: Options,
    *,
    one_clock: bool,
    provenance: Mapping[str, Any],
) -> LinksMeasured:
    """Everything that the ranks found, put together."""
    lines = fits(trips, one_clock=one_clock)
    if set(lines) != set(streams.alone):
        raise InvariantError("some pair of devices was measured in part only")
    pairs = []
    for pair, line in lines.items():
        seconds = trips[pair].seconds(one_clock=one_clock)
        pairs.append(
            PairLink(
                source=endpoints[pair[0]],
                target=endpoints[pair[1]],
                by_size={size: spread(values) for size, values in sorted(seconds.items())},
                fit=line,
                stream=streams.num_bytes[pair] / streams.alone[pair],
                congestion=streams.every[pair] / streams.alone[pair] if len(lines) > 1 else None,
                played=links.get(pair),
            )
        )
    nodes = [
        NodePair(
            source=source,
            target=target,
            # In a row takes no longer than one by one: a stream alone that did was held up by something else.
            sharing=sharing(
                [min(streams.alone[pair], streams.one_by_one[pair]) for pair in members], streams.groups[source, target]
            ),
        )
        for (source, target), members in node_groups(endpoints, lines).items()
    ]
    return LinksMeasured(
        endpoints=endpoints,
        pairs=tuple(pairs),
        node_pairs=tuple(nodes),
        options=options,
        one_clock=one_clock,
        provenance=dict(provenance),
    )
