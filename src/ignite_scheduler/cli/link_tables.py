"""Measured links for people: a line for each direction, what stands out, and the rules that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ignite_scheduler.cli.output import percent, seconds, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ignite_scheduler.profiler.links import LinksMeasured, NodePair, PairLink


def parts(measured: LinksMeasured, *, wide: bool) -> list[RenderableType]:
    """Tables and notes; the wide form has every size with its spread and residual."""
    from ignite_scheduler.formats.files import yaml_text
    from ignite_scheduler.profiler.links import links_section

    shown: list[RenderableType] = [_pairs(measured), ""]
    if wide:
        shown += [_sizes(measured), ""]
    shown += [*_notes(measured), "", yaml_text({"links": links_section(measured)}).rstrip()]
    return shown


def _pairs(measured: LinksMeasured) -> Table:
    from ignite_scheduler.units import format_bandwidth

    columns = ["from", "to", "latency", "bandwidth", "R²", "worst residual", "stream", "all at once", "played as"]
    rows = [
        [
            link.source.device,
            link.target.device,
            seconds(link.fit.latency),
            format_bandwidth(link.fit.bandwidth),
            f"{link.fit.r_squared:.4f}",
            percent(link.fit.worst),
            format_bandwidth(link.stream),
            "–" if link.congestion is None else f"{link.congestion:.2f} ×",
            _played(link),
        ]
        for link in measured.pairs
    ]
    return table(columns, rows, right="234567")


def _played(link: PairLink) -> str:
    from ignite_scheduler.units import format_bandwidth

    if link.played is None:
        return "real"
    return f"{seconds(link.played.latency)} + {format_bandwidth(link.played.bandwidth)}"


def _sizes(measured: LinksMeasured) -> Table:
    from ignite_scheduler.formats.quantities import memory_text

    rows = [
        [
            link.source.device,
            link.target.device,
            memory_text(size),
            seconds(found.typical),
            seconds(found.median),
            f"{seconds(found.low)} … {seconds(found.high)}",
            str(found.count),
            f"{100 * link.fit.residuals[size]:+.1f} %",
        ]
        for link in measured.pairs
        for size, found in link.by_size.items()
    ]
    return table(
        ["from", "to", "message", "typical", "median", "80 % of them", "count", "residual"], rows, right="234567"
    )


def _notes(measured: LinksMeasured) -> list[str]:
    how = "real: nothing is emulated"
    if any(link.played for link in measured.pairs):
        how = "emulated: real messages between processes of this machine, with the cluster's links played on top"
    clock = "one clock for all" if measured.one_clock else "no common clock: latency is half of a round trip"
    notes = [f"{measured.options.backend}, {how}; {clock}"]
    notes += [_asymmetry(measured, link) for link in measured.pairs if _is_first_of_unlike(measured, link)]
    return notes + [_congestion(nodes) for nodes in measured.node_pairs if nodes.shared]


def _congestion(nodes: NodePair) -> str:
    within = nodes.source == nodes.target
    where = f"within {nodes.source}" if within else f"from {nodes.source} to {nodes.target}"
    return (
        f"congested: pairs {where} at once take {percent(nodes.sharing, 0)} of the way from as long as the slowest "
        "alone to as long as one after the other: one wire describes them better (shared: true)"
    )


def _is_first_of_unlike(measured: LinksMeasured, link: PairLink) -> bool:
    from ignite_scheduler.profiler.links.analysis import are_unlike

    back = measured.pair(link.target.device, link.source.device)
    return back is not None and link.source.device < link.target.device and are_unlike(link.fit, back.fit)


def _asymmetry(measured: LinksMeasured, link: PairLink) -> str:
    from ignite_scheduler.units import format_bandwidth

    back = measured.pair(link.target.device, link.source.device)
    assert back is not None
    there, again = (f"{seconds(one.fit.latency)} + {format_bandwidth(one.fit.bandwidth)}" for one in (link, back))
    return f"asymmetric: {link.source.device} → {link.target.device} {there}, back {again}"
