"""``ignite import`` and ``ignite export``: what is said where, exit codes, and that nothing is written in vain."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ignite_scheduler.cli import ignite
from ignite_scheduler.cli.exports import FORMAT_NAMES as EXPORT_NAMES
from ignite_scheduler.cli.imports import FORMAT_NAMES as IMPORT_NAMES
from ignite_scheduler.formats import load_profile, parse_cluster
from ignite_scheduler.formats.files import write_json
from ignite_scheduler.formats.foreign import ALIASES, EXPORTERS, FORMATS
from ignite_scheduler.formats.source import parse_yaml

EXAMPLE = Path(str(resources.files("ignite_scheduler"))) / "cli" / "examples" / "profile.json"
GRAPH = (
    "n0 -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=80, parameter_size=0\n"
    "n1 -- Linear -- forward_compute_time=1.5, backward_compute_time=3, activation_size=40, parameter_size=16\n"
    "\tn0 -- n1\n"
)


def run(*words: object) -> Result:
    return CliRunner().invoke(ignite, [str(word) for word in words])


def test_names_of_formats_are_those_of_the_registry() -> None:
    assert set(IMPORT_NAMES) == {*FORMATS, *ALIASES}
    assert tuple(EXPORTERS) == EXPORT_NAMES


def test_an_import_says_what_it_assumed_and_writes_the_profile(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(GRAPH)
    out = tmp_path / "net.profile.json"

    result = run("import", "profile", tmp_path / "net.txt", "--samples", 4, "--kind", "V100", "--write", out)

    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    profile = load_profile(out)
    assert [f"assumed: {text}" for text in profile.provenance["assumptions"]] == result.stderr.splitlines()[:-1]
    assert result.stderr.splitlines()[-1] == f"net: 1 layer on V100, {out}"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"pp_size_2": 160.1}', "Galvatron's bandwidths of sends"),
        (
            "a.json",
            '{"schema": "ignite/profile/v1"}',
            "a document of ours already, not imported as a profile: use it as it is",
        ),
        ("a.json", "[1, 2", "a.json:1: broken JSON"),
        ("a.json", '{"something": 1}', "no profile in a format that we know"),
        ("a.txt", "", "the file is empty"),
        ("a.txt", "just words\n", "no profile in a format that we know"),
        ("a.txt", GRAPH + "\tn1 -- n", "a.txt:4: the edge names 'n', which is no node"),
        ("a.txt", GRAPH.replace("\tn0 -- n1\n", ""), "a.txt:1: no edge names the node 'n0'; is the file cut off?"),
    ],
)
def test_a_refusal_ends_with_2_and_writes_nothing(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    out = tmp_path / "out.json"

    result = run("import", "profile", tmp_path / name, "--write", out)

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert not out.exists()


def test_a_missing_file_and_a_folder_of_nothing_end_with_2(tmp_path: Path) -> None:
    assert run("import", "profile", tmp_path / "nothing").exit_code == 2
    result = run("import", "profile", tmp_path)
    assert result.exit_code == 2
    assert "a folder is imported where one model lies in several files" in result.stderr


def test_regions_become_links_of_a_cluster(tmp_path: Path) -> None:
    rows = [{"a": "New York", "b": "Oslo", "delay_ms": 67, "gbit_per_s": 0.79}]
    (tmp_path / "geo.json").write_text(json.dumps(rows))

    shown = run("import", "links", tmp_path / "geo.json")
    written = run("import", "links", tmp_path / "geo.json", "--write", tmp_path / "links.yaml")

    assert shown.exit_code == written.exit_code == 0
    assert (tmp_path / "links.yaml").read_text() == shown.stdout
    nodes = [{"name": name, "devices": [{"kind": "own", "memory": "1GB"}]} for name in ("New-York", "Oslo")]
    cluster = parse_cluster({"version": 1, "name": "world", "nodes": nodes} | parse_yaml(shown.stdout)[0])
    (rule,) = cluster.links
    assert (rule.bandwidth, rule.latency, rule.both_ways) == (0.79e9 / 8, 0.067, True)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"a": "x", "b": "y", "delay_ms": 1}], "the key 'gbit_per_s' is missing"),
        ([{"a": "x", "b": "x", "delay_ms": 1, "gbit_per_s": 1}], "given twice or is none"),
        ({"overlap_coe": 1.1}, "Galvatron's overlap coefficient"),
    ],
)
def test_other_tables_of_links_are_refused(tmp_path: Path, rows: object, said: str) -> None:
    (tmp_path / "geo.json").write_text(json.dumps(rows))

    result = run("import", "links", tmp_path / "geo.json", "--write", tmp_path / "out.yaml")

    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out.yaml").exists()


@pytest.mark.parametrize("form", EXPORT_NAMES)
def test_the_example_is_exported_and_read_back(tmp_path: Path, form: str) -> None:
    place = tmp_path / ("tree" if form == "sailor" else "out.txt")
    sizes = [] if form == "sailor" else ["--samples", "16"]

    there = run("export", "profile", EXAMPLE, "--to", form, "--write", place, *sizes)
    assert there.exit_code == 0, there.stderr
    assert "lost: FLOPs" in there.stderr
    source = place / "compute" / load_profile(EXAMPLE).name if form == "sailor" else place
    back = run("import", "profile", source, *sizes, "--write", tmp_path / "back.json")
    assert back.exit_code == 0, back.stderr

    ours, read = load_profile(EXAMPLE), load_profile(tmp_path / "back.json")
    kind = next(iter(read.layers[0].times))
    for one, other in zip(ours.layers, read.layers, strict=True):
        assert other.times[kind][16].forward == pytest.approx(one.times["cpu"][16].forward, rel=1e-12)
        assert other.times[kind][16].backward == pytest.approx(one.times["cpu"][16].backward, rel=1e-12)
        assert other.parameter_bytes == one.parameter_bytes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "pipedream", "--samples", "3"], "no times for 3 samples on 'cpu'; measured: 1, 4, 16, 64"),
        (["--to", "piper", "--kind", "T4"], "no times of the kind 'T4'; kinds with times: cpu"),
        (["--to", "sailor"], "say --write FOLDER"),
        (["--to", "pipeedge"], "Invalid value for '--to'"),
    ],
)
def test_what_cannot_be_exported_ends_with_2(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("export", "profile", EXAMPLE, *words)

    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_a_file_is_no_folder_for_sailor(tmp_path: Path) -> None:
    (tmp_path / "tree").write_text("kept")

    result = run("export", "profile", EXAMPLE, "--to", "sailor", "--write", tmp_path / "tree")

    assert result.exit_code == 2
    assert "it is a file" in result.stderr
    assert (tmp_path / "tree").read_text() == "kept"


def test_a_graph_with_branches_is_no_chain_of_sailor(tmp_path: Path) -> None:
    document = json.loads(EXAMPLE.read_text())
    document["layers"][2]["inputs"] = ["pool1", "conv1"]
    write_json(tmp_path / "p.json", document)

    result = run("export", "profile", tmp_path / "p.json", "--to", "sailor", "--write", tmp_path / "tree")

    assert result.exit_code == 2
    assert "Sailor's profiles are chains" in result.stderr
    assert not (tmp_path / "tree").exists()
