"""Each kind of bad input gives one clear error on stderr and the right exit code, and leaves nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from field_bench import FREE, GB, Answer, Bench, node, own


def good(bench: Bench) -> None:
    bench.profile([1.0, 1.0], memory=[GB, GB])
    bench.cluster(node("n", own("gpu", count=2, memory="8GB")))
    bench.job()


def reworked(bench: Bench, name: str, change: Callable[[Any], Any]) -> None:
    path = bench.folder / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=1))


def without_file(bench: Bench) -> None:
    (bench.folder / "cluster.yaml").unlink()


def without_profile(bench: Bench) -> None:
    (bench.folder / "toy.profile.json").unlink()


def broken_yaml(bench: Bench) -> None:
    bench.write("cluster.yaml", "version: 1\nnodes: [}\n")


def broken_json(bench: Bench) -> None:
    bench.write("toy.profile.json", '{"schema": "ignite/profile/v1", "layers": [')


def empty_document(bench: Bench) -> None:
    bench.write("job.yaml", "")


def list_document(bench: Bench) -> None:
    bench.write("job.yaml", "- 1\n- 2\n")


def unknown_key(bench: Bench) -> None:
    reworked(bench, "job.yaml", lambda job: job.update(bach=job.pop("batch")))


def unknown_kind(bench: Bench) -> None:
    bench.cluster(node("n", {"kind": "A100-41GB"}))


def unknown_kind_asked_for(bench: Bench) -> None:
    bench.job(resources={"any_of": [{"A100-40GB": 1}]})


def bare_number(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", memory=16)))


def negative_memory(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", memory="-16GB")))


def negative_bytes(bench: Bench) -> None:
    bench.profile([1.0, 1.0], memory=[-GB, GB])


def layer_without_times(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda profile: profile["layers"][1].update(times={"TPU": {"1": [1, 2]}}))


def cyclic_profile(bench: Bench) -> None:
    def tie(profile: Any) -> None:
        profile["layers"][0]["inputs"] = ["l1"]
        profile["layers"][1]["inputs"] = ["l0"]

    reworked(bench, "toy.profile.json", tie)


def unknown_input(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda profile: profile["layers"][1].update(inputs=["l7"]))


def batch_of_nothing(bench: Bench) -> None:
    bench.job(batch={"global": 0})


def microbatch_of_nothing(bench: Bench) -> None:
    bench.job(batch={"global": 8, "micro": 0})


def missing_device(bench: Bench) -> None:
    bench.job(resources={"exclude": ["n/gpu-7"]})


def nan_times(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda p: p["layers"][0]["times"]["reference"].update({"1": [float("nan"), 1]}))


def infinite_times(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda p: p["layers"][0]["times"]["reference"].update({"1": [1e999, 1]}))


def negative_times(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda p: p["layers"][0]["times"]["reference"].update({"1": [-1, 1]}))


def duplicate_layers(bench: Bench) -> None:
    reworked(bench, "toy.profile.json", lambda profile: profile["layers"][1].update(name="l0"))


def duplicate_nodes(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu")), node("n", own("gpu")))


def duplicate_devices(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", "x"), own("gpu", "x")))


def duplicate_keys(bench: Bench) -> None:
    bench.write(
        "job.yaml", (bench.folder / "job.yaml").read_text().replace('"steps": 1000', '"steps": 1,\n "steps": 2')
    )


def zero_speed(bench: Bench) -> None:
    bench.cluster(node("n", own("gpu", speed=0)))


def newer_version(bench: Bench) -> None:
    reworked(bench, "job.yaml", lambda job: job.update(version=99))


def unknown_schedule(bench: Bench) -> None:
    bench.job(pipeline={"schedule": "1f2b"})


def link_to_nowhere(bench: Bench) -> None:
    rule = {"between": ["n", "m"], "bandwidth": "1GB/s"}
    bench.cluster(node("n", own("gpu", count=2)), links={"default": FREE, "pairs": [rule]})


USAGE = [
    (without_file, ["cluster.yaml"]),
    (without_profile, ["toy.profile.json"]),
    (broken_yaml, ["cluster.yaml:2"]),
    (broken_json, ["toy.profile.json:1"]),
    (empty_document, ["job.yaml"]),
    (list_document, ["job.yaml"]),
    (unknown_key, ["job.yaml", "bach", "batch"]),
    (unknown_kind, ["cluster.yaml", "A100-41GB", "A100-40GB"]),
    (bare_number, ["cluster.yaml", "16GB", "16GiB"]),
    (negative_memory, ["cluster.yaml", "-16GB"]),
    (negative_bytes, ["toy.profile.json", "parameter_bytes"]),
    (layer_without_times, ["l1", "gpu"]),
    (cyclic_profile, ["toy.profile.json", "l0", "l1"]),
    (unknown_input, ["toy.profile.json", "l7"]),
    (batch_of_nothing, ["job.yaml", "batch"]),
    (microbatch_of_nothing, ["job.yaml", "batch"]),
    (missing_device, ["n/gpu-7", "n/gpu-0"]),
    (nan_times, ["toy.profile.json", "times"]),
    (infinite_times, ["toy.profile.json", "times"]),
    (negative_times, ["toy.profile.json", "times"]),
    (duplicate_layers, ["toy.profile.json", "l0"]),
    (duplicate_nodes, ["cluster.yaml", "n"]),
    (duplicate_devices, ["cluster.yaml", "n/x"]),
    (duplicate_keys, ["job.yaml", "steps"]),
    (zero_speed, ["cluster.yaml", "speed"]),
    (newer_version, ["job.yaml", "version"]),
    (unknown_schedule, ["job.yaml", "1f2b", "1f1b"]),
    (link_to_nowhere, ["cluster.yaml", "m"]),
]


def is_one_error(answer: Answer) -> bool:
    lines = [line for line in answer.stderr.splitlines() if line.startswith(("error:", "Error:"))]
    return len(lines) == 1 and "Traceback" not in answer.stderr


@pytest.mark.parametrize(("spoil", "named"), USAGE, ids=[spoil.__name__ for spoil, _ in USAGE])
def test_a_bad_document_is_one_clear_error(bench: Bench, spoil: Callable[[Bench], None], named: list[str]) -> None:
    good(bench)
    spoil(bench)
    before = sorted(path.name for path in bench.folder.iterdir())

    answer = bench.plan("--trace", str(bench.folder / "trace.json"), "--svg", str(bench.folder / "plan.svg"))

    assert answer.code == 2, answer.stdout + answer.stderr
    assert is_one_error(answer), answer.stderr
    assert answer.stdout == ""
    for word in named:
        assert word in answer.stderr
    assert sorted(path.name for path in bench.folder.iterdir()) == before


@pytest.mark.parametrize(
    "verb", [("doctor", "--gradients"), ("run", "--cluster", "cluster.yaml")], ids=["doctor", "run"]
)
def test_a_job_that_can_only_be_planned_is_told_what_training_takes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    pytest.importorskip("torch")
    good(bench)
    monkeypatch.chdir(bench.folder)
    before = sorted(path.name for path in bench.folder.iterdir())

    answer = bench.ignite(*verb, "job.yaml")

    assert (answer.code, answer.stdout) == (2, "")
    assert is_one_error(answer), answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    for word in ("'toy'", "zoo", "module", "dataset"):
        assert word in answer.stderr
    assert sorted(path.name for path in bench.folder.iterdir()) == before


def more_stages_than_layers(bench: Bench) -> None:
    bench.job(pipeline={"stages": 3})


def fits_nowhere(bench: Bench) -> None:
    bench.profile([1.0, 1.0], memory=[9 * GB, 9 * GB])


def more_stages_than_devices(bench: Bench) -> None:
    bench.profile([1.0] * 5)
    bench.job(pipeline={"stages": 5})


def all_excluded(bench: Bench) -> None:
    bench.job(resources={"exclude": ["n"]})


def wrong_precision(bench: Bench) -> None:
    bench.job(precision="fp16")


REFUSED = [
    (more_stages_than_layers, "layers"),
    (fits_nowhere, "memory"),
    (more_stages_than_devices, "devices"),
    (all_excluded, "devices"),
    (wrong_precision, "dtype"),
    (unknown_kind_asked_for, "devices"),
]


@pytest.mark.parametrize(("spoil", "code"), REFUSED, ids=[spoil.__name__ for spoil, _ in REFUSED])
def test_what_cannot_be_planned_is_an_answer_with_a_reason(
    bench: Bench, spoil: Callable[[Bench], None], code: str
) -> None:
    good(bench)
    spoil(bench)

    answer = bench.plan("--trace", str(bench.folder / "trace.json"))

    assert answer.code == 3, answer.stdout + answer.stderr
    assert answer.refusal["reason"]["code"] == code
    assert answer.refusal["reason"]["text"]
    assert answer.stderr
    assert not (bench.folder / "trace.json").exists()


GOOD_LINE = json.dumps({"submit_s": 0, "name": "a", "rates": {"gpu:1": 1.0}, "total": 10})
BAD_LINES = {
    "not json": "{",
    "unknown key": json.dumps({"submit_s": 0, "name": "b", "rats": {"gpu:1": 1.0}, "total": 10}),
    "no total": json.dumps({"submit_s": 0, "name": "b", "rates": {"gpu:1": 1.0}}),
    "negative rate": json.dumps({"submit_s": 0, "name": "b", "rates": {"gpu:1": -1.0}, "total": 10}),
    "negative time": json.dumps({"submit_s": -5, "name": "b", "rates": {"gpu:1": 1.0}, "total": 10}),
    "same name": GOOD_LINE,
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_of_a_workload_is_refused_with_its_number(bench: Bench, line: str) -> None:
    good(bench)
    workload = bench.write("workload.jsonl", f"{GOOD_LINE}\n{line}\n")

    answer = bench.ignite(
        "simulate", str(workload), "--cluster", str(bench.folder / "cluster.yaml"),
        "--policy", "fifo", "--jobs-csv", str(bench.folder / "jobs.csv"), "-o", "json",
    )  # fmt: skip

    assert answer.code == 2, answer.stdout + answer.stderr
    assert is_one_error(answer)
    assert "workload.jsonl:2" in answer.stderr
    assert answer.stdout == ""
    assert not (bench.folder / "jobs.csv").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "job.yaml"],
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "-o", "xml"],
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "--objective", "beauty"],
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "--what-if", "a100"],
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "--what-if", "-node:nowhere"],
        ["plan", "job.yaml", "--cluster", "cluster.yaml", "--memory-margin", "much"],
        ["simulate", "workload.jsonl", "--cluster", "cluster.yaml", "--policy", "best"],
        ["run", "--cluster", "cluster.yaml"],
        ["schema", "clustre"],
        ["trace", "no-such-run"],
        ["no-such-verb"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_one_clear_error(bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    good(bench)
    bench.write("workload.jsonl", GOOD_LINE + "\n")
    monkeypatch.chdir(bench.folder)

    answer = bench.ignite(*arguments)

    assert answer.code == 2, answer.stdout + answer.stderr
    assert is_one_error(answer), answer.stderr
    assert answer.stdout == ""


def test_an_unwritable_place_is_an_error_before_the_work(bench: Bench) -> None:
    good(bench)

    answer = bench.plan("--trace", str(Path("/nonexistent") / "folder" / "trace.json"))

    assert answer.code == 2
    assert is_one_error(answer)
