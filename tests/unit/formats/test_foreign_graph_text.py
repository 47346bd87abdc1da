"""Profiles in the text form of PipeDream and DAPPLE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ignite_scheduler.cli import ignite
from ignite_scheduler.errors import DocumentError, InputError, NotFoundError
from ignite_scheduler.formats import parse_profile
from ignite_scheduler.formats.foreign import load_graph_text
from ignite_scheduler.model import LayerInput, LayerTimes


# Lines in no order, an input with loading time, two outputs, a skip over the LSTM, and a __getitem__ that nobody reads.
def line(node: str, forward: float, backward: float, output: str, parameters: float) -> str:
    times = f"forward_compute_time={forward:.3f}, backward_compute_time={backward:.3f}"
    return f"{node} -- {times}, activation_size={output}, parameter_size={parameters:.3f}\n"


INPUT = line("node1 -- Input", 600, 0, "80.0", 0)
TEXT = (
    line("node3 -- LSTM(8, 8)", 4, 6, "[400.0; 100.0]", 64)
    + INPUT
    + line("node2 -- Linear(in_features=8)", 1, 2, "200.0", 32)
    + line("node4 -- __getitem__(1)", 0, 0, "100.0", 0)
    + line("node5 -- Add(inplace)", 0.5, 0.5, "200.0", 0)
    + "\tnode1 -- node2\n\tnode2 -- node3\n  \tnode3 -- node4\n\tnode3 -- node5\n\tnode2 -- node5\n"
)


def written(folder: Path, text: str, name: str = "toy.graph.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_graph_is_read_by_hand(tmp_path: Path) -> None:
    profile = load_graph_text(written(tmp_path, TEXT), samples=4, kind="V100-16GB")

    assert profile.name == "toy"
    assert [layer.name for layer in profile.layers] == ["node2 Linear", "node3 LSTM", "node5 Add"]
    linear, lstm, add = profile.layers
    assert linear.inputs == (LayerInput(source="input"),)
    assert linear.output_bytes == 50
    assert lstm.output_bytes == 125
    assert lstm.parameter_bytes == 64
    assert lstm.times == {"V100-16GB": {4: LayerTimes(forward=0.004, backward=0.006)}}
    assert add.inputs == (LayerInput(source="node3 LSTM"), LayerInput(source="node2 Linear"))
    assert add.activation_bytes == 125 + 50


@pytest.mark.parametrize(
    ("bad", "number", "said"),
    [
        ("node9 is broken", 11, "expected a node"),
        ("node9 -- X -- forward_compute_time=1", 11, "expected the numbers"),
        (
            "node9 -- X -- forward_compute_time=a, backward_compute_time=1, activation_size=1, parameter_size=1",
            11,
            "numbers",
        ),
        ("\tnode2 -- node77", 11, "node77"),
        (TEXT.splitlines()[0], 11, "twice"),
    ],
    ids=["no node", "too few", "no number", "unknown end", "twice"],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, number: int, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        load_graph_text(written(tmp_path, TEXT + bad + "\n"))

    assert caught.value.line == number
    assert caught.value.file is not None


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cycl"):
        load_graph_text(written(tmp_path, TEXT + "\tnode5 -- node2\n"))


@pytest.mark.parametrize("text", ["", INPUT], ids=["empty", "input"])
def test_a_graph_without_layers_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DocumentError, match="none"):
        load_graph_text(written(tmp_path, text))


def test_a_minibatch_has_samples(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_graph_text(written(tmp_path, TEXT), samples=0)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_graph_text(tmp_path / "nothing.txt")


def test_the_command_takes_the_samples_from_the_name(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT, "toy-3-pbs-8.txt")

    result = CliRunner().invoke(ignite, ["import", "profile", str(path)])

    assert result.exit_code == 0, result.stderr
    assert parse_profile(json.loads(result.stdout)) == load_graph_text(path, samples=8)
