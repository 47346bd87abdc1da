"""``ignite import``: public profiles in our format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit

EPILOG: Final = """\b
Examples:
  ignite import profile vgg16.graph.txt --samples 64 --out vgg16.profile.json
  ignite import profile bert-24-pbs-6.txt > bert.profile.json
"""


@click.group(epilog=EPILOG)
def command() -> None:
    """Bring public data into our formats."""


@command.command("profile", epilog=EPILOG)
@click.argument("file", type=FILE, metavar="FILE")
@click.option(
    "--samples", type=click.IntRange(min=1),
    help="Samples of the minibatch that was profiled [default: N of '-pbs-N' in the file's name, else 1].",
)  # fmt: skip
@click.option("--kind", default="reference", show_default=True, help="Kind of device that was profiled.")
@click.option("--out", type=FILE, metavar="FILE", help="Write the profile here instead of on stdout.")
def profile(*, file: Path, samples: int | None, kind: str, out: Path | None) -> None:
    """Read FILE, a graph in the text form of PipeDream and DAPPLE, as a profile."""
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats import profile_document, write_json
    from ignite_scheduler.formats.graph_text import load_graph_text

    check_places(out)
    if samples is None:
        named = re.search(r"-pbs-(\d+)", file.name)
        samples = max(1, int(named.group(1))) if named else 1
        exits.say(
            f"samples of the profiled minibatch: {samples}" + ("" if named else " (say --samples if you know them)")
        )
    found = load_graph_text(file, samples=samples, kind=kind)
    if out is None:
        emit(profile_document(found), "json")
        return
    write_json(out, profile_document(found))
    exits.say(f"{found.name}: {len(found.layers)} layers, {out}")
