"""``ignite import``: public profiles and tables of links in our formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, Kind
from ignite_scheduler.cli.output import emit

EPILOG: Final = """\b
Examples:
  ignite import profile vgg16.graph.txt --samples 64 --write vgg16.profile.json
  ignite import profile sailor/compute/OPT-350 --tensor-parallel 2 --write opt.profile.json
  ignite import profile bert-24-pbs-6.txt > bert.profile.json
  ignite import links geo_links.json --write links.yaml

\b
What is assumed is said on stderr and kept in the profile's provenance. docs/import_export.md has the formats,
their units, and what is refused and why.
"""

FORMAT_NAMES: Final = ("pipedream", "dapple", "piper", "dnn-partitioning", "sailor", "pipeedge")
ANY: Final = click.Path(path_type=Path)


class Bandwidth(click.ParamType[float]):
    """A bandwidth with its unit, ``2GB/s``, in bytes/s."""

    name = "bandwidth"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Bytes/s; a usage error if the text is no bandwidth above 0."""
        from ignite_scheduler.errors import InputError
        from ignite_scheduler.units import parse_bandwidth

        try:
            found = value if isinstance(value, float) else parse_bandwidth(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        if not 0 < found < float("inf"):
            self.fail(f"expected a bandwidth above 0 such as 2GB/s, found {value!r}", param, ctx)
        return found


@click.group(epilog=EPILOG)
def command() -> None:
    """Bring public data into our formats."""


@command.command("profile", epilog=EPILOG)
@click.argument("path", type=ANY, metavar="FILE|FOLDER")
@click.option("--format", "form", type=click.Choice(FORMAT_NAMES), help="Format [default: by content].")
@click.option(
    "--samples", type=click.IntRange(min=1),
    help="Samples of the minibatch that was profiled [default: N of '-pbs-N' in the file's name, else 1].",
)  # fmt: skip
@click.option("--kind", type=Kind(), help="Kind of device that was profiled [default: the file's, else 'reference'].")
@click.option(
    "--tensor-parallel", type=click.IntRange(min=1), metavar="N",
    help="Degree of tensor parallelism to take [default: 1; Sailor: the least that most kinds have].",
)  # fmt: skip
@click.option(
    "--time-unit", type=click.Choice(["s", "ms"]), help="Unit of a Piper file's times [default: by its names]."
)
@click.option(
    "--backward-ratio", type=click.FloatRange(min=0, max=100), metavar="R",
    help="Backward ÷ forward where only inference was measured [default: 2].",
)  # fmt: skip
@click.option(
    "--edge-bandwidth", type=Bandwidth(), metavar="B",
    help="Makes bytes of the transfer times of a dnn-partitioning file without sizes [default: 2GiB/s].",
)  # fmt: skip
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME",
    help="A node of a Piper or dnn-partitioning file that is the model's input, no layer. May be repeated.",
)
@click.option("--write", "--out", "out", type=FILE, metavar="OUT", help="Write the profile here instead of on stdout.")
def profile(*, path: Path, form: str | None, out: Path | None, **choices: Any) -> None:
    """Read FILE, a profile of PipeDream, DAPPLE, Piper, dnn-partitioning, Sailor or PipeEdge, as one of ours.

    FOLDER: where one model lies in several files (Sailor's compute/MODEL, PipeEdge's model and devices), all of its
    kinds of device at once.
    """
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats import profile_document, write_json
    from ignite_scheduler.formats.foreign import Choices, import_profile

    check_places(out)
    found = import_profile(path, form=form, choices=Choices(**choices))
    say_notes(found.assumptions, found.warnings)
    document = profile_document(found.profile)
    if out is None:
        emit(document, "json")
        return
    write_json(out, document)
    kinds = ", ".join(found.profile.layers[0].times)
    count = len(found.profile.layers)
    exits.say(f"{found.profile.name}: {count} layer{'' if count == 1 else 's'} on {kinds}, {out}")


@command.command("links", epilog=EPILOG)
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--write", "out", type=FILE, metavar="OUT", help="Write the section here instead of on stdout.")
def links(*, file: Path, out: Path | None) -> None:
    """Read FILE, DT-FM's delays and bandwidths between regions, as the links of a cluster file."""
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats.files import write_yaml
    from ignite_scheduler.formats.foreign import import_links

    check_places(out)
    section, notes = import_links(file)
    say_notes(notes.assumptions, notes.warnings)
    if out is None:
        emit(section, "yaml")
        return
    write_yaml(out, section)
    exits.say(f"{len(section['links']['pairs'])} links, {out}")


def say_notes(assumptions: tuple[str, ...] | list[str], warnings: tuple[str, ...] | list[str]) -> None:
    """Print on stderr what was assumed and what a person should look at."""
    for text in assumptions:
        exits.say(f"assumed: {text}")
    for text in warnings:
        exits.say(f"warning: {text}")
