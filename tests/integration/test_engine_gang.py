"""A gang of real processes: trains, stops, saves, resumes under another split, and names what killed it."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from engine_cases import make_job, make_plan, make_spec

from ignite_scheduler.engine import reference
from ignite_scheduler.engine.gang import Gang
from ignite_scheduler.engine.reports import Failed, Finished, Progressed, Report, Saved, Started, Stopped
from ignite_scheduler.engine.saved import facts, latest
from ignite_scheduler.engine.specification import GangSpec, RankDevice
from ignite_scheduler.model import Checkpointing, Evaluation, LearningRateSchedule, Optimizer, Reference

pytestmark = pytest.mark.torch

LONG = 100_000
"""Steps of a job that is never meant to end by itself."""


@pytest.fixture
def run() -> Iterator[Any]:
    """Run a gang to its end; whatever still runs at the end of the test is killed."""
    gangs: list[Gang] = []

    def start(spec: GangSpec) -> Gang:
        gangs.append(Gang.start(spec))
        return gangs[-1]

    yield start
    for gang in gangs:
        gang.kill()
        for _ in gang.wait(30):
            pass


def metrics(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(gang: Gang, kind: type[Report], timeout: float = 60.0) -> list[Report]:
    """Reports up to the first of that kind."""
    seen: list[Report] = []
    for report in gang.wait(timeout):
        seen.append(report)
        if isinstance(report, kind):
            return seen
    raise AssertionError(f"no {kind.__name__} among {seen}")


def test_a_job_trains_by_its_plan(run: Any, tmp_path: Path) -> None:
    job = make_job(
        args={"dropout": 0.2},
        steps=6,
        optimizer=Optimizer(name="adamw", lr=1e-2),
        lr_schedule=LearningRateSchedule(name="cosine", warmup=2),
        gradient_clip=0.5,
        evaluate=Evaluation(every=3, data=Reference(module="field_models:rows", args={"rows": 21, "seed": 1})),
    )
    reports = list(run(make_spec(job, make_plan(job, [2, 1, 2], [3, 3, 2]), tmp_path)).wait(60))
    assert isinstance(reports[0], Started)
    assert len(set(reports[0].process_ids)) == 3
    assert [r.done for r in reports if isinstance(r, Progressed)] == [1, 2, 3, 4, 5, 6]
    assert reports[-1] == Finished(done=6)
    assert not any(alive(process_id) for process_id in reports[0].process_ids)

    lines, expected = metrics(tmp_path), reference.train(job, 6)
    assert [line["loss"] for line in lines] == pytest.approx(expected.losses, rel=1e-5)
    assert [line["grad_norm"] for line in lines] == pytest.approx(expected.grad_norms, rel=1e-5)
    assert [line["step"] for line in lines if "held_loss" in line] == [3, 6]
    assert all(line["samples_per_s"] == pytest.approx(8 / line["step_s"]) for line in lines)
    assert latest(tmp_path) == tmp_path / "checkpoints" / "step-000006"


def test_the_gradient_of_a_step_weighs_samples_not_microbatches(run: Any, tmp_path: Path) -> None:
    """Per-sample gradients 1 … 8 in microbatches of 3, 3 and 2 make 4.5, not a mean of means nor a sum of means."""
    job = make_job("field_models:one_weight", "field_models:one_to_eight", steps=1, loss="field_models:output_sum")
    list(run(make_spec(job, make_plan(job, [1, 1], [3, 3, 2]), tmp_path)).wait(60))
    (line,) = metrics(tmp_path)
    assert line["grad_norm"] == 4.5


def test_the_measured_timeline_holds_each_action_once_and_in_order(run: Any, tmp_path: Path) -> None:
    job = make_job(steps=8)
    list(run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)).wait(60))
    document = json.loads((tmp_path / "timeline.json").read_text())
    assert document["schedule"] == ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]
    assert [step["step"] for step in document["steps"]] == [4, 5, 6, 7, 8]
    for step in document["steps"]:
        rows: list[list[Any]] = [[], []]
        for interval in step["intervals"]:
            rows[interval["row"]].append(interval)
        for row, text in zip(rows, document["schedule"], strict=True):
            assert ",".join(interval["action"] for interval in row) == text
            assert all(a["end_s"] <= b["start_s"] for a, b in pairwise(row))
        arrivals = {(t["target"], t["kind"], t["microbatch"]): t["end_s"] for t in step["transfers"]}
        assert set(arrivals) == {(1, "F", 0), (1, "F", 1), (0, "B", 0), (0, "B", 1)}
        starts = {interval["action"]: interval["start_s"] for row in rows for interval in row}
        assert all(starts[f"{stage}{kind}{k}"] >= arrivals[stage, kind, k] for stage, kind, k in arrivals)


def test_a_stop_saves_at_one_step_boundary_and_another_split_goes_on(run: Any, tmp_path: Path) -> None:
    """Stopped, resumed under another split and schedule, stopped by a checkpoint again: the losses of one run."""
    job = make_job(
        args={"dropout": 0.3},
        steps=LONG,
        optimizer=Optimizer(name="adamw", lr=1e-2),
        lr_schedule=LearningRateSchedule(name="linear", warmup=5),
    )
    first = run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path))
    until(first, Progressed)
    first.stop(save=True)
    ending = until(first, Stopped)[-1]
    assert isinstance(ending, Stopped)
    assert ending.done == ending.saved >= 1
    checkpoint = latest(tmp_path)
    assert checkpoint is not None
    assert facts(checkpoint)["step"] == ending.done
    assert len(metrics(tmp_path)) == ending.done

    second = run(make_spec(job, make_plan(job, [1, 2, 2], [4, 4], "gpipe"), tmp_path, resume=checkpoint, epoch=2))
    (started,) = until(second, Started)
    assert isinstance(started, Started)
    assert started.done == ending.done
    until(second, Progressed)
    second.stop(save=True)
    again = until(second, Stopped)[-1]
    assert isinstance(again, Stopped)
    assert again.done > ending.done

    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, again.done + 1))
    expected = reference.train(job, again.done, (4, 4))
    assert [line["loss"] for line in lines] == list(expected.losses), "bit-equal: same microbatches, same sums"


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
def test_every_rule_resumes_bit_equal_from_a_periodic_checkpoint(rule: str, run: Any, tmp_path: Path) -> None:
    job = make_job(steps=6, optimizer=Optimizer(name=rule, lr=1e-2), checkpoint=Checkpointing(every=2, keep=2))
    reports = list(run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)).wait(60))
    assert [r.done for r in reports if isinstance(r, Saved)] == [2, 4, 6]
    folder = tmp_path / "checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == ["latest", "step-000004", "step-000006"], "two are kept"
    before = [line["loss"] for line in metrics(tmp_path)]
    spec = make_spec(job, make_plan(job, [5], [4, 4]), tmp_path, resume=folder / "step-000004", epoch=2)
    list(run(spec).wait(60))
    assert [line["loss"] for line in metrics(tmp_path)] == before
    early = job.__class__(
        **{f: getattr(job, f) for f in job.__slots__} | {"checkpoint": Checkpointing(every=1, keep=1)}
    )
    gang = run(make_spec(early, spec.plan, tmp_path, resume=folder / "step-000004", epoch=3))
    until(gang, Saved)
    gang.kill()
    list(gang.wait(30))
    assert latest(tmp_path) in set(folder.iterdir()), "a checkpoint of an abandoned future does not push out a new one"


def test_running_statistics_survive_a_resume(run: Any, tmp_path: Path) -> None:
    held = Evaluation(every=1, data=Reference(module="field_models:rows", args={"rows": 9, "seed": 1}))
    job = make_job("field_models:normalised", steps=4, evaluate=held, checkpoint=Checkpointing(every=2))
    list(run(make_spec(job, make_plan(job, [1, 3], [4, 4]), tmp_path)).wait(60))
    before = [line["held_loss"] for line in metrics(tmp_path)]
    resume = tmp_path / "checkpoints" / "step-000002"
    list(run(make_spec(job, make_plan(job, [2, 2], [4, 4]), tmp_path, resume=resume)).wait(60))
    assert [line["held_loss"] for line in metrics(tmp_path)] == before


def test_stages_without_weights_save_and_resume(run: Any, tmp_path: Path) -> None:
    job = make_job("field_models:bare_ends", steps=4, checkpoint=Checkpointing(every=2), gradient_clip=0.1)
    list(run(make_spec(job, make_plan(job, [1, 3, 1], [4, 4]), tmp_path)).wait(60))
    before = [line["loss"] for line in metrics(tmp_path)]
    resume = tmp_path / "checkpoints" / "step-000002"
    list(run(make_spec(job, make_plan(job, [4, 1], [4, 4]), tmp_path, resume=resume)).wait(60))
    assert [line["loss"] for line in metrics(tmp_path)] == before


def test_sixteen_bits_train_and_resume_from_their_master_weights(run: Any, tmp_path: Path) -> None:
    job = make_job(
        steps=6, precision="bf16", optimizer=Optimizer(name="adamw", lr=1e-3), checkpoint=Checkpointing(every=3)
    )
    list(run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)).wait(60))
    losses = [line["loss"] for line in metrics(tmp_path)]
    full = reference.train(make_job(steps=6, optimizer=job.optimizer), 6)
    assert losses == pytest.approx(full.losses, rel=0.05)
    resume = tmp_path / "checkpoints" / "step-000003"
    list(run(make_spec(job, make_plan(job, [2, 3], [4, 4]), tmp_path, resume=resume)).wait(60))
    assert [line["loss"] for line in metrics(tmp_path)] == losses


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_is_named_and_the_others_end(victim: int, run: Any, tmp_path: Path) -> None:
    job = make_job(steps=LONG, checkpoint=Checkpointing(every=5))
    gang = run(make_spec(job, make_plan(job, [2, 2, 1], [4, 4]), tmp_path))
    reports = until(gang, Saved)
    started = reports[0]
    assert isinstance(started, Started)
    os.kill(started.process_ids[victim], signal.SIGKILL)
    killed = time.monotonic()
    ending = until(gang, Failed, 20)[-1]
    assert time.monotonic() - killed < 10
    assert isinstance(ending, Failed)
    assert (ending.rank, ending.device, ending.fault) == (victim, f"rank-{victim}", "device")
    assert ending.reason == f"rank {victim} on rank-{victim}: died: signal 9 (SIGKILL)"
    assert ending.saved >= 5
    assert ending.saved == facts(latest(tmp_path) or tmp_path)["step"]
    assert not any(alive(process_id) for process_id in started.process_ids)


def test_a_frozen_rank_is_given_up_on(run: Any, tmp_path: Path) -> None:
    job = make_job(steps=LONG)
    spec = make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)
    gang = run(replace(spec, timeout=3.0))
    started = until(gang, Started)[0]
    assert isinstance(started, Started)
    until(gang, Progressed)
    os.kill(started.process_ids[1], signal.SIGSTOP)
    ending = until(gang, Failed, 30)[-1]
    assert isinstance(ending, Failed)
    assert (ending.rank, ending.fault) == (1, "device")
    assert "rank 1 on rank-1: fell silent, says rank 0" in ending.reason
    assert not any(alive(process_id) for process_id in started.process_ids)


def test_a_layer_that_raises_is_named(run: Any, tmp_path: Path) -> None:
    job = make_job("field_models:failing", args={"at": 4}, steps=LONG)
    ending = list(run(make_spec(job, make_plan(job, [1, 2], [4, 4]), tmp_path)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert (ending.rank, ending.layer, ending.fault) == (1, "bad", "job")
    assert "stage 1, layer 'bad': ValueError: this layer is made to fail" in ending.reason
    assert "float32[4, 16]" in ending.reason


def test_a_rank_that_leaves_without_a_word_is_named(run: Any, tmp_path: Path) -> None:
    job = make_job("field_models:leaving", steps=LONG)
    ending = list(run(make_spec(job, make_plan(job, [2], [8]), tmp_path)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert (ending.rank, ending.device, ending.fault) == (0, "rank-0", "job")
    assert "exited with status 0" in ending.reason


def test_a_boundary_that_changes_shape_is_refused_by_name(run: Any, tmp_path: Path) -> None:
    job = make_job("field_models:shrinking", args={"at": 5}, steps=LONG)
    ending = list(run(make_spec(job, make_plan(job, [2, 1], [4, 4]), tmp_path)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert ending.fault == "job"
    assert "stage 0, layer 'narrow'" in ending.reason
    assert "expected float32[4, 16], found float32[4, 15]" in ending.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": Optimizer(name="adagrad")}, "unknown optimizer 'adagrad'"),
        ({"optimizer": Optimizer(options={"speed": 1})}, "does not take these options"),
        ({"lr_schedule": LearningRateSchedule(name="step")}, "unknown lr_schedule 'step'"),
        ({"optimizer": Optimizer(lr=1e30)}, "training has diverged"),
        ({"data": None}, "has no data"),
    ],
)
def test_wrong_settings_fail_with_one_clear_sentence(
    change: dict[str, Any], words: str, run: Any, tmp_path: Path
) -> None:
    good = make_job("field_models:branching", steps=LONG)
    plan = make_plan(good, [2, 2], [4, 4])
    job = replace(good, **change)
    ending = list(run(make_spec(job, plan, tmp_path)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert ending.fault == "job"
    assert words in ending.reason
    assert "\n" not in ending.reason


def test_a_device_that_is_too_small_fails_by_name(run: Any, tmp_path: Path) -> None:
    job = make_job(args={"width": 1500, "depth": 3}, data="field_models:rows", steps=LONG)
    job = replace(job, data=Reference(module="field_models:rows", args={"width": 1500}))
    devices = (RankDevice(id="rank-0"), RankDevice(id="rank-1", memory=1e6))
    ending = list(run(make_spec(job, make_plan(job, [2, 2], [4, 4]), tmp_path, devices=devices)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert (ending.device, ending.fault) == ("rank-1", "device")
    assert "out of memory: stage 1 holds" in ending.reason


def test_killing_before_the_start_is_complete_leaves_nothing(tmp_path: Path) -> None:
    job = make_job(steps=LONG)
    gang = Gang.start(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path))
    gang.kill()
    assert list(gang.wait(60)) == [Stopped(done=0, saved=0)]
    assert not any(alive(process_id) for process_id in gang.process_ids)
    assert gang.poll() == []


def test_ranks_die_with_their_supervisor_and_scripts_need_no_guard(tmp_path: Path) -> None:
    """A plain script starts a gang at its top level and is killed: its ranks are gone soon after."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from engine_cases import make_job, make_plan, make_spec
        from ignite_scheduler.engine.gang import Gang
        job = make_job(steps=10**6)
        gang = Gang.start(make_spec(job, make_plan(job, [3, 2], [4, 4]), Path({str(tmp_path)!r})))
        for report in gang.wait():
            print(report, flush=True)
        """)
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        line = supervisor.stdout.readline()
        assert line.startswith("Started(")
        ids = [int(word) for word in line.split("process_ids=(")[1].split(")")[0].split(",") if word.strip()]
        assert all(alive(process_id) for process_id in ids)
        supervisor.kill()
    until_gone = time.monotonic() + 10
    while any(alive(process_id) for process_id in ids) and time.monotonic() < until_gone:
        time.sleep(0.05)
    assert not any(alive(process_id) for process_id in ids)


def test_a_checkpoint_of_another_model_is_refused_in_one_sentence(run: Any, tmp_path: Path) -> None:
    job = make_job(steps=2)
    list(run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)).wait(60))
    other = make_job(args={"depth": 5}, steps=LONG)
    spec = make_spec(other, make_plan(other, [3, 3], [4, 4]), tmp_path / "other", resume=latest(tmp_path))
    ending = list(run(spec).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert ending.fault == "job"
    assert "does not suit this job's model and optimizer" in ending.reason
    assert "\n" not in ending.reason


def test_a_checkpoint_executes_nothing(run: Any, tmp_path: Path) -> None:
    """An index that would run a command on loading is refused."""
    job = make_job(steps=2)
    list(run(make_spec(job, make_plan(job, [3, 2], [4, 4]), tmp_path)).wait(60))
    checkpoint = latest(tmp_path)
    assert checkpoint is not None
    (checkpoint / ".metadata").write_bytes(pickle.dumps(_Command(f"touch {tmp_path / 'executed'}")))
    ending = list(run(make_spec(job, make_plan(job, [5], [4, 4]), tmp_path, resume=checkpoint)).wait(60))[-1]
    assert isinstance(ending, Failed)
    assert "must not hold posix.system" in ending.reason
    assert not (tmp_path / "executed").exists()


class _Command:
    """Pickles as a call of the shell."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.text,)
