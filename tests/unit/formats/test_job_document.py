"""job.yaml: what each key means, and one clear error for everything that can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import job_document, load_job, parse_job, write_yaml
from ignite_scheduler.model import MemoryFactors, Reference

GPT = """\
version: 1
name: gpt-small
model: {profile: gpt-small.profile.json}
data: {dataset: pkg.mod:dataset}
loss: cross_entropy
seed: 0
steps: 1000
batch: {global: 64, micro: auto}
optimizer: {name: adamw, lr: 3e-4}
gradient_clip: 1.0
lr_schedule: {name: cosine, warmup: 100}
evaluate: {every: 100, data: {dataset: pkg.mod:held}}
precision: fp32
resources:
  any_of: [{A100-40GB: 1, V100-32GB: 2}, {T4: 4}]
  max_devices: 8
  exclude: [lab2/box]
pipeline: {stages: auto, schedule: auto, split: auto, replicas: auto, recompute: false, shard: false, offload: false}
checkpoint: {every: 50 steps, keep: 2}
queue: {priority: 10, weight: 1.0, deadline: 2h, max_time: 3h, budget: 20, preemptible: true}
output: runs/gpt-small
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def job(**keys: Any) -> Any:
    return parse_job({"version": 1, "name": "j", "model": {"zoo": "mlp"}, "batch": {"global": 8}} | keys)


def test_the_example_of_the_format(tmp_path: Path) -> None:
    found = load_job(written(tmp_path, GPT))

    assert found.model == Reference(profile=str(tmp_path.resolve() / "gpt-small.profile.json"))
    assert found.data == Reference(module="pkg.mod:dataset")
    assert (found.batch.total, found.batch.micro) == (64, None)
    assert (found.optimizer.name, found.optimizer.lr) == ("adamw", 0.0003)
    assert found.resources.any_of == ({"A100-40GB": 1, "V100-32GB": 2}, {"T4": 4})
    assert (found.checkpoint.every, found.checkpoint.keep) == (50, 2)
    assert (found.queue.deadline, found.queue.max_time, found.queue.budget) == (7200.0, 10800.0, 20.0)
    assert found.evaluate is not None
    assert found.evaluate.data == Reference(module="pkg.mod:held")
    assert (found.pipeline.split, found.pipeline.recompute) == ("auto", False)


def test_the_example_reads_back(tmp_path: Path) -> None:
    found = load_job(written(tmp_path, GPT))
    assert parse_job(job_document(found)) == found
    write_yaml(tmp_path / "again.yaml", job_document(found))
    assert load_job(tmp_path / "again.yaml") == found


def test_most_keys_may_be_left_out() -> None:
    found = job()
    assert found.steps is None
    assert found.epochs is None
    assert found.precision == "fp32"
    assert found.queue.preemptible


def test_profile_paths_relate_to_the_folder_of_the_file(tmp_path: Path) -> None:
    found = job(model={"zoo": "mlp", "profile": "../p.json", "args": {"hidden": [8, 8]}})
    assert found.model.profile == "../p.json"
    document = job_document(found)
    assert parse_job(document, folder=tmp_path / "x").model.profile == str(tmp_path / "p.json")
    absolute = str(tmp_path / "p.json")
    assert parse_job(document | {"model": {"profile": absolute}}, folder="/elsewhere").model.profile == absolute


def test_a_data_set_without_a_colon_is_of_the_zoo() -> None:
    assert job(data={"dataset": "digits", "args": {"size": 32}}).data == Reference(zoo="digits", args={"size": 32})
    assert job(data={"zoo": "digits"}).data == Reference(zoo="digits")


def test_options_go_to_the_optimizer_as_they_are() -> None:
    factors = {"weights": 1, "gradients": 1, "optimizer": 2.5}
    found = job(optimizer={"name": "adamw", "betas": [0.9, 0.95], "weight_decay": 0.1, "memory": factors})
    assert found.optimizer.options == {"betas": [0.9, 0.95], "weight_decay": 0.1}
    assert found.optimizer.memory == MemoryFactors(weights=1.0, gradients=1.0, optimizer=2.5)


def test_what_is_fixed_of_the_pipeline() -> None:
    found = job(
        pipeline={"stages": 2, "split": [3, 1], "schedule": "gpipe", "replicas": 1, "recompute": "auto"}
    ).pipeline
    assert (found.stages, found.split, found.schedule) == (2, (3, 1), "gpipe")
    assert (found.replicas, found.recompute) == (1, "auto")


