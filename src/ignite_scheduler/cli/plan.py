"""``ignite plan``: the fastest pipeline of one job on a cluster, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, Percent, calibration_option, cluster_option
from ignite_scheduler.cli.objectives import DEFAULT, KEYS, Objectives
from ignite_scheduler.cli.output import emit, is_document, output_option, searching, show

if TYPE_CHECKING:
    from ignite_scheduler.api import Planned
    from ignite_scheduler.api.planning import Compromise
    from ignite_scheduler.model import Infeasible

EPILOG: Final = """\b
Examples:
  ignite plan job.yaml --cluster cluster.yaml
  ignite plan job.yaml -c cluster.yaml -o json > plan.json
  ignite plan job.yaml -c cluster.yaml --what-if +1xA100-40GB --what-if -node:lab2
  ignite plan job.yaml -c cluster.yaml --what-if links:lab1-lab2=40Gbit/s,+2xT4@lab2
  ignite plan job.yaml -c cluster.yaml --pareto
  ignite plan job.yaml -c cluster.yaml --svg step.svg --trace step.json
  ignite plan job.yaml -c cluster.yaml --calibration calibration.json
  ignite plan job.yaml -c cluster.yaml --planner pipedream

\b
A CHANGE is one of these, or several parted by commas:
  +1xA100-40GB    +2xT4@lab2                 devices more
  -node:lab2      -device:lab2/box           a node or a device less
  links:lab1-lab2=40Gbit/s                   another link between nodes or devices
  links:within:lab1=25GB/s  links:default=1Gbit/s,50us   (a latency may follow)
  memory:T4=24GB  price:lab2/box=1.5/h       other figures of a kind or a device

\b
A planner is ignite or one of these baselines, from their papers' descriptions (docs/planners.md):
  equal-layers  equal-parameters  gpipe  pipedream  dapple  alpa  hetpipe  asteroid  hph  autopipe

