"""``ignite export``: our profiles in the formats of other planners."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, Kind

if TYPE_CHECKING:
    from ignite_scheduler.formats.foreign import Exported

EPILOG: Final = """\b
Examples:
  ignite export profile gpt.profile.json --to pipedream --samples 8 --write gpt-pbs-8.txt
  ignite export profile gpt.profile.json --to piper --kind A100-40GB > gpt.piper.json
  ignite export profile opt.profile.json --to sailor --write profiles

\b
What the format has no place for is said on stderr. docs/import_export.md has the formats and their units.
"""

FORMAT_NAMES: Final = ("pipedream", "dapple", "piper", "dnn-partitioning", "sailor")


@click.group(epilog=EPILOG)
def command() -> None:
    """Write our documents in other tools' formats."""


@command.command("profile", epilog=EPILOG)
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--to", "form", type=click.Choice(FORMAT_NAMES), required=True, help="Format to write.")
@click.option(
    "--kind", type=Kind(), help="Kind of device whose times are written [default: the reference; Sailor: all]."
)
@click.option(
    "--samples", type=click.IntRange(min=1),
    help="Size of microbatch whose times are written [default: the largest measured; Sailor: all].",
)  # fmt: skip
@click.option(
    "--write", "out", type=click.Path(path_type=Path), metavar="OUT",
    help="Write here instead of on stdout; for Sailor a folder that gets compute/MODEL and memory.",
)  # fmt: skip
def profile(*, file: Path, form: str, kind: str | None, samples: int | None, out: Path | None) -> None:
    """Write FILE, a profile of ours, in another planner's format."""
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.errors import InputError
    from ignite_scheduler.formats import load_profile
    from ignite_scheduler.formats.foreign import export_profile

    if form == "sailor" and out is None:
        raise InputError("Sailor's profiles are several files: say --write FOLDER")
    if form == "sailor" and out is not None and out.exists() and not out.is_dir():
        raise InputError(f"cannot write below {out}: it is a file; Sailor's profiles are several files in a folder")
    check_places(None if form == "sailor" else out)
    written = export_profile(load_profile(file), form, kind=kind, samples=samples)
    _write(written, out)
    for text in written.notes:
        exits.say(f"note: {text}")
    for text in written.lost:
        exits.say(f"lost: {text}")


def _write(written: Exported, out: Path | None) -> None:
    from ignite_scheduler.formats.files import write_text

    for name, text in written.texts.items():
        if out is None:
            click.echo(text, nl=False)
            continue
        place = out / name if name else out
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, text)
        exits.say(f"written: {place}")
