"""The command ``ignite``: a group whose verbs are imported when they are called."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from ignite_scheduler.cli import exits

VERBS: Final = {
    "init": "Write commented example documents that run as they are.",
    "devices": "Show a cluster's devices, or find those of this machine.",
    "links": "Show a cluster's links, or measure real ones.",
    "doctor": "Check this environment, or a job's gradients.",
    "profile": "Measure a model's layers on this machine.",
    "plan": "Find the fastest pipeline of one job on a cluster.",
    "compare": "Put two plans side by side.",
    "simulate": "Play a workload under several policies.",
    "run": "Plan, schedule and train jobs now, in the foreground.",
    "calibrate": "Learn from finished runs: constants, ranges, slow devices.",
    "trace": "Merge a run's planned and measured steps into one Chrome trace.",
    "import": "Bring a public profile into our format.",
    "export": "Write a profile in another planner's format.",
    "schema": "Print the JSON schema of a document.",
    "demo": "Train several models over unlike emulated devices and leave a report.",
}
"""Verb → its line in ``ignite --help`` (kept here so that the overview imports no verb)."""

_MODULES: Final = {"import": "imports", "export": "exports"}

EPILOG: Final = """\b
First steps:
  ignite init tour && cd tour                 example cluster, profile and job
  ignite plan job.yaml --cluster cluster.yaml
  ignite demo                                 several real trainings, and a report

\b
Exit codes: 0 done, 1 failed, 2 bad usage or document, 3 cannot be planned,
4 a deadline cannot be met, 130 interrupted, 70 a bug of ours.
"""


class LazyGroup(click.Group):
    """A group that knows its verbs' names and help lines, and loads a verb's module only to call it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs, in the order in which a newcomer needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command; None if there is no such verb (click then suggests the nearest)."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"ignite_scheduler.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run one verb and leave with the exit code that :mod:`ignite_scheduler.cli.exits` gives its outcome."""
        extra["standalone_mode"] = False
        try:
            outcome = super().main(args, *rest, **extra)
        except SystemExit:
            raise
        except BaseException as error:
            sys.exit(exits.conclude(error))
        sys.exit(outcome if isinstance(outcome, int) else exits.DONE)


@click.group(
    cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="ignite-scheduler", prog_name="ignite")
def ignite() -> None:
    """Measure models on unlike devices, plan their pipelines, schedule many such jobs over one cluster, run them."""


def main() -> NoReturn:
    """Entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a sign shows its code instead of ending the command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    ignite.main(prog_name="ignite")
