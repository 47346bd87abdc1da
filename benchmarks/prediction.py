"""Planned against measured step time: six models x one to four stages x three emulated clusters x two schedules.

Every plan is the planner's best under its number of stages and schedule, run on local processes that play the
cluster's devices and links. A measured step is the median over the steps after warm-up. Each plan is predicted three
times: from its model's profile alone; with a calibration that was fitted *on runs of the other five models only*, whose
residual quantiles are the quoted 80 % range; and by the closed form Σ(f+b) + (M−1)·max(f+b). Some plans are run again:
no prediction can be closer than the machine is to itself.

    python benchmarks/prediction.py [--keep DIR] [--models a,b] [--write FILE]

Takes about twenty minutes on a machine of two cores, which should have nothing else to do: other load slows down the
measured side only. With ``--keep`` a run that was interrupted goes on where it was, and ``ignite calibrate DIR`` can
learn from what is kept; what all runs together teach is left there as ``calibration.json``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import prediction_cases as cases
from ignite_scheduler import api
from ignite_scheduler.cost.calibration import Calibration
from ignite_scheduler.cost.fitting import fit
from ignite_scheduler.cost.observation import Observation
from ignite_scheduler.formats import calibration_document, load_observation, load_plan, load_profile
from ignite_scheduler.formats.files import write_json
from ignite_scheduler.formats.plan import plan_document
from ignite_scheduler.formats.profile import profile_document
from ignite_scheduler.formats.run_files import OBSERVATION_FILE
from ignite_scheduler.model import Plan, Profile
from tables import stamp, summary, table

EVERY_AGAIN = 7
"""Of so many plans one is run again."""
PARTS = (1, 2, 4, 8, 16)
"""The batch divided by these: sizes of microbatch that are profiled; what lies between is interpolated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan to predict and run."""

    model: str
    cluster: str
    stages: int
    schedule: str

    @property
    def folder(self) -> str:
        """Where what is known of it is kept."""
        return f"{self.model}-{list(cases.CLUSTERS).index(self.cluster)}-{self.stages}-{self.schedule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan, predicted and run. Seconds; ``again`` is the same plan's second run, None where there was none."""

    case: Case
    plan: str
    measured: float
    again: float | None
    num_steps: int
    planned: float
    calibrated: float
    low: float
    high: float
    closed: float

    @property
    def covered(self) -> bool:
        """Whether the quoted range holds the measured step."""
        return self.low <= self.measured <= self.high


def all_cases(models: Sequence[str]) -> Iterator[Case]:
    """All plans; models alternate, so that a slow spell of the machine does not fall on one of them alone."""
    for cluster in cases.CLUSTERS:
        for stages in cases.STAGES:
            for schedule in cases.SCHEDULES:
                for model in models:
                    yield Case(model=model, cluster=cluster, stages=stages, schedule=schedule)


# -- measuring ---------------------------------------------------------------------------------------------------------


