"""From finished runs to a calibration, and from that to plans, promises and simulations with ranges."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ignite_scheduler
from ignite_scheduler import api
from ignite_scheduler.cli import ignite
from ignite_scheduler.cost import evaluate, straight
from ignite_scheduler.cost.calibration import Calibration, CheckpointTime, KindCalibration, Quantiles
from ignite_scheduler.cost.observation import Observation, Sample, StageObservation
from ignite_scheduler.errors import DocumentError, InputError, NotFoundError
from ignite_scheduler.formats import (
    WorkloadJob,
    calibration_document,
    cluster_document,
    job_document,
    observation_document,
    parse_answer,
    plan_document,
    profile_document,
    write_json,
    write_yaml,
)
from ignite_scheduler.model import Infeasible, Plan, QueueTerms
from live_jobs import small_cluster, small_job, small_profile

CLUSTER, PROFILE = small_cluster(0.5, 0.25), small_profile()
JOB = small_job(steps=100, every=None)
LEARNT = Calibration(
    kinds={"core": KindCalibration(rate=1.5, num_stages=9, spread=0.02)},
    startup=Quantiles(low=1.0, middle=2.0, high=4.0),
    checkpoint=CheckpointTime(base=0.5, bandwidth=1e9),
    residual=Quantiles(low=0.9, middle=1.0, high=1.1),
    num_runs=4,
    provenance={"date": "2026-05-04"},
)


def observed(ratio: float = 1.5, *, device: str = "lab/core-0", model: str = "m", start: float = 2.0) -> Observation:
    """A run on one device that took ``ratio`` times as long as planned."""
    forward, backward = (0.02, 0.02), (0.04, 0.04)
    return Observation(
        job=f"{model}-{device[-1]}",
        model=model,
        schedule="1f1b",
        microbatches=(4, 4),
        stages=(
            StageObservation(
                device=device,
                kind="core",
                speed=0.5,
                num_sharing=1,
                forward=forward,
                backward=backward,
                update=0.001,
                measured_forward=Sample(median=0.02 * ratio, count=20),
                measured_backward=Sample(median=0.04 * ratio, count=20),
                measured_update=Sample(median=0.001 * ratio, count=5),
            ),
        ),
        edges=(),
        planned_step=0.121,
        step=Sample(median=0.121 * ratio, count=30),
        startup=start,
    )


def leave(root: Path, *observations: Observation) -> Path:
    """A directory of a run as ``ignite run`` leaves it."""
    for number, observation in enumerate(observations):
        place = root / "jobs" / str(number)
        place.mkdir(parents=True)
        write_json(place / "observation.json", observation_document(observation))
    return root


def call(*arguments: object) -> Result:
    return CliRunner().invoke(ignite, list(map(str, arguments)), prog_name="ignite")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Job, profile, cluster and calibration as files."""
    write_json(tmp_path / "rows.profile.json", profile_document(PROFILE))
    job = replace(JOB, model=replace(JOB.model, profile=str(tmp_path / "rows.profile.json")))
    write_yaml(tmp_path / "job.yaml", job_document(job))
    write_yaml(tmp_path / "cluster.yaml", cluster_document(CLUSTER))
    write_json(tmp_path / "calibration.json", calibration_document(LEARNT))
    return tmp_path


# -- learning ----------------------------------------------------------------------------------------------------------


def test_runs_teach_how_far_predictions_were_off(tmp_path: Path) -> None:
    run = leave(tmp_path / "run", *(observed(1.5, model=model, start=start) for model, start in (("m", 2), ("n", 3))))
    calibrated = ignite_scheduler.calibrate([run])
    found = calibrated.calibration
    assert found.num_runs == 2
    kind = found.of("core")
    assert kind.rate * 0.03 + kind.launch == pytest.approx(1.5 * 0.03, rel=0.1)  # an action of 60 ms at half pace
    assert found.startup is not None
    assert found.startup.low <= 2.5 <= found.startup.high
    assert found.provenance["date"]
    assert [drift.is_slow for drift in calibrated.drifts] == [False]
    assert calibrated.before is None


def test_observations_are_found_in_files_and_below_directories_each_once(tmp_path: Path) -> None:
    run = leave(tmp_path / "runs" / "one", observed(), observed(model="n"))
    leave(tmp_path / "runs" / "two", observed(model="o"))
    (tmp_path / "runs" / "link").symlink_to(run, target_is_directory=True)
    assert len(api.calibrate([tmp_path / "runs"]).observations) == 3
    assert len(api.calibrate([run / "jobs" / "0" / "observation.json"]).observations) == 1
    assert len(api.calibrate([observed()]).observations) == 1


def test_a_place_without_observations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no observation\.json below"):
        api.calibrate([tmp_path])
    with pytest.raises(NotFoundError, match="no run at"):
        api.calibrate([tmp_path / "nothing"])
    with pytest.raises(InputError, match="at least one"):
        api.calibrate([])
    place = leave(tmp_path / "run", observed()) / "jobs" / "0" / "observation.json"
    place.write_text(place.read_text().replace('"planned_step_s": 0.121', '"planned_step_s": -1'))
    with pytest.raises(DocumentError, match="above 0"):
        api.calibrate([place])


