"""``ignite init``: commented example documents that run as they are."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli.arguments import FOLDER

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

EPILOG: Final = """\b
Examples:
  ignite init tour
  cd tour
  ignite plan job.yaml --cluster cluster.yaml
"""


@click.command(epilog=EPILOG)
@click.argument("folder", type=FOLDER, default=Path(), metavar="[FOLDER]")
def command(*, folder: Path) -> None:
    """Write commented example documents into FOLDER (here, by default). Nothing is overwritten."""
    from ignite_scheduler.errors import ConflictError
    from ignite_scheduler.formats.files import write_text

    examples = example_files()
    present = [name for name in examples if (folder / name).exists()]
    if present:
        raise ConflictError(f"{', '.join(present)} already in {folder}: choose another folder, or move them away")
    for name, source in examples.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, source.read_text(encoding="utf-8"))
        click.echo(str(target))


def example_files() -> dict[str, Traversable]:
    """Name, as a path below the folder → the example in this package."""
    return _files(resources.files("ignite_scheduler.cli") / "examples", "")


def _files(folder: Traversable, prefix: str) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith(("__", ".")):
            continue
        if entry.is_dir():
            found |= _files(entry, f"{prefix}{entry.name}/")
        else:
            found[prefix + entry.name] = entry
    return found
