"""The demo's report: one page with tables and pictures, and beside it every document in our formats."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.api.markup import table
from ignite_scheduler.cli.output import percent, seconds
from ignite_scheduler.cli.plan_table import bottleneck_text, proof_text, short_form
from ignite_scheduler.cli.run import promise_text, signed
from ignite_scheduler.formats import (
    cluster_document,
    job_document,
    profile_document,
    write_json,
    write_text,
    write_yaml,
)
from ignite_scheduler.formats.run_files import TIMELINE_FILE
from ignite_scheduler.model import Plan

if TYPE_CHECKING:
    from ignite_scheduler.api import Traced
    from ignite_scheduler.cli.demo.scenes import Demo
    from ignite_scheduler.daemon.report import JobReport

STYLE = """
body { font-family: "DejaVu Sans", Verdana, sans-serif; color: #1f2933; max-width: 1120px; margin: 2em auto; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: 4px 12px; text-align: left; font-size: 90%; }
th { border-bottom: 2px solid #9aa5b1; } td { border-bottom: 1px solid #e4e7eb; } .note { color: #7b8794; }
svg { max-width: 100%; height: auto; } code { background: #f5f7fa; padding: 1px 4px; }
"""


FORETOLD: Final = (
    "Promised: foretold when the job arrived, before anything was known of later arrivals. Simulated: the same jobs at "
    "the same times, in simulation. All from the start of the run."
)
FINISH_COLUMNS: Final = (
    "job", "arrived", "started", "promised finish", "simulated finish", "real finish", "against promise",
    "against simulation",
)  # fmt: skip


def write_report(demo: Demo, folder: Path) -> None:
    """Write ``index.html`` and everything that it shows."""
    traces = dict(_traces(demo))
    documents(demo, traces, folder)
    write_text(folder / "index.html", page(demo, traces))


def _traces(demo: Demo) -> Iterable[tuple[str, Traced]]:
    for job in demo.ran.report.jobs:
        if (job.directory / TIMELINE_FILE).is_file():
            yield job.job_id, demo.ran.trace(job.job_id)


def documents(demo: Demo, traces: dict[str, Traced], folder: Path) -> None:
    """Documents, plans, traces and pictures, one file each."""
    write_yaml(folder / "cluster.yaml", cluster_document(demo.cluster))
    write_json(folder / "run.json", demo.ran.to_dict())
    write_json(folder / "simulated.json", demo.simulated.to_dict())
    write_text(folder / "cluster.svg", demo.ran.to_svg())
    for policy in demo.simulated.results:
        write_text(folder / "cluster-simulated.svg", demo.simulated.to_svg(policy.policy))
    for job in demo.jobs:
        write_yaml(folder / f"{job.name}.job.yaml", job_document(job))
        write_json(folder / f"{job.name}.profile.json", profile_document(demo.profiles[job.name]))
        write_json(folder / f"{job.name}.plan.json", demo.plans[job.name].to_dict())
    for name, traced in traces.items():
        write_text(folder / f"{name}.step.svg", traced.to_svg())
        write_json(folder / f"{name}.trace.json", traced.to_chrome_trace())


def page(demo: Demo, traces: dict[str, Traced]) -> str:
    """The page as HTML that needs no other file."""
    parts = [
        "<h1>IgNITE demo</h1>",
        *map(_note, (*map(str, demo.ran.report.slow), *demo.ran.report.notices)),
        _note(f"A start took {seconds(demo.startup)} in a trial; promises and the simulation reckon with it."),
        "<h2>Planned and measured</h2>",
        table(
            ["job", "devices", "planned step", "measured step (median)", "steps", "error", "loss"],
            [_step_row(job) for job in demo.ran.report.jobs],
        ),
        "<h2>Foretold and real finish</h2>",
        f"<p>{html.escape(FORETOLD)}</p>",
        table(FINISH_COLUMNS, finish_rows(demo)),
        "<h2>Who held which device</h2>",
        demo.ran.to_svg(),
        "<h3>The same in simulation</h3>",
        *(demo.simulated.to_svg(result.policy) for result in demo.simulated.results),
        "<h2>The best plan of each job, alone on the cluster</h2>",
        *(_plan_text(demo, job.name) for job in demo.jobs),
        "<h2>One step of each pipeline, planned and measured</h2>",
        *(f"<h3>{html.escape(name)}</h3>{traced.to_svg()}" for name, traced in traces.items()),
        _note(f"Chrome traces ({', '.join(f'{name}.trace.json' for name in traces)}) open in https://ui.perfetto.dev."),
    ]
    head = f'<meta charset="utf-8"><title>IgNITE demo</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def _step_row(job: JobReport) -> list[str]:
    losses = job.measured.losses
    return [
        job.job_id,
        ", ".join(job.plans[-1].device_ids) if job.plans else "–",
        seconds(job.planned_step),
        seconds(job.measured.step),
        str(job.measured.num_steps),
        signed(job.step_error),
        f"{losses[0]:.3g} → {losses[-1]:.3g}" if losses else "–",
    ]


def finish_rows(demo: Demo) -> list[list[str]]:
    """Promised, simulated and real finish of each job."""
    return [_finish_row(demo, job) for job in demo.ran.report.jobs]


def _finish_row(demo: Demo, job: JobReport) -> list[str]:
    [simulated] = [row.finish for row in demo.simulated.results[0].rows if row.job == job.job_id]
    submitted, real = job.story.submitted, job.story.finished
    return [
        job.job_id,
        seconds(submitted),
        seconds(job.story.started),
        promise_text(job),
        seconds(simulated),
        seconds(real),
        signed(job.promise_error),
        signed(relative(real, simulated, submitted)),
    ]


def relative(real: float | None, foretold: float | None, submitted: float) -> float | None:
    """Real ÷ foretold completion time − 1, both counted from submission; None where one is missing."""
    if real is None or foretold is None or foretold <= submitted:
        return None
    return (real - submitted) / (foretold - submitted) - 1


def _plan_text(demo: Demo, name: str) -> str:
    planned: Any = demo.plans[name]
    answer = planned.answer
    if not isinstance(answer, Plan):
        return f"<h3>{html.escape(name)}</h3><p>cannot be planned: {html.escape(answer.text)}</p>"
    lines = [
        short_form(answer),
        f"step {seconds(answer.predicted.step)}, bubble {percent(answer.predicted.bubble_fraction)}, "
        f"bottleneck {bottleneck_text(answer)}",
        proof_text(answer),
        *(f"left out {unused.device}: {unused.reason}" for unused in answer.unused),
    ]
    return f"<h3>{html.escape(name)}</h3>" + "".join(f"<p>{html.escape(line)}</p>" for line in lines)
