"""``ignite doctor``: is this environment fit, and does the engine compute a job's gradients right?"""

from __future__ import annotations

import platform
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit, is_document, output_option, show, table

Verdict = Literal["ok", "note", "bad"]

EPILOG: Final = """\b
Examples:
  ignite doctor                         Python, PyTorch, cores, memory, control groups
  ignite doctor --gradients job.yaml    train a few steps split and whole, compare every gradient

\b
Exit code 1 if something that is needed is missing, or if a gradient is off.
"""

NEEDED: Final = ("click", "rich", "ruamel.yaml", "pydantic", "numpy", "numba", "highspy", "drawsvg", "sqlalchemy")
FOR_TRAINING: Final = ("torch", "scikit-learn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at: what was found, and what to do if it is not ``ok``."""

    subject: str
    verdict: Verdict
    found: str
    advice: str = ""


@click.command(epilog=EPILOG)
@click.option("--gradients", "job_file", type=FILE, metavar="JOB", help="Check the gradients of this job's model.")
@click.option(
    "--precision", type=click.Choice(["fp32", "fp64"]), default="fp32", show_default=True, help="Of the gradients."
)
@output_option
@click.pass_context
def command(ctx: click.Context, *, job_file: Path | None, precision: str, output: str) -> None:
    """Check this environment, or the gradients of a job."""
    if job_file is not None:
        from ignite_scheduler.cli.gradients import check

        ctx.exit(check(job_file, output, precision=precision))
    findings = examine()
    if is_document(output):
        emit({"schema": "ignite/doctor/v1", "findings": [asdict(finding) for finding in findings]}, output)
    else:
        marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[red]bad[/]"}
        rows = [[f.subject, marks[f.verdict], f.found, f.advice] for f in findings]
        show(table(["", "", "found", "what to do"], rows))
    ctx.exit(exits.FAILED if any(finding.verdict == "bad" for finding in findings) else exits.DONE)


def examine() -> list[Finding]:
    """Everything that planning, simulating and training rest on."""
    return [_python(), *map(_package, NEEDED), *map(_extra, FOR_TRAINING), *_machine(), _temporary_folder()]


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding(subject="Python", verdict="ok", found=found)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(package: str) -> Finding:
    found = _version(package)
    if found is not None:
        return Finding(subject=package, verdict="ok", found=found)
    return Finding(subject=package, verdict="bad", found="not installed", advice="pip install ignite-scheduler")


def _extra(package: str) -> Finding:
    found = _version(package)
    if found is not None:
        return Finding(subject=package, verdict="ok", found=found)
    advice = "needed to train and to profile: pip install 'ignite-scheduler[torch]'"
    return Finding(subject=package, verdict="note", found="not installed", advice=advice)


def _machine() -> list[Finding]:
    from ignite_scheduler.cli.discovery import cgroup_version, this_machine
    from ignite_scheduler.units import format_memory

    machine = this_machine()
    cards = ", ".join(f"{card.name} ({format_memory(card.memory)})" for card in machine.cards)
    memory = "unknown" if machine.memory is None else format_memory(machine.memory)
    few = machine.cores < 2
    return [
        Finding(
            subject="cores",
            verdict="note" if few else "ok",
            found=f"{machine.cores:g} ({machine.processor})",
            advice="emulated devices keep their pace while their speeds sum up to at most the cores" if few else "",
        ),
        Finding(subject="memory", verdict="ok", found=memory),
        Finding(subject="CUDA", verdict="ok", found=cards or "none: training runs on the processor"),
        Finding(subject="control groups", verdict="ok", found=cgroup_version()),
    ]


def _temporary_folder() -> Finding:
    place = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile():
            return Finding(subject="temporary folder", verdict="ok", found=place)
    except OSError as error:
        advice = "set TMPDIR to a folder that can be written"
        return Finding(subject="temporary folder", verdict="bad", found=f"{place}: {error}", advice=advice)