SPOILED = [
    ("global: 64", "global: 0", 8, "batch.global", "at least 1"),
    ("global: 64", "global: '64'", 8, "batch.global", "whole number"),
    ("global: 64, ", "", 8, "batch.global", "missing"),
    ("micro: auto", "micro: 0", 8, "batch.micro", "at least 1"),
    ("micro: auto", "micro: some", 8, "batch.micro", "'auto' will do"),
    ("steps: 1000", "steps: 1000\nepochs: 3", 8, "epochs", "keep one"),
    ("steps: 1000", "steps: 0", 7, "steps", "at least 1"),
    ("steps: 1000", "steps: 1e3", 7, "steps", "whole number"),
    ("batch:", "bach:", 8, "bach", "did you mean 'batch'"),
    ("cross_entropy", "crossentropy", 5, "loss", "did you mean 'cross_entropy'"),
    ("cross_entropy", "my loss:f", 5, "loss", "package.module:function"),
    ("adamw", "adamx", 9, "optimizer.name", "sgd, momentum, adam or adamw"),
    ("lr: 3e-4", "lr: -3e-4", 9, "optimizer.lr", "at least 0"),
    ("lr: 3e-4", "lr: 3e-4, nesterov: true", 9, "optimizer.nesterov", "no option 'nesterov'"),
    ("lr: 3e-4", "lr: 3e-4, betas: [0.9]", 9, "optimizer.betas", "at least 2"),
    ("lr: 3e-4", "memory: {weights: 1}", 9, "optimizer.memory.gradients", "missing"),
    ("cosine", "cosin", 11, "lr_schedule.name", "did you mean 'cosine'"),
    ("warmup: 100", "warmup: -1", 11, "lr_schedule.warmup", "at least 0"),
    ("gradient_clip: 1.0", "gradient_clip: 0", 10, "gradient_clip", "above 0"),
    ("{profile: gpt-small.profile.json}", "{}", 3, "model", "'zoo', 'module' or 'profile'"),
    ("{profile: gpt-small.profile.json}", "{zoo: vgg16, width: 2}", 3, "model.width", "args"),
    ("{profile: gpt-small.profile.json}", "{zoo: vgg16, module: a:b}", 3, "model.module", "keep one"),
    ("{profile: gpt-small.profile.json}", "{profile: a, args: {b: 1}}", 3, "model.args", "builder"),
    ("{profile: gpt-small.profile.json}", "{module: a.b}", 3, "model.module", "package.module:function"),
    ("pkg.mod:dataset", "pkg mod:x", 4, "data.dataset", "package.module:function"),
    ("{dataset: pkg.mod:dataset}", "{}", 4, "data", "found none"),
    ("every: 100", "every: 100 epochs", 12, "evaluate.every", "'50 steps'"),
    ("50 steps", "10min", 19, "checkpoint.every", "'50 steps'"),
    ("keep: 2", "keep: 0", 19, "checkpoint.keep", "at least 1"),
    ("precision: fp32", "precision: fp8", 13, "precision", "fp32, fp16, bf16 or auto"),
    ("T4: 4", "T4: 0", 15, "resources.any_of[1].T4", "at least 1"),
    ("{T4: 4}", "{}", 15, "resources.any_of[1]", "at least 1"),
    ("max_devices: 8", "max_devices: 0", 16, "resources.max_devices", "at least 1"),
    ("[lab2/box]", "lab2/box", 17, "resources.exclude", "a list"),
    ("stages: auto", "stages: 0", 18, "pipeline.stages", "at least 1"),
    ("schedule: auto", "schedule: 1f2b", 18, "pipeline.schedule", "did you mean '1f1b'"),
    ("split: auto", "split: [1, 0]", 18, "pipeline.split", "at least 1"),
    ("split: auto", "split: []", 18, "pipeline.split", "an empty list"),
    (
        "stages: auto, schedule: auto, split: auto",
        "stages: 3, split: [1, 2]",
        18,
        "pipeline.split",
        "pipeline.stages is 3",
    ),
    ("recompute: false", "recompute: maybe", 18, "pipeline.recompute", "true or false"),
    ("deadline: 2h", "deadline: 2", 20, "queue.deadline", "'2s' or '2h'"),
    ("budget: 20", "budget: .inf", 20, "queue.budget", "finite"),
    ("priority: 10", "priority: high", 20, "queue.priority", "whole number"),
    ("weight: 1.0", "weight: 0", 20, "queue.weight", "above 0"),
    ("preemptible: true", "preemptible: yes", 20, "queue.preemptible", "true or false"),
    ("name: gpt-small", "name: a/b", 2, "name", "may not contain '/'"),
    ("seed: 0", "seed: -1", 6, "seed", "at least 0"),
    ("version: 1", "version: 99", 1, "version", "expected 1, found 99"),
]


@pytest.mark.parametrize(("old", "new", "line", "field", "said"), SPOILED, ids=[case[1] or case[0] for case in SPOILED])
def test_what_is_wrong_is_told_with_line_field_and_cure(
    tmp_path: Path, old: str, new: str, line: int, field: str, said: str
) -> None:
    assert old in GPT
    path = written(tmp_path, GPT.replace(old, new, 1))
    with pytest.raises(DocumentError) as caught:
        load_job(path)
    error = caught.value
    if field != "bach":  # the misspelt key stands first, the missing one has no line
        assert (error.line, error.field) == (line, field)
    assert error.file == str(path)
    assert said in error.message
