"""Whole files or none; run files; JSON schemas; the journal's refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ignite_scheduler.control.events import TimerFired
from ignite_scheduler.errors import ConflictError, DocumentError, ExternalError, InputError, InvariantError
from ignite_scheduler.formats import SCHEMA_NAMES, schema, write_json, write_text, yaml_text
from ignite_scheduler.formats.codec import coding
from ignite_scheduler.formats.journal import JOURNAL_CODEC
from ignite_scheduler.formats.shapes.check import check
from ignite_scheduler.formats.shapes.timeline import MetricsShape
from ignite_scheduler.formats.source import Source, parse_yaml


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    write_text(path, "one")
    path.chmod(0o640)
    write_text(path, "zwei ü")
    assert path.read_bytes() == "zwei ü".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["f.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.txt"
    write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExternalError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["f.txt"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(path, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert path.is_fifo()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_the_device_that_is_always_full_stays_a_device() -> None:
    with pytest.raises(ExternalError, match="No space left"):
        write_text("/dev/full", "text")
    assert Path("/dev/full").is_char_device()


def test_a_place_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="cannot write"):
        write_text(tmp_path / "no" / "f.txt", "x")


def test_json_never_holds_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "f.json", {"a": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["?a", "- a", "1e3", "yes", "true", "null", "~", "a: b", "a #b", "", " a", "ü", "\x85", "a\nb"]
)
def test_any_text_survives_yaml(text: str) -> None:
    document = {"x": [text], "y": {"z": text}}
    assert parse_yaml(yaml_text(document))[0] == document


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_every_schema_is_complete(name: str) -> None:
    found = schema(name)
    assert found["$schema"].startswith("https://json-schema.org/")
    text = json.dumps(found)
    for reference in {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}:
        assert reference in found["$defs"]


def test_the_schema_of_a_cluster_takes_one_name_for_a_list_of_one() -> None:
    ways = schema("cluster")["$defs"]["LinkShape"]["properties"]["within"]["anyOf"]
    assert {way["type"] for way in ways} == {"array", "string", "null"}


def test_a_schema_says_what_must_stand() -> None:
    found = schema("job")
    assert {"version", "name", "model", "batch"} <= set(found["required"])
    assert found["additionalProperties"] is False
    assert found["$defs"]["BatchShape"]["required"] == ["global"]
    assert {"type": "integer", "minimum": 1} in found["$defs"]["BatchShape"]["properties"]["micro"]["anyOf"]


def test_an_unknown_schema_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'cluster'"):
        schema("clustre")


def test_importing_formats_imports_nothing_heavy() -> None:
    heavy = "{'pydantic', 'ruamel', 'torch', 'numpy', 'drawsvg', 'sqlalchemy'}"
    code = f"import sys, ignite_scheduler.formats; print({heavy} & {{name.split('.')[0] for name in sys.modules}})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == "set()"


def test_a_line_of_metrics_fits_its_shape() -> None:
    line = {"step": 1, "loss": 2.5, "grad_norm": None, "step_s": 0.5, "samples_per_s": 16.0, "held_loss": 2.0}
    assert check(MetricsShape, Source(data=line)).step_s == 0.5
    with pytest.raises(DocumentError, match="step_s"):
        check(MetricsShape, Source(data=line | {"step_s": -1}))


def test_a_journal_of_another_version_is_refused() -> None:
    value = JOURNAL_CODEC.encode_event(TimerFired(at=1.0, timer_id="x"))
    with pytest.raises(ConflictError, match="version 2"):
        JOURNAL_CODEC.decode_event(value | {"v": 2})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"type": "TimerFired", "at": 1.0}, "timer_id"),
        ({"type": "TimerFired", "at": "x", "timer_id": "t"}, "a number"),
        ({"type": "TimerFired", "at": 1.0, "timer_id": 3}, "str"),
        ({"type": "TimerFired", "at": 1.0, "timer_id": "t", "more": 1}, "newer version"),
        ({"type": "TimerFound", "at": 1.0}, "TimerFired"),
        ({}, "'type'"),
        ({"type": "ClusterObserved", "at": 1.0, "gangs": [["a"]]}, "2 items"),
        ({"type": "ClusterObserved", "at": 1.0, "gangs": "a"}, "a list"),
    ],
)
def test_a_line_that_no_journal_holds_is_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        JOURNAL_CODEC.decode_event({"v": 1, **value})


def test_a_type_without_coding_is_our_bug() -> None:
    with pytest.raises(InvariantError, match="no coding"):
        coding(complex)
    with pytest.raises(InvariantError, match="no coding"):
        coding(Any).encode(object())
