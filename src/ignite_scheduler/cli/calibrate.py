"""``ignite calibrate``: what finished runs teach about predictions, and which devices have become slow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit, is_document, number, output_option, percent, seconds, show, span, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ignite_scheduler.api import Calibrated
    from ignite_scheduler.cost.calibration import Calibration
    from ignite_scheduler.cost.drift import Drift

EPILOG: Final = """\b
Examples:
  ignite calibrate runs/three --write calibration.json
  ignite calibrate runs --update calibration.json --write calibration.json    (runs that are new count)
  ignite plan job.yaml -c cluster.yaml --calibration calibration.json

\b
Nothing is learnt silently: a calibration counts only where a command is given it by --calibration.
"""


@click.command(epilog=EPILOG)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="RUN...")
@click.option("--update", type=FILE, metavar="FILE", help="An earlier calibration, which the runs refine.")
@click.option("--write", "place", type=FILE, metavar="FILE", help="Write the calibration there.")
@output_option
def command(*, runs: tuple[Path, ...], update: Path | None, place: Path | None, output: str) -> None:
    """Learn from finished RUNs how far predictions were off, on which devices, and how surely.

    RUN is the directory of a run, or one that holds several: each job that finished left an observation.json below it.
    With --update the devices are held against the earlier calibration: those that have become slower are named.
    """
    from ignite_scheduler import api
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats.files import write_json

    check_places(place)
    calibrated = api.calibrate(runs, update=update)
    if calibrated.num_known:
        exits.say(f"passed over: {calibrated.num_known} that were there twice or are in {update or 'it'} already")
    if place is not None:
        write_json(place, calibrated.to_dict())
        exits.say(f"calibration: {place}")
    if is_document(output):
        emit(calibrated.report(), output)
    else:
        show(*calibration_parts(calibrated))
    for drift in calibrated.drifts:
        if drift.is_slow:
            exits.say(f"warning: {drift}")


def calibration_parts(calibrated: Calibrated) -> list[RenderableType]:
    """The calibration's tables and lines, and each device's drift."""
    against = "the calibration before" if calibrated.before is not None else "what the runs show together"
    return [
        kind_table(calibrated.calibration),
        "",
        *constant_lines(calibrated.calibration),
        "",
        f"devices, against {against}:",
        "",
        drift_table(calibrated.drifts),
    ]


def kind_table(calibration: Calibration) -> Table:
    """A row for each kind of device."""
    rows = [
        [
            "any other" if name == "*" else name,
            number(kind.rate),
            seconds(kind.launch),
            percent(kind.contention),
            f"{percent(kind.achievable_flops, 0)} / {percent(kind.achievable_bandwidth, 0)}",
            percent(kind.spread),
            str(kind.num_stages),
        ]
        for name, kind in sorted(calibration.kinds.items())
    ]
    columns = ["kind", "rate", "launch", "contention", "FLOP/s / bandwidth", "spread", "stages seen"]
    return table(columns, rows, right="123456")


def constant_lines(calibration: Calibration) -> list[str]:
    """What holds for all kinds, a line each."""
    residual, checkpoint = calibration.residual, calibration.checkpoint
    lines = [
        f"runs {calibration.num_runs}   step, measured ÷ predicted: {number(residual.middle)} "
        f"(80 % of runs: {number(residual.low)} to {number(residual.high)})",
        f"message {seconds(calibration.message)}   update × {number(calibration.update)}   "
        f"step {seconds(calibration.step)}   overlap {percent(calibration.overlap, 0)}",
    ]
    if calibration.startup is not None:
        startup = calibration.startup
        lines.append(f"start {seconds(startup.middle)} ({span(startup.low, startup.high)})")
    if checkpoint is not None:
        moving = f" + its bytes at {checkpoint.bandwidth / 1e6:.4g} MB/s" if math.isfinite(checkpoint.bandwidth) else ""
        lines.append(f"checkpoint {seconds(checkpoint.base)}{moving}")
    return lines


def drift_table(drifts: tuple[Drift, ...]) -> Table:
    """A row for each device: how long it computed against what was predicted."""
    rows = [
        [
            drift.device,
            drift.kind,
            number(drift.ratio),
            number(drift.limit),
            str(drift.num_actions),
            "[bold red]slow[/]" if drift.is_slow else "",
        ]
        for drift in drifts
    ]
    return table(["device", "kind", "measured ÷ predicted", "up to", "actions", ""], rows, right="234")
