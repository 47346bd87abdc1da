"""``ignite trace``: a run's planned and measured steps in one Chrome trace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, FOLDER

EPILOG: Final = """\b
Examples:
  ignite trace runs/gpt-small > trace.json        open it in https://ui.perfetto.dev
  ignite trace runs/all --job gpt-small --out trace.json --svg step.svg
"""


@click.command(epilog=EPILOG)
@click.argument("run", type=FOLDER, metavar="RUN")
@click.option("--job", metavar="NAME", help="Which job of the run; not needed if there is only one.")
@click.option("--out", type=FILE, metavar="FILE", help="Write the trace here instead of on stdout.")
@click.option("--svg", type=FILE, metavar="FILE", help="Also draw the planned and the median measured step.")
def command(*, run: Path, job: str | None, out: Path | None, svg: Path | None) -> None:
    """Merge the planned and the measured steps of RUN (the directory of a run or of a job in it) into one trace."""
    from ignite_scheduler import api
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats import json_text, write_json, write_text

    check_places(out, svg)
    traced = api.trace(run, job=job)
    if traced.planned is None:
        exits.say("warning: no run.json above this folder, so the planned step is left out")
    if svg is not None:
        write_text(svg, traced.to_svg())
        exits.say(f"planned and measured step: {svg}")
    if out is not None:
        write_json(out, traced.to_chrome_trace())
        exits.say(f"trace: {out} (open in https://ui.perfetto.dev)")
    else:
        click.echo(json_text(traced.to_chrome_trace()), nl=False)
