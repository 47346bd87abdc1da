"""``ignite schema``: JSON schemas of our documents, for editors and other programs."""

from __future__ import annotations

from typing import Final

import click

from ignite_scheduler.cli.output import emit

EPILOG: Final = """\b
Examples:
  ignite schema                    names of the documents that have one
  ignite schema cluster > cluster.schema.json
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True, help="How it is printed."
)
def command(*, name: str | None, output: str) -> None:
    """Print the JSON schema of the document NAME; without a name, the names."""
    from ignite_scheduler.formats import SCHEMA_NAMES, schema

    if name is None:
        for known in SCHEMA_NAMES:
            click.echo(known)
        return
    emit(schema(name), output)
