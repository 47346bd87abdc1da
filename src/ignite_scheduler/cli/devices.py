"""``ignite devices``: the devices of a cluster file, or those of this machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit, is_document, number, output_option, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from ignite_scheduler.model import Cluster

EPILOG: Final = """\b
Examples:
  ignite devices --cluster cluster.yaml     what the file's devices are, and their links
  ignite devices kinds                      the kinds that a cluster file may simply name
  ignite devices discover                   what this machine has, as a cluster file
  ignite devices discover > cluster.yaml
"""


@click.group(epilog=EPILOG, invoke_without_command=True)
@click.option("-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="The cluster's document.")
@output_option
@click.pass_context
def command(ctx: click.Context, *, cluster_file: Path | None, output: str) -> None:
    """Show a cluster's devices and links, the catalogue's kinds, or what this machine has."""
    if ctx.invoked_subcommand is not None:
        return
    if cluster_file is None:
        raise click.UsageError("give --cluster FILE, or 'kinds', or 'discover'")
    from ignite_scheduler import api
    from ignite_scheduler.formats import cluster_document

    cluster = api.load_cluster(cluster_file)
    if is_document(output):
        emit(cluster_document(cluster), output)
    else:
        show(device_table(cluster), "", link_table(cluster))


def device_table(cluster: Cluster) -> Table:
    """Devices with what they have and cost."""
    from ignite_scheduler.cli.plan_table import money
    from ignite_scheduler.units import format_memory

    rows = [
        [
            device.id,
            "–" if device.speed is None else f"{device.speed:g}",
            format_memory(device.memory) if math.isfinite(device.memory) else "no limit",
            ", ".join(sorted(device.dtypes)),
            "–" if device.price is None else f"{money(device.price * 3600, cluster.currency)}/h",
            "–" if device.busy_power is None else f"{device.busy_power:g} W",
        ]
        for device in cluster.devices
    ]
    return table(["device", "speed", "usable memory", "dtypes", "price", "power"], rows, right="1245")


def link_table(cluster: Cluster) -> Table:
    """Links between nodes and within them, by their first devices; a file's rules may differ for single devices."""
    from ignite_scheduler.cli.output import seconds
    from ignite_scheduler.units import format_bandwidth

    rows = []
    for node in cluster.nodes:
        for other in cluster.nodes:
            pairs = [(a, b) for a in node.devices for b in other.devices if a.id != b.id]
            links = {(link.bandwidth, link.latency): link for a, b in pairs if (link := cluster.link(a, b))}
            for link in links.values():
                speed = format_bandwidth(link.bandwidth) if math.isfinite(link.bandwidth) else "free"
                rows.append([node.name, other.name, speed, seconds(link.latency)])
            if pairs and not links:
                rows.append([node.name, other.name, "none", "–"])
    return table(["from", "to", "bandwidth", "latency"], rows, right="23")


@command.command("kinds")
@output_option
def kinds(*, output: str) -> None:
    """Kinds of device that a cluster file may name without saying more."""
    from ignite_scheduler.formats.catalogue import CATALOGUE
    from ignite_scheduler.units import format_bandwidth, format_memory

    if is_document(output):
        emit({"schema": "ignite/kinds/v1", "kinds": {name: _kind(name) for name in CATALOGUE}}, output)
        return
    rows = [
        [
            name,
            format_memory(kind.memory),
            number(kind.fp32_flops / 1e12),
            number(None if kind.half_flops is None else kind.half_flops / 1e12),
            format_bandwidth(kind.memory_bandwidth),
            "–" if kind.busy_power is None else f"{kind.busy_power:g} W",
            kind.source,
        ]
        for name, kind in CATALOGUE.items()
    ]
    columns = ["kind", "memory", "fp32 TFLOP/s", "16-bit TFLOP/s", "bandwidth", "power", "source"]
    show(table(columns, rows, right="12345"))


def _kind(name: str) -> dict[str, Any]:
    from ignite_scheduler.formats.catalogue import CATALOGUE

    kind = CATALOGUE[name]
    return {
        "memory_bytes": kind.memory,
        "dtypes": sorted(kind.dtypes),
        "fp32_flops_per_s": kind.fp32_flops,
        "half_flops_per_s": kind.half_flops,
        "memory_bandwidth_bytes_per_s": kind.memory_bandwidth,
        "busy_power_w": kind.busy_power,
        "source": kind.source,
    }


@command.command("discover")
@click.option(
    "-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="yaml", show_default=True,
    help="A cluster file, or a table to look at.",
)  # fmt: skip
def discover(*, output: str) -> None:
    """What this machine really has, as a cluster file: one device a core, and its CUDA devices."""
    from ignite_scheduler.cli.discovery import cluster_document, this_machine
    from ignite_scheduler.units import format_memory

    machine = this_machine()
    if output != "table":
        emit(cluster_document(machine), output)
        return
    memory = "unknown" if machine.memory is None else format_memory(machine.memory)
    rows = [["processor", machine.processor], ["cores", f"{machine.cores:g}"], ["memory", memory]]
    rows += [["CUDA", f"{card.name}, {format_memory(card.memory)}, {card.uuid}"] for card in machine.cards]
    if not machine.cards:
        rows.append(["CUDA", "none"])
    show(table([machine.host, ""], rows))
