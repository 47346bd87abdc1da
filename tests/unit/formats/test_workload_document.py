"""Workloads: two kinds of lines, and a bad line refused with its number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats import TableJob, load_workload
from ignite_scheduler.formats.workload import parse_mix
from ignite_scheduler.model import Job

TABLE = {"submit_s": 0, "name": "j1", "rates": {"V100:1": 12.5, "V100:4": 44.0, "V100:1+T4:2": 20}, "total": 100000}
TRAINING = {"submit_s": 5.5, "name": "j2", "model": {"profile": "p.json"}, "batch": {"global": 8}, "steps": 3}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "w.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_both_kinds_of_lines(tmp_path: Path) -> None:
    table, training = load_workload(written(tmp_path, TABLE, "", TRAINING | {"queue": {"deadline": "2h"}}))

    assert isinstance(table.job, TableJob)
    assert table.job.rates == {(("V100", 1),): 12.5, (("V100", 4),): 44.0, (("T4", 2), ("V100", 1)): 20.0}
    assert table.job.total == 100000
    assert isinstance(training.job, Job)
    assert training.submit == 5.5
    assert training.job.model.profile == str(tmp_path.resolve() / "p.json")
    assert training.job.queue.deadline == 7200.0


def without(line: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in line.items() if name != key}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "broken JSON"),
        ("[]", "keys with values"),
        (TABLE, "called 'j1' too"),
        (without(TABLE, "total"), "'total' is missing"),
        (without(TABLE, "submit_s"), "'submit_s' is missing"),
        (TABLE | {"submit_s": -1}, "at least 0"),
        (TABLE | {"rates": {}}, "at least 1"),
        (TABLE | {"rates": {"V100": 1}}, "'V100:1'"),
        (TABLE | {"rates": {"V100:0": 1}}, "'V100:1'"),
        (TABLE | {"rates": {"V100:1+V100:2": 1}}, "named twice"),
        (TABLE | {"rates": {"a:1+b:1": 1, "b:1+a:1": 1}, "name": "x"}, "given twice"),
        (TABLE | {"rates": {"V100:1": 0}}, "above 0"),
        (TABLE | {"total": 0}, "above 0"),
        (TABLE | {"total": 1e308}, "at most 1e+30"),
        (TABLE | {"rates": {"V100:1": 1e-300}}, "at least 1e-30"),
        (TABLE | {"submit_s": 1e300}, "at most 1e+30"),
        (TABLE | {"rats": 1}, "did you mean 'rates'"),
        (without(TRAINING, "steps"), "'steps' or 'epochs'"),
        (TRAINING | {"epochs": 1}, "keep one"),
        (TRAINING | {"batch": {"global": 0}}, "at least 1"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: object, said: str) -> None:
    path = written(tmp_path, TABLE, "", line, TRAINING | {"name": "later"})
    with pytest.raises(DocumentError) as caught:
        load_workload(path)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert said in caught.value.message


def test_a_workload_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="found none"):
        load_workload(written(tmp_path, "", ""))


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:1+", "a:1.5", "a:-1", "a:²"])
def test_other_mixes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected kinds with counts"):
        parse_mix(text)


def test_spaces_in_a_mix_do_not_make_another_kind() -> None:
    assert parse_mix(" V100 : 1 + T4:2 ") == parse_mix("V100:1+T4:2")
