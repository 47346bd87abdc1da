"""Write the generated pages of docs/: the command line, the states of a job, the schemas' names.

`make docs` runs it; a test holds the committed pages against it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ignite_scheduler.cli.root import VERBS, ignite
from ignite_scheduler.control.states import format_transitions

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py; change it there -->\n\n"


def command_line() -> str:
    """The page docs/cli.md: every verb's own help, 100 columns wide."""
    parts = [NOTE, "# Command line\n\nEvery page below is the verb's own `--help`.\n"]
    settings = ignite.context_settings | {"terminal_width": 100, "max_content_width": 100}
    with click.Context(ignite, info_name="ignite", **settings) as context:
        for verb in VERBS:
            command = ignite.get_command(context, verb)
            assert command is not None
            with click.Context(
                command, info_name=verb, parent=context, terminal_width=100, max_content_width=100
            ) as inner:
                parts.append(f"\n## ignite {verb}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "".join(parts)


def states() -> str:
    """The page docs/states.md: the transition table as a diagram."""
    return (
        f"{NOTE}# States of a job\n\nThe controller moves a job only along these arrows "
        "(`ignite_scheduler.control.states.TRANSITIONS`).\n\n"
        f"```mermaid\n{format_transitions()}\n```\n"
    )


PAGES = {"cli.md": command_line, "states.md": states}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