def test_figures_that_make_no_calibration_are_refused() -> None:
    with pytest.raises(InputError, match=r"make no calibration \(checkpoint\.bytes_per_s"):
        api.calibrate([replace(observed(), checkpoints=((0.0, 1.0), (1e30, 1.5)))])


def test_what_updates_teach_can_be_read_back_where_they_take_the_same_time_whatever_was_planned() -> None:
    runs = [
        replace(run, stages=(replace(run.stages[0], update=0.001 * size, measured_update=Sample(median=0.002)),))
        for size, run in ((size, observed(model=str(size))) for size in range(1, 40))
    ]
    assert api.calibrate(runs).calibration.update >= 0


def test_a_run_counts_once_however_often_it_is_named() -> None:
    one, two = observed(), observed(model="n")
    first = api.calibrate([one, one])
    assert (first.calibration.num_runs, first.num_known) == (1, 1)
    more = api.calibrate([one, two], update=first.calibration)
    assert (more.calibration.num_runs, more.num_known, more.observations) == (2, 1, (two,))
    with pytest.raises(InputError, match="expected runs that are new, found 2"):
        api.calibrate([one, two], update=more.calibration)


def test_a_device_that_has_become_slower_than_the_calibration_before_is_named(tmp_path: Path) -> None:
    runs = [observed(1.5), observed(2.4, device="lab/core-1")]
    calibrated = api.calibrate(runs, update=LEARNT)
    assert {drift.device: drift.is_slow for drift in calibrated.drifts} == {"lab/core-0": False, "lab/core-1": True}
    assert calibrated.calibration.num_runs == 2 + LEARNT.num_runs
    kind = calibrated.calibration.of("core")  # one slow device does not make all of its kind slow
    assert kind.rate * 0.03 + kind.launch == pytest.approx(1.5 * 0.03, rel=0.05)
    report = calibrated.report()
    assert [device["slow"] for device in report["devices"]] == [False, True]
    assert report["calibration"]["schema"] == "ignite/calibration/v1"


def test_the_verb_writes_what_plans_can_be_made_with(files: Path) -> None:
    leave(files / "run", observed(1.5), observed(2.4, device="lab/core-1", model="n"))
    place = files / "new.json"
    result = call("calibrate", files / "run", "--update", files / "calibration.json", "--write", place)
    assert result.exit_code == 0, result.output
    assert "core" in result.stdout
    assert "warning: lab/core-1 computes 60 % longer than profiled" in result.stderr
    assert api.load_calibration(place).num_runs == 6
    planned = call("plan", files / "job.yaml", "-c", files / "cluster.yaml", "--calibration", place)
    assert planned.exit_code == 0, planned.output
    assert "whole job" in planned.stdout
    document = call("calibrate", files / "run", "-o", "json")
    assert json.loads(document.stdout)["schema"] == "ignite/calibration-report/v1"


def test_the_verb_says_what_is_wrong(files: Path) -> None:
    nothing = call("calibrate", files / "none")
    assert (nothing.exit_code, "no run at" in nothing.stderr) == (2, True)
    broken = files / "broken.json"
    broken.write_text('{"schema": "ignite/calibration/v1",\n "rates": 1}')
    refused = call("plan", files / "job.yaml", "-c", files / "cluster.yaml", "--calibration", broken)
    assert refused.exit_code == 2
    assert "broken.json:2" in refused.stderr
    assert "rates" in refused.stderr


# -- planning ----------------------------------------------------------------------------------------------------------


def test_a_calibration_is_charged_gives_ranges_and_is_named_in_the_plan() -> None:
    plain = api.plan(JOB, CLUSTER, profile=PROFILE).plan
    planned = api.plan(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT)
    found = planned.plan.predicted
    assert found.step > plain.predicted.step
    assert (found.step_low, found.step_high) == (0.9 * found.step, 1.1 * found.step)
    assert found.duration == pytest.approx(2 + 100 * found.step)
    assert (found.duration_low, found.duration_high) == pytest.approx((1 + 90 * found.step, 4 + 110 * found.step))
    assert planned.plan.resolved["calibration"].startswith("4 runs of 2026-05-04 (")
    assert planned.timeline.step == pytest.approx(found.step)
    assert parse_answer(planned.to_dict()) == planned.answer


def test_without_a_calibration_nothing_changes() -> None:
    plain = api.plan(JOB, CLUSTER, profile=PROFILE)
    found = plain.plan.predicted
    assert found.step_low == found.step == found.step_high
    assert (found.duration_low, found.duration_high) == (None, None)
    assert not {"duration_low_s", "duration_high_s"} & plain.to_dict()["predicted"].keys()
    assert "calibration" not in plain.plan.resolved


def test_every_plan_of_a_choice_has_its_range() -> None:
    for planned in api.pareto(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT):
        assert planned.plan.predicted.step_high == pytest.approx(1.1 * planned.plan.predicted.step)
        assert "calibration" in planned.plan.resolved


