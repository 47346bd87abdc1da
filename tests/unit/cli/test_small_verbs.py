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


def test_a_card_is_discovered_with_what_others_hold() -> None:
    card = discovery.CudaCard(name="NVIDIA H200", uuid="GPU-1234", memory=150 * 2**30, used_by_others=2**30)
    machine = discovery.Machine(host="h", processor="p", cores=1.5, memory=2**33, cards=(card,))

    cluster = parse_cluster(discovery.cluster_document(machine))

    assert [device.id for device in cluster.devices] == ["h/cpu-0", "h/GPU-1234"]
    assert cluster.device("h/GPU-1234").kind == "H200"
    assert cluster.device("h/GPU-1234").memory == 149 * 2**30
    assert "bf16" in cluster.device("h/GPU-1234").dtypes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "AMD-Instinct-MI300X"),
    ],
)
def test_a_card_has_the_name_of_the_catalogue(name: str, kind: str) -> None:
    assert discovery.catalogue_kind(name) == kind


def test_the_kinds_of_the_catalogue_are_listed_for_people_and_programs() -> None:
    assert "A100-40GB" in call("devices", "kinds").stdout

    kinds = json.loads(call("devices", "kinds", "-o", "json").stdout)["kinds"]

    assert kinds["A100-40GB"]["memory_bytes"] == 40e9


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


def test_devices_needs_to_know_which() -> None:
    assert call("devices").exit_code == 2


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
