"""What was measured as documents: all of it, and a ``links:`` section for a cluster file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from ignite_scheduler.profiler.links.analysis import are_unlike
from ignite_scheduler.profiler.links.nouns import LinksMeasured, NodePair, PairLink

_ALIKE: Final = 1.15
"""Ratio up to which links get one rule: they are told apart no better than this."""
_DIGITS: Final = 4


def links_section(measured: LinksMeasured) -> dict[str, Any]:
    """The ``links`` of a cluster file with the measured devices: few rules where links are alike, one a pair else."""
    rules: list[dict[str, Any]] = []
    done: set[tuple[str, str]] = set()
    for nodes in measured.node_pairs:
        if (nodes.source, nodes.target) in done:
            continue
        done |= {(nodes.source, nodes.target), (nodes.target, nodes.source)}
        rules += _rules(measured, nodes)
    return {"pairs": rules}


def _rules(measured: LinksMeasured, nodes: NodePair) -> list[dict[str, Any]]:
    there = _between(measured, nodes.source, nodes.target)
    shared = {"shared": True} if nodes.shared else {}
    if nodes.source == nodes.target:
        return [{"within": nodes.source} | _speed(there) | shared] if _alike(there) else _one_by_one(there)
    back = _between(measured, nodes.target, nodes.source)
    other = [n for n in measured.node_pairs if (n.source, n.target) == (nodes.target, nodes.source)]
    if other and _alike([*there, *back]) and nodes.shared == other[0].shared:
        return [{"between": [nodes.source, nodes.target]} | _speed([*there, *back]) | shared]
    rules: list[dict[str, Any]] = []
    for links, pair in zip((there, back), (nodes, *other), strict=False):
        if _alike(links):
            ends = {"from": pair.source, "to": pair.target}
            rules.append(ends | _speed(links) | ({"shared": True} if pair.shared else {}))
        else:
            rules += [{"from": link.source.device, "to": link.target.device} | _speed([link]) for link in links]
    return rules


def _one_by_one(links: Sequence[PairLink]) -> list[dict[str, Any]]:
    """A rule for each pair of devices, or for each direction where the two differ."""
    found = {(link.source.device, link.target.device): link for link in links}
    rules: list[dict[str, Any]] = []
    for (source, target), link in found.items():
        back = found.get((target, source))
        if back is None or not _alike([link, back]):
            rules.append({"from": source, "to": target} | _speed([link]))
        elif source < target:
            rules.append({"between": [source, target]} | _speed([link, back]))
    return rules


def _between(measured: LinksMeasured, source: str, target: str) -> list[PairLink]:
    return [link for link in measured.pairs if (link.source.node, link.target.node) == (source, target)]


def _alike(links: Sequence[PairLink]) -> bool:
    """Whether one rule can stand for all: bandwidths within a ratio, and no direction unlike the first."""
    rates = [link.fit.bandwidth for link in links]
    return max(rates) <= _ALIKE * min(rates) and not any(are_unlike(links[0].fit, link.fit) for link in links)


def _speed(links: Sequence[PairLink]) -> dict[str, str]:
    from ignite_scheduler.formats.quantities import bandwidth_text, duration_text

    bandwidth = _rounded(statistics.median(link.fit.bandwidth for link in links))
    latency = round(statistics.median(link.fit.latency for link in links), 7)
    return {"bandwidth": bandwidth_text(bandwidth), "latency": duration_text(latency)}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def links_document(measured: LinksMeasured) -> dict[str, Any]:
    """Everything for programs, in SI units."""
    options = measured.options
    return {
        "schema": "ignite/links/v1",
        "devices": [{"id": e.device, "node": e.node, "place": e.place} for e in measured.endpoints],
        "pairs": [_pair(measured, link) for link in measured.pairs],
        "node_pairs": [
            {"from": n.source, "to": n.target, "sharing": n.sharing, "shared": n.shared} for n in measured.node_pairs
        ],
        "links": links_section(measured),
        "one_clock": measured.one_clock,
        "emulated": any(link.played is not None for link in measured.pairs),
        "options": {
            "backend": options.backend,
            "sizes_bytes": list(options.sizes),
            "repeats": options.repeats,
            "rounds": options.rounds,
        },
        "provenance": dict(measured.provenance),
    }


def _pair(measured: LinksMeasured, link: PairLink) -> dict[str, Any]:
    back = measured.pair(link.target.device, link.source.device)
    played = link.played
    return {
        "from": link.source.device,
        "to": link.target.device,
        "latency_s": link.fit.latency,
        "bandwidth_bytes_per_s": link.fit.bandwidth,
        "r_squared": link.fit.r_squared,
        "worst_residual": link.fit.worst,
        "by_size": [
            {
                "bytes": size,
                "typical_s": seconds.typical,
                "median_s": seconds.median,
                "low_s": seconds.low,
                "high_s": seconds.high,
                "count": seconds.count,
                "residual": link.fit.residuals[size],
            }
            for size, seconds in link.by_size.items()
        ],
        "stream_bytes_per_s": link.stream,
        "congestion": link.congestion,
        "asymmetric": back is not None and are_unlike(link.fit, back.fit),
        "emulated": played and {"latency_s": played.latency, "bandwidth_bytes_per_s": played.bandwidth},
    }