def profiled(model: str, keep: Path, time_limit: float) -> Profile:
    """The model's profile, measured once."""
    path = keep / f"{model}.profile.json"
    if not path.exists():
        job = cases.job(model, steps=1)
        sizes = {max(1, job.batch.total // part) for part in PARTS}
        tell(f"{model}: profile at {', '.join(map(str, sorted(sizes)))} samples")
        profile = api.profile(job, samples=sizes, time_limit=time_limit)
        write_json(path, profile_document(profile))
    return load_profile(path)


def observed(case: Case, profile: Profile, keep: Path, steps: int, serial: int = 1) -> tuple[Plan, Observation]:
    """What the case's run showed, and its plan; run now unless that is kept from earlier."""
    folder = keep / case.folder
    plan_file, found = folder / "plan.json", folder / str(serial) / OBSERVATION_FILE
    if not found.exists():
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        job = cases.job(case.model, steps=steps, stages=case.stages, schedule=case.schedule)
        ran = api.run([job], cases.cluster(case.cluster), directory=run, profiles={job.name: profile}, policy="fifo")
        report = ran.report.jobs[0]
        left = list(run.rglob(OBSERVATION_FILE))
        if not left or not report.plans:
            sys.exit(f"{case.folder} did not finish: {report.reason or report.refused}")
        write_json(plan_file, plan_document(report.plans[-1]))
        found.parent.mkdir(exist_ok=True)
        left[0].replace(found)
        shutil.rmtree(run)
    return load_plan(plan_file), load_observation(found)


# -- predicting --------------------------------------------------------------------------------------------------------


def rows_of(
    found: Mapping[Case, tuple[Plan, Observation]], again: Mapping[Case, Observation], profiles: Mapping[str, Profile]
) -> list[Row]:
    """All plans predicted: for each model by what the runs of the others teach."""
    rows = []
    for model in profiles:
        others = [observation for case, (_, observation) in found.items() if case.model != model]
        calibration = fit(others) if others else Calibration()
        rows += [
            row_of(case, plan, observation, again.get(case), profiles[model], calibration)
            for case, (plan, observation) in found.items()
            if case.model == model
        ]
    return rows


def row_of(
    case: Case,
    plan: Plan,
    observation: Observation,
    again: Observation | None,
    profile: Profile,
    calibration: Calibration,
) -> Row:
    """One plan with everything that is said of it."""
    job, cluster = cases.job(case.model, steps=1), cases.cluster(case.cluster)
    bare = api.retimed(plan, job, cluster, profile=profile).plan
    told = api.retimed(plan, job, cluster, profile=profile, calibration=calibration).plan.predicted
    busy = [stage.forward + stage.backward for stage in bare.stages]
    cuts = " │ ".join(f"{len(stage.layers)}@{stage.devices[0].device.split('/')[1]}" for stage in plan.stages)
    return Row(
        case=case,
        plan=f"x{len(plan.microbatches)}: {cuts}",
        measured=observation.step.median,
        again=None if again is None else again.step.median,
        num_steps=observation.step.count,
        planned=bare.predicted.step,
        calibrated=told.step,
        low=told.step_low,
        high=told.step_high,
        closed=sum(busy) + (len(plan.microbatches) - 1) * max(busy),
    )


# -- telling -----------------------------------------------------------------------------------------------------------


def tell(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def comparison(rows: Sequence[Row]) -> str:
    """All plans and their errors, as Markdown."""
    conditions = (
        f"Medians over {min(row.num_steps for row in rows)} steps or more after warm-up. Each model is calibrated on "
        "runs of the other models only."
    )
    return "\n".join([*errors(rows), "", plans(rows), "", conditions, stamp()])


def errors(rows: Sequence[Row]) -> list[str]:
    """Errors by model, number of stages, cluster and schedule."""
    head = ["plans", "number", "profile alone", "calibrated on other models", "80 % range holds", "closed form"]
    lines = [error_cells("all", rows)]
    keys: Sequence[Callable[[Row], str]] = (
        lambda row: row.case.model,
        lambda row: f"{row.case.stages} stage{'s' if row.case.stages > 1 else ''}",
        lambda row: row.case.cluster,
        lambda row: row.case.schedule,
    )
    for key in keys:
        lines += [
            error_cells(name, [row for row in rows if key(row) == name]) for name in dict.fromkeys(map(key, rows))
        ]
    noise = [row.again / row.measured - 1 for row in rows if row.again is not None]
    return [
        "|error| of the step time, measured ÷ predicted − 1: median / 90th percentile / worst.",
        "",
        table(head, lines),
        "",
        f"The same plan again ({len(noise)} plans): {spread(noise)}." if noise else "No plan was run again.",
    ]


def error_cells(name: str, rows: Sequence[Row]) -> list[str]:
    """One line of the table of errors."""
    return [
        name,
        str(len(rows)),
        spread(row.measured / row.planned - 1 for row in rows),
        spread(row.measured / row.calibrated - 1 for row in rows),
        f"{sum(row.covered for row in rows) / len(rows):.0%}",
        spread(row.measured / row.closed - 1 for row in rows),
    ]


def spread(errors: Iterable[float]) -> str:
    """Median, 90th percentile and worst of absolute errors."""
    found = summary(errors)
    return f"{found.median:.1%} / {found.p90:.1%} / {found.worst:.1%}"


def plans(rows: Sequence[Row]) -> str:
    """A line for each plan."""
    head = [
        "model",
        "cluster",
        "plan",
        "profile alone ms",
        "calibrated ms",
        "80 % range",
        "measured ms",
        "error",
        "again",
    ]
    lines = [
        [
            row.case.model,
            row.case.cluster,
            f"{row.case.schedule} {row.plan}",
            f"{1e3 * row.planned:.1f}",
            f"{1e3 * row.calibrated:.1f}",
            f"{1e3 * row.low:.0f}–{1e3 * row.high:.0f}{'' if row.covered else ' ✗'}",
            f"{1e3 * row.measured:.1f}",
            f"{row.measured / row.calibrated - 1:+.1%}",
            "" if row.again is None else f"{row.again / row.measured - 1:+.1%}",
        ]
        for row in rows
    ]
    return table(head, lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=18, help="training steps of each run, 5 of them warm-up")
    parser.add_argument("--models", default=",".join(cases.MODELS), help="names, separated by commas")
    parser.add_argument(
        "--only", default="", help="run only plans whose name holds this text, such as gpt or -2-4-gpipe"
    )
    parser.add_argument("--profile-limit", type=float, default=25.0, help="seconds of passes for each profile")
    parser.add_argument("--keep", type=Path, help="keep runs here, and do not repeat those that are there")
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        keep = chosen.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        models = chosen.models.split(",")
        if unknown := [model for model in models if model not in cases.MODELS]:
            parser.error(f"no model {', '.join(unknown)}; there are: {', '.join(cases.MODELS)}")
        profiles = {model: profiled(model, keep, chosen.profile_limit) for model in models}
        found: dict[Case, tuple[Plan, Observation]] = {}
        again: dict[Case, Observation] = {}
        for number, case in enumerate(all_cases(models)):
            if chosen.only not in case.folder:
                continue
            found[case] = observed(case, profiles[case.model], keep, chosen.steps)
            observation = found[case][1]
            tell(f"{case.folder}: {observation.step.median / observation.planned_step - 1:+.1%} of the profile alone")
            if number % EVERY_AGAIN == 0:
                _, again[case] = observed(case, profiles[case.model], keep, chosen.steps, serial=2)
        everything = fit([observation for _, observation in found.values()])
        write_json(keep / "calibration.json", calibration_document(everything))
        text = comparison(rows_of(found, again, profiles))
    print(text)
    if chosen.write is not None:
        chosen.write.write_text(f"# Planned against measured step time\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