\b
The plan is exact: its step time is that of the whole pipeline, link by link and action by action, not a
formula's; "bound" is a time that no plan of the same kind can beat, and "gap" what may be left to gain.
Exit code 3: there is no plan (the reasons are printed); 4: the job's deadline cannot be met.
"""


@click.command(epilog=EPILOG)
@click.argument("job_file", type=FILE, metavar="JOB")
@cluster_option
@click.option("--profile", "profile_file", type=FILE, metavar="FILE", help="Measured layers, instead of the job's own.")
@click.option(
    "--objective",
    type=click.Choice(["time", "cost", "energy"]),
    default="time",
    show_default=True,
    help="What is least.",
)
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="CHANGE",
    help="Also plan on a changed cluster (see below). May be repeated: each is a row of one table.",
)
@calibration_option
@click.option(
    "--pareto",
    "objectives",
    type=Objectives(),
    is_flag=False,
    flag_value=",".join(DEFAULT),
    metavar="[OBJECTIVES]",
    help="All plans that no other beats in all of these at once: time,money,devices; also energy and headroom.",
)
@click.option(
    "--planner",
    default="ignite",
    show_default=True,
    metavar="NAME",
    help="Who plans: ignite or a baseline (see below), whose plan is judged by the same figures.",
)
@click.option(
    "--memory-margin", type=Percent(), default="0%", show_default=True, help="Count so much more memory than computed."
)
@click.option("--trace", type=FILE, metavar="FILE", help="Write the planned step as a Chrome trace (for Perfetto).")
@click.option("--svg", type=FILE, metavar="FILE", help="Write the planned step as a picture.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    job_file: Path,
    cluster_file: Path,
    profile_file: Path | None,
    objective: str,
    changes: tuple[str, ...],
    objectives: tuple[str, ...] | None,
    planner: str,
    memory_margin: float,
    calibration_file: Path | None,
    trace: Path | None,
    svg: Path | None,
    output: str,
) -> None:
    """Find the fastest pipeline of JOB on a cluster.

    Chooses devices, their order, the cut of the layers, microbatches and schedule, within each device's memory, and
    says how good the plan is and which devices are better left out.
    """
    from ignite_scheduler import api
    from ignite_scheduler.api.what_if import answers, changed
    from ignite_scheduler.cli.places import check_places

    check_places(trace, svg)
    if objectives is not None and planner != "ignite":
        raise click.UsageError(f"--pareto is a set of plans by ignite; --planner {planner} makes one plan")
    job, cluster = api.load_job(job_file), api.load_cluster(cluster_file)
    profile = api.load_profile(profile_file) if profile_file else None
    wish: dict[str, Any] = {"profile": profile, "objective": objective, "memory_margin": memory_margin}
    if calibration_file is not None:
        wish["calibration"] = api.load_calibration(calibration_file)
    others = {change: changed(cluster, change) for change in changes}
    with searching():
        if objectives is not None:
            chosen = None if objectives == DEFAULT else objectives
            found = api.pareto(job, cluster, **wish, objectives=chosen)
        else:
            wish["planner"] = planner
            planned = api.plan(job, cluster, **wish)
            variants = answers(lambda asked, there: api.plan(asked, there, **wish), planned, others)
    if objectives is not None:
        ctx.exit(_show_pareto(found, objectives, output))
    _show(planned, variants, output)
    if not planned.feasible:
        ctx.exit(_refusal_code(planned))
    _write(planned, trace, svg)


def _show(planned: Planned, variants: dict[str, Planned], output: str) -> None:
    from ignite_scheduler.model import Infeasible

    answer = planned.answer
    if is_document(output):
        document = planned.to_dict()
        if variants:
            from ignite_scheduler.formats import difference

            document["what_if"] = {scenario: variant.to_dict() for scenario, variant in variants.items()}
            document["differences"] = {
                scenario: difference(answer, variant.answer) for scenario, variant in variants.items()
            }
        emit(document, output)
        if isinstance(answer, Infeasible):
            exits.say(_refusal_text(answer))
        else:
            for warning in answer.warnings:
                exits.say(f"warning: {warning}")
        return
    from ignite_scheduler.cli import plan_table

    currency = planned.cluster.currency
    if isinstance(answer, Infeasible):
        show(*plan_table.infeasible_parts(answer))
    else:
        show(*plan_table.plan_parts(answer, currency=currency, wide=output == "wide"))
    if variants:
        from ignite_scheduler.cli.difference_tables import scenario_table

        scenarios = [(scenario, variant.answer) for scenario, variant in variants.items()]
        show("", scenario_table(answer, scenarios, currency))


def _refusal_text(answer: Infeasible) -> str:
    from ignite_scheduler.cli.output import seconds
    from ignite_scheduler.units import format_memory

    parts = [f"cannot be planned: {answer.text}"]
    if answer.shortfall is not None and format_memory(answer.shortfall) not in answer.text:
        parts.append(f"{format_memory(answer.shortfall)} of memory are missing")
    if answer.earliest_finish is not None and seconds(answer.earliest_finish) not in answer.text:
        parts.append(f"the earliest finish is {seconds(answer.earliest_finish)} after submission")
    return "; ".join(parts)


def _refusal_code(planned: Planned) -> int:
    from ignite_scheduler.model import Infeasible

    late = isinstance(planned.answer, Infeasible) and planned.answer.code == "deadline"
    return exits.DEADLINE if late else exits.CANNOT_BE_PLANNED


def _show_pareto(found: tuple[Compromise, ...], objectives: tuple[str, ...], output: str) -> int:
    """Print the Pareto set, or why it is empty; the exit code."""
    if not found[0].feasible:
        _show(found[0], {}, output)
        return _refusal_code(found[0])
    if is_document(output):
        values = [{KEYS[name]: value for name, value in planned.objectives.items()} for planned in found]
        plans = [planned.to_dict() for planned in found]
        asked = [name for name in objectives if name in found[0].objectives]
        emit({"schema": "ignite/plans/v1", "objectives": asked, "plans": plans, "values": values}, output)
        return exits.DONE
    from ignite_scheduler.cli.plan_table import pareto_table

    others = [name for name in objectives if name not in DEFAULT]
    columns = {name: [planned.objectives[name] for planned in found] for name in others}
    show(pareto_table([planned.plan for planned in found], found[0].cluster.currency, columns))
    return exits.DONE


def _write(planned: Planned, trace: Path | None, svg: Path | None) -> None:
    from ignite_scheduler.formats.files import write_json, write_text

    if trace is not None:
        write_json(trace, planned.to_chrome_trace())
        exits.say(f"planned step as a trace: {trace} (open in https://ui.perfetto.dev)")
    if svg is not None:
        write_text(svg, planned.to_svg())
        exits.say(f"planned step as a picture: {svg}")
