"""``ignite compare``: plans side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ignite_scheduler.cli.arguments import FILE
from ignite_scheduler.cli.output import emit, is_document, output_option, show

EPILOG: Final = """\b
Examples:
  ignite plan job.yaml -c small.yaml -o json > small.json
  ignite plan job.yaml -c large.yaml -o json > large.json
  ignite compare small.json large.json
"""


@click.command(epilog=EPILOG)
@click.argument("plan_files", type=FILE, nargs=-1, required=True, metavar="PLAN PLAN...")
@output_option
def command(*, plan_files: tuple[Path, ...], output: str) -> None:
    """Put plans side by side; the first one is what the others are measured against."""
    if len(plan_files) < 2:
        raise click.UsageError("give at least two plans to compare")
    from ignite_scheduler.cli.plan_table import difference_table
    from ignite_scheduler.formats import answer_document, load_answer
    from ignite_scheduler.model import Plan

    answers = [load_answer(path) for path in plan_files]
    if not is_document(output):
        show(difference_table([path.name for path in plan_files], answers, None))
        return
    steps = [answer.predicted.step if isinstance(answer, Plan) else None for answer in answers]
    first = steps[0]
    emit(
        {
            "schema": "ignite/comparison/v1",
            "plans": [
                {
                    "file": str(path),
                    "step_ratio": None if step is None or not first else step / first,
                    "plan": answer_document(answer, job=answer.job if isinstance(answer, Plan) else path.stem),
                }
                for path, answer, step in zip(plan_files, answers, steps, strict=True)
            ],
        },
        output,
    )