def test_a_deadline_is_held_against_the_late_end_of_the_range() -> None:
    late = api.plan(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT).plan.predicted.duration_high
    assert late is not None
    fits = replace(JOB, queue=QueueTerms(deadline=late * 1.001))
    tight = replace(JOB, queue=QueueTerms(deadline=late * 0.999))
    assert api.plan(fits, CLUSTER, profile=PROFILE, calibration=LEARNT).feasible
    answer = api.plan(tight, CLUSTER, profile=PROFILE, calibration=LEARNT).answer
    assert isinstance(answer, Infeasible)
    assert (answer.code, answer.earliest_finish) == ("deadline", late)
    assert "late end of its range" in answer.text


def test_a_time_limit_that_may_not_hold_is_warned_of() -> None:
    step = api.plan(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT).plan.predicted.step
    job = replace(JOB, queue=QueueTerms(max_time=4 + 100 * step))
    [warning] = api.plan(job, CLUSTER, profile=PROFILE, calibration=LEARNT).plan.warnings
    assert "cannot surely hold the 100 steps" in warning
    assert "~90 steps fit" in warning


# -- comparing ---------------------------------------------------------------------------------------------------------


def choice(split: tuple[int, ...], micro: int = 4) -> Plan:
    devices = tuple(device.id for device in CLUSTER.devices[: len(split)])
    sizes = (micro,) * (8 // micro)
    return evaluate(JOB, PROFILE, CLUSTER, straight(split=split, devices=devices, microbatches=sizes, schedule="1f1b"))


def test_a_plan_can_be_timed_anew_with_what_runs_taught() -> None:
    plan = choice((2, 1))
    assert api.retimed(plan, JOB, CLUSTER, profile=PROFILE).plan.predicted == plan.predicted
    anew = api.retimed(plan, JOB, CLUSTER, profile=PROFILE, calibration=LEARNT).plan
    assert anew.predicted.step > plan.predicted.step
    assert anew.predicted.step_high == pytest.approx(1.1 * anew.predicted.step)
    other = replace(plan, stages=tuple(replace(stage, layers=("x", *stage.layers)) for stage in plan.stages))
    with pytest.raises(InputError, match="other layers"):
        api.retimed(other, JOB, CLUSTER, profile=PROFILE)


def test_a_difference_within_the_ranges_is_said_to_be_none(files: Path) -> None:
    write_json(files / "one.json", plan_document(choice((3,), micro=4)))
    write_json(files / "two.json", plan_document(choice((3,), micro=2)))
    write_json(files / "far.json", plan_document(choice((1, 2), micro=4)))
    given = ["--job", files / "job.yaml", "-c", files / "cluster.yaml", "--calibration", files / "calibration.json"]
    result = call("compare", files / "one.json", files / "two.json", files / "far.json", *given)
    assert result.exit_code == 0, result.output
    against = next(line for line in result.stdout.splitlines() if line.startswith("against"))
    assert against.count("%") >= 1
    steps = json.loads(call("compare", files / "one.json", files / "far.json", *given, "-o", "json").stdout)["plans"]
    for each in steps:
        assert each["plan"]["predicted"]["step_low_s"] < each["plan"]["predicted"]["step_high_s"]


@pytest.mark.parametrize("given", [["--calibration", "c.json"], ["--job", "j.yaml"]])
def test_timing_plans_anew_needs_all_that_they_were_made_from(files: Path, given: list[str]) -> None:
    write_json(files / "one.json", plan_document(choice((3,))))
    result = call("compare", files / "one.json", files / "one.json", *given)
    assert result.exit_code == 2
    assert "--calibration" in result.stderr


# -- simulating --------------------------------------------------------------------------------------------------------


def rows(simulated: api.Simulated) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(simulated.to_csv())))


def test_simulated_jobs_pay_what_was_measured_and_are_promised_a_range() -> None:
    workload = [WorkloadJob(submit=0.0, job=JOB)]
    given = {"profiles": {JOB.name: PROFILE}}
    [plain] = rows(api.simulate(workload, CLUSTER, **given))
    [row] = rows(api.simulate(workload, CLUSTER, calibration=LEARNT, **given))
    predicted = api.plan(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT).plan.predicted
    assert plain["promised_finish_low_s"] == plain["promised_finish_high_s"] == plain["finish_s"]
    assert float(row["finish_s"]) == pytest.approx(predicted.duration)
    assert float(row["promised_finish_low_s"]) == pytest.approx(predicted.duration_low)
    assert float(row["promised_finish_high_s"]) == pytest.approx(predicted.duration_high)


def test_costs_that_are_given_beat_those_that_were_measured() -> None:
    from ignite_scheduler.simulation import Costs

    workload = [WorkloadJob(submit=0.0, job=JOB)]
    given = {"profiles": {JOB.name: PROFILE}, "calibration": LEARNT}
    [row] = rows(api.simulate(workload, CLUSTER, costs=Costs(startup=10.0), **given))
    predicted = api.plan(JOB, CLUSTER, profile=PROFILE, calibration=LEARNT).plan.predicted
    assert float(row["finish_s"]) == pytest.approx(10.0 + 100 * predicted.step)
