"""The verbs that need neither planner nor processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ignite_scheduler.cli import discovery, ignite, output
from ignite_scheduler.formats import load_cluster, parse_cluster


def call(*arguments: str) -> Result:
    return CliRunner().invoke(ignite, list(arguments), prog_name="ignite")


def test_the_overview_names_every_verb_and_the_exit_codes() -> None:
    result = call("--help")

    assert result.exit_code == 0
    for word in ("plan", "simulate", "run", "demo", "Exit codes", "ignite init"):
        assert word in result.stdout


def test_a_misspelt_verb_is_a_usage_error() -> None:
    result = call("plam")

    assert result.exit_code == 2
    assert "plam" in result.stderr
    assert result.stdout == ""


def test_what_this_machine_has_is_a_cluster_file_that_reads_back(tmp_path: Path) -> None:
    found = call("devices", "discover")
    (tmp_path / "cluster.yaml").write_text(found.stdout)

    cluster = load_cluster(tmp_path / "cluster.yaml")

    assert found.exit_code == 0
    assert cluster.devices[0].kind == "cpu"
    assert cluster.devices[0].speed == 1
    assert sum(device.kind == "cpu" for device in cluster.devices) == max(1, int(discovery.usable_cores()))


def test_the_kinds_of_the_catalogue_are_listed_for_people_and_programs() -> None:
    assert "A100-40GB" in call("devices", "kinds").stdout

    kinds = json.loads(call("devices", "kinds", "-o", "json").stdout)["kinds"]

    a100 = kinds["A100-40GB"]
    assert (a100["memory_bytes"], a100["peak_flops_per_s"]["bf16"]) == (40e9, 312e12)
    assert a100["evidence"]["compute"]["checked"]
    assert a100["evidence"]["compute"]["sources"][0]["url"].startswith("https://")
    assert kinds["A16"]["evidence"]["compute"] == {"checked": False, "sources": [], "note": None}


def test_the_wide_table_names_every_source() -> None:
    plain, wide = call("devices", "kinds", "h100").stdout, call("devices", "kinds", "h100", "-o", "wide").stdout

    assert "https://" not in plain
    assert "835?" in plain  # a figure that nobody looked up says so
    assert "https://github.com/stas00/ml-engineering" in wide


def test_no_such_kind_names_the_nearest() -> None:
    result = call("devices", "kinds", "rtx3090")

    assert result.exit_code == 2
    assert "RTX-3090" in result.stderr


CLUSTER = """
version: 1
name: pair
nodes:
  - name: a
    devices: [{kind: box, count: 2, speed: 0.5, memory: 8GB, price: 2/h}]
  - name: b
    devices: [{kind: crate, speed: 1, memory: 4GB}]
links:
  default: {bandwidth: 1Gbit/s, latency: 1ms}
  pairs: [{within: a, bandwidth: 2GB/s, latency: 0s}]
currency: EUR
"""


def test_a_cluster_is_shown_with_its_links(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    result = call("devices", "--cluster", str(tmp_path / "cluster.yaml"))

    assert result.exit_code == 0
    for word in ("a/box-1", "b/crate-0", "8GB", "2 EUR/h", "2GB/s", "125MB/s", "1ms"):
        assert word in result.stdout


def test_a_cluster_reads_back_from_its_document(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    document = call("devices", "--cluster", str(tmp_path / "cluster.yaml"), "-o", "json").stdout

    assert parse_cluster(json.loads(document)) == load_cluster(tmp_path / "cluster.yaml")


def test_devices_alone_shows_the_catalogue() -> None:
    assert call("devices").stdout == call("devices", "kinds").stdout


def test_the_doctor_finds_this_environment_fit() -> None:
    result = call("doctor", "-o", "json")

    findings = {one["subject"]: one for one in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 0
    assert findings["Python"]["verdict"] == "ok"
    assert findings["numpy"]["verdict"] == "ok"


@pytest.mark.parametrize("name", ["cluster", "job", "profile", "plan", "workload", "report"])
def test_each_document_has_a_schema(name: str) -> None:
    schema = json.loads(call("schema", name).stdout)

    assert schema["$schema"].startswith("https://json-schema.org/")


def test_schemas_are_listed() -> None:
    assert {"cluster", "job", "profile", "plan"} <= set(call("schema").stdout.split())


def test_yaml_output_reads_back(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    (tmp_path / "again.yaml").write_text(call("devices", "-c", str(tmp_path / "cluster.yaml"), "-o", "yaml").stdout)

    assert load_cluster(tmp_path / "again.yaml") == load_cluster(tmp_path / "cluster.yaml")


def test_a_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(output.table(["a", "b"], [["x" * 60, "y" * 60], ["[red]warm[/]", "1"]]))

    text = capsys.readouterr().out
    assert "x" * 60 in text
    assert "y" * 60 in text
    assert "\x1b" not in text


def test_a_terminal_without_our_signs_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    done = subprocess.run(
        [sys.executable, "-m", "ignite_scheduler.cli", "devices", "--cluster", "cluster.yaml"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "a/box-1" in done.stdout


@pytest.mark.parametrize("spread", ["nan", "inf", "-1", "1e9", "ten", "-5%"])
def test_a_noise_that_is_no_spread_is_a_usage_error(spread: str) -> None:
    result = call("simulate", "w.jsonl", "-c", "c.yaml", "--noise", spread)

    assert result.exit_code == 2
    assert "0.1 or 10%" in result.stderr


@pytest.mark.parametrize("kind", ["a/b", "a:1", "a b", "a+b", " "])
def test_a_kind_that_no_document_could_name_is_a_usage_error(kind: str) -> None:
    result = call("profile", "mlp", "--kind", kind)

    assert result.exit_code == 2
    assert "kind of device" in result.stderr
