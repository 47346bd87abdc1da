"""``ignite devices``: the catalogue's kinds, the devices of a cluster file, or those of this machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit, is_document, output_option, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from ignite_scheduler.cli.discovery import Machine
    from ignite_scheduler.model import Cluster

EPILOG: Final = """\b
Examples:
  ignite devices                            the kinds that a cluster file may simply name
  ignite devices -o wide                    the same, with the source of every figure
  ignite devices kinds h100                 kinds with h100 in their names
  ignite devices --cluster cluster.yaml     what the file's devices are, and their links
  ignite devices discover                   what this machine has, as a cluster file
  ignite devices discover > cluster.yaml
"""


@click.group(epilog=EPILOG, invoke_without_command=True)
@click.option("-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="The cluster's document.")
@output_option
@click.pass_context
def command(ctx: click.Context, *, cluster_file: Path | None, output: str) -> None:
    """Show the catalogue's kinds, a cluster's devices and links, or what this machine has."""
    if ctx.invoked_subcommand is not None:
        return
    if cluster_file is None:
        _show_kinds(None, output)
        return
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
@click.argument("pattern", required=False)
@output_option
def kinds(*, pattern: str | None, output: str) -> None:
    """Kinds of device that a cluster file may name without saying more; with PATTERN those whose names contain it."""
    _show_kinds(pattern, output)


def _show_kinds(pattern: str | None, output: str) -> None:
    from ignite_scheduler.cli.kinds import chosen, document, parts

    found = chosen(pattern)
    if is_document(output):
        emit(document(found), output)
    else:
        show(*parts(found, wide=output == "wide"))


@command.command("discover")
@click.option(
    "-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="yaml", show_default=True,
    help="A cluster file, or a table to look at.",
)  # fmt: skip
def discover(*, output: str) -> None:
    """What this machine really has, as a cluster file: one device a core, and its GPUs.

    Memory is what there is at most; what is taken now stands beside it as used_by_others.
    """
    from ignite_scheduler.cli.discovery import cluster_document, this_machine

    machine = this_machine()
    if output == "table":
        show(table([machine.host, ""], _facts(machine)))
    else:
        emit(cluster_document(machine), output)


def _facts(machine: Machine) -> list[list[str]]:
    from ignite_scheduler.units import format_memory

    def size(value: int | None) -> str:
        return "unknown" if value is None else format_memory(value)

    kind = f"{machine.processor}, in the catalogue: {machine.kind}" if machine.kind else machine.processor
    limit = "" if machine.memory_limit is None else f" (a control group allows {size(machine.memory_limit)})"
    rows = [
        ["processor", kind],
        ["cores", f"{machine.cores:g}"],
        ["memory", f"{size(machine.memory)}{limit}, {size(machine.used_by_others)} of it in use"],
    ]
    for card in machine.cards:
        number = card.num_processes
        users = "" if number is None else f" by {number} process{'' if number == 1 else 'es'}"
        used = f"{size(card.used_by_others)} in use{users}"
        rows.append([card.runtime, f"{card.name}, kind {card.kind}, {size(card.memory)}, {used}, {card.uuid}"])
    return rows if machine.cards else [*rows, ["GPU", "none"]]
