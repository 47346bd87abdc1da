"""``ignite demo``: several real trainings over unlike emulated devices, from measuring to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ignite_scheduler.cli.arguments import FOLDER

EPILOG: Final = """\b
Examples:
  ignite demo                     about four minutes on two cores
  ignite demo --quick             about a minute: fewer steps, rougher figures
  ignite demo --out my-report

\b
What is real: the models, their data, the training, its processes and every time shown.
What is emulated: the devices (each is this machine's processor, slowed down) and the links between them.
"""


@click.command(epilog=EPILOG)
@click.option("--out", "folder", type=FOLDER, default=Path("report"), show_default=True, help="Where the report goes.")
@click.option("--quick", is_flag=True, help="Fewer steps and passes.")
@click.option("--policy", default="ignite", show_default=True, help="Who gets what: fifo, backfill or ignite.")
@click.pass_context
def command(ctx: click.Context, *, folder: Path, quick: bool, policy: str) -> None:
    """Train AlexNet, VGG, SqueezeNet and a GPT, each small, on four unlike devices in two nodes, and leave a report."""
    from ignite_scheduler.cli.demo.scenes import play

    ctx.exit(play(folder, quick=quick, policy=policy))
