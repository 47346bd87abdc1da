"""``ignite doctor --gradients JOB``: every gradient of a split pipeline against one process on the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.output import emit, is_document, show, table

if TYPE_CHECKING:
    from ignite_scheduler.engine.doctor import GradientReport


def check(job_file: Path, output: str, *, precision: str = "fp32") -> int:
    """Compare, print, and give the exit code: 1 if a gradient is off."""
    from ignite_scheduler import api, zoo
    from ignite_scheduler.engine.doctor import gradients

    job = api.load_job(job_file)
    zoo.check_trainable(job)
    exits.say(f"training {job.name} whole and split, in {precision}, to compare every gradient")
    report = gradients(job, dtype=precision)
    if is_document(output):
        emit(_document(report), output)
    else:
        show(*_parts(report))
    return exits.DONE if report.passed else exits.FAILED


def _document(report: GradientReport) -> dict[str, Any]:
    return {
        "schema": "ignite/gradients/v1",
        "job": report.job,
        "precision": report.precision,
        "passed": report.passed,
        "bit_equal": report.bit_equal,
        "same_microbatches": report.same_microbatches,
        "cases": [
            {
                "split": list(case.arrangement.split),
                "shares": [list(shares) for shares in case.arrangement.shares],
                "actions": list(case.arrangement.actions),
                "schedule": case.schedule,
                "microbatches": list(case.microbatches),
                "gradient_error": case.gradient_error,
                "worst_parameter": case.worst,
                "loss_error": case.loss_error,
                "tolerance": case.tolerance,
                "passed": case.passed,
            }
            for case in report.cases
        ],
    }


def _parts(report: GradientReport) -> list[Any]:
    rows = [
        [
            "-".join(map(str, case.arrangement.split)),
            " ".join(":".join(map(str, shares)) for shares in case.arrangement.shares),
            ", ".join(case.arrangement.actions),
            case.schedule,
            "+".join(map(str, case.microbatches)),
            f"{case.gradient_error:.1e}",
            case.worst,
            f"{case.loss_error:.1e}",
            f"{case.tolerance:.0e}",
            "[green]ok[/]" if case.passed else "[red]off[/]",
        ]
        for case in report.cases
    ]
    columns = ["layers", "replicas", "memory", "schedule", "microbatches"]
    columns += ["gradient error", "worst parameter", "loss error", "allowed", ""]
    against = "one process on the same microbatches" if report.same_microbatches else "one process on the whole batch"
    same = "give the very same bits" if report.bit_equal else "[red]differ[/]"
    return [
        table(columns, rows, right="578"),
        "",
        f"Errors are ‖difference‖ ÷ ‖reference‖ against {against}, the loss after five updates.",
        "Replicas: samples of each device of a stage, in a full microbatch; none = one device a stage.",
        f"Schedules of the same layers, replicas and microbatches {same}.",
        *_hints(report),
    ]


def _hints(report: GradientReport) -> list[str]:
    """Where to look, if a pipeline of a single stage is off: then no cut is to blame."""
    if all(case.passed for case in report.cases if case.arrangement.num_ranks == 1):
        return []
    causes = "Does it compute a sample otherwise beside others, as x.mean(0) and x.softmax(0) do?"
    if report.precision == "fp64":
        causes += " Or a part in float32 whatever the precision, as some norms do: then try --precision fp32."
    return ["", f"Off with one stage too: it is the microbatches that the model does not bear, not the split. {causes}"]
